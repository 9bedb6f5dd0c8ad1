"""Programs that already have a native branch beside the Apex one: the Apex branch is taken out, nothing is added."""

from __future__ import annotations

import ast

from amp_migrate.reading.conditions import availability
from amp_migrate.reading.module import Module
from amp_migrate.reading.project import Project
from amp_migrate.reading.unit import Unit


class NativeTwin:
    """The switch that chooses Apex in a unit whose every use of Apex has a native alternative."""

    def __init__(self, project: Project, switches: list[ast.expr]) -> None:
        self.project = project
        self.switches = [ast.dump(s) for s in switches]
        # `use_amp == "apex"`: assignments of that value to that name choose Apex as well.
        self.choices = {
            (ast.unparse(s.left), s.comparators[0].value)
            for s in switches
            if isinstance(s, ast.Compare) and isinstance(s.comparators[0], ast.Constant)
        }

    def value(self, module: Module, test: ast.expr) -> bool | None:
        """What a test is once Apex is never chosen; None where it asks something else."""
        if ast.dump(test) in self.switches:
            return False
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.value(module, test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
            if (ast.unparse(test.left), test.comparators[0].value) in self.choices:
                return isinstance(test.ops[0], (ast.NotEq, ast.IsNot))
        if isinstance(test, ast.BoolOp):
            values = [self.value(module, v) for v in test.values]
            decisive = isinstance(test.op, ast.Or)
            if any(v is decisive for v in values):
                return decisive
            return (not decisive) if all(v is (not decisive) for v in values) else None
        return None

    def only_chooses(self, module: Module, body: list[ast.stmt]) -> bool:
        """Whether statements do nothing but choose Apex: `use_amp = "apex"` and checks that it is installed."""
        chooses = False
        for stmt in body:
            if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.value, ast.Constant):
                if (ast.unparse(stmt.targets[0]), stmt.value.value) not in self.choices:
                    return False
                chooses = True
            elif isinstance(stmt, ast.Assert):
                if availability(self.project, module).value(stmt.test) is None:
                    return False
            elif not isinstance(stmt, ast.Pass):
                return False
        return chooses


def find_twin(unit: Unit) -> NativeTwin | None:
    """The native alternative of a unit, where each of its losses and initialize calls stands in a branch of one switch."""
    if not unit.losses or not any("GradScaler" in m.text or "autocast" in m.text for m in unit.modules):
        return None
    switches: list[ast.expr] = []
    for loss in unit.losses:
        switch = _switch(unit, loss.module, loss.with_stmt)
        if switch is None:
            return None
        switches.append(switch)
    return NativeTwin(unit.project, switches)


def _switch(unit: Unit, module: Module, node: ast.stmt) -> ast.expr | None:
    """The test of the `if` around a loss whose other branch scales the loss natively, or runs the plain path of a
    program whose native path is chosen elsewhere."""
    for parent in module.ancestors(node):
        if parent in module.scopes:
            return None
        if isinstance(parent, ast.If) and any(_holds(s, node) for s in parent.body):
            if _scales_natively(parent.orelse):
                available = availability(unit.project, module)
                rest = available.rest(parent.test)
                return rest[0] if rest is not None and len(rest) == 1 else None
    return None


def _holds(stmt: ast.stmt, node: ast.AST) -> bool:
    return any(n is node for n in ast.walk(stmt))


def _scales_natively(block: list[ast.stmt]) -> bool:
    """`scaler.scale(loss).backward()` somewhere in a block."""
    for node in (n for s in block for n in ast.walk(s)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            value = node.func.value
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "scale":
                return True
    return False
