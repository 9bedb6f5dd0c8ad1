"""Programs that already have a native branch beside the Apex one: the Apex branch is taken out, nothing is added."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from amp_migrate.reading.conditions import availability
from amp_migrate.reading.definitions import ClassInfo, dotted
from amp_migrate.reading.module import Module
from amp_migrate.reading.project import Project
from amp_migrate.reading.unit import Init, Unit
from amp_migrate.reading.wrappers import class_around, makers, makes_native, scales_natively

Choice = tuple[str, str]  # what is compared, and with what: `use_amp == "apex"`


def _choice(test: ast.expr) -> Choice | None:
    """What a comparison asks. A member of an enumeration tells enough by itself: whichever object holds it is meant."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    if not isinstance(test.ops[0], (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
        return None
    return _chosen(test.left, test.comparators[0])


def _chosen(holder: ast.expr, value: ast.expr) -> Choice | None:
    if isinstance(value, ast.Constant):
        return ast.unparse(holder), repr(value.value)
    if isinstance(value, ast.Attribute) and isinstance(value.value, (ast.Name, ast.Attribute)):
        return ast.unparse(holder).rpartition(".")[2], ast.unparse(value)
    return None


def _holds_choice(target: ast.expr, holder: str, value: str) -> bool:
    """Whether a target is what a choice compares: by its whole text, or by its attribute for an enumeration's member."""
    text = ast.unparse(target)
    return text == holder or ("." in value and value[0] not in "'\"" and text.rpartition(".")[2] == holder)


@dataclass
class Branch:
    """The switch that chooses Apex, with what chooses the native branch instead where it is compared alike."""

    test: ast.expr
    native: ast.expr | None = None


class NativeTwin:
    """The switch that chooses Apex in a unit whose every use of Apex has a native alternative, and the classes that only
    serve its Apex side."""

    def __init__(self, project: Project, branches: Iterable[Branch], classes: Iterable[ClassInfo] = ()) -> None:
        self.project = project
        self.classes = list(dict.fromkeys(classes))
        self.switches: set[str] = set()
        self.choices: dict[Choice, ast.expr | None] = {}  # with the value that chooses the native branch
        for branch in branches:
            self.switches.add(ast.dump(branch.test))
            choice = _choice(branch.test)
            if choice is not None:
                self.choices[choice] = self.choices.get(choice) or branch.native

    def value(self, module: Module, test: ast.expr) -> bool | None:
        """What a test is once Apex is never chosen; None where it asks something else."""
        if ast.dump(test) in self.switches:
            return False
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.value(module, test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and _choice(test) in self.choices:
            return isinstance(test.ops[0], (ast.NotEq, ast.IsNot))
        if isinstance(test, ast.BoolOp):
            values = [self.value(module, v) for v in test.values]
            decisive = isinstance(test.op, ast.Or)
            if any(v is decisive for v in values):
                return decisive
            return (not decisive) if all(v is (not decisive) for v in values) else None
        return None

    def chooses(self, stmt: ast.stmt) -> bool:
        """Whether a statement chooses Apex: `use_amp = "apex"`."""
        return (
            isinstance(stmt, ast.Assign)
            and len(stmt.targets) == 1
            and _chosen(stmt.targets[0], stmt.value) in self.choices
        )

    def instead(self, stmt: ast.Assign) -> ast.expr | None:
        """What a statement that chooses Apex is to choose now."""
        choice = _chosen(stmt.targets[0], stmt.value)
        return self.choices[choice] if choice is not None else None

    def closed(self) -> bool:
        """Whether the program makes every choice itself: nothing outside it can still ask for Apex."""
        for holder, value in self.choices:
            given: list[tuple[ast.expr, ast.expr]] = []
            for module in self.project.modules:
                for node in module.nodes if holder.rpartition(".")[2] in module.text else ():
                    if isinstance(node, ast.Assign):
                        given += [(t, node.value) for t in node.targets if _holds_choice(t, holder, value)]
            chosen = [_chosen(target, v) for target, v in given]
            if (holder, value) not in chosen or None in chosen:
                return False
        return bool(self.choices)

    def only_chooses(self, body: list[ast.stmt]) -> bool:
        """Whether statements do nothing but choose Apex, with checks and messages about that."""
        return any(self.chooses(s) for s in body) and all(
            self.chooses(s) or isinstance(s, (ast.Assert, ast.Pass)) or _tells(s) for s in body
        )


def find_twin(unit: Unit) -> NativeTwin | None:
    """The native alternative of a unit, where each of its losses stands in a branch of one switch, or in a class whose
    instances are made there; without losses, each of its initialize calls."""
    if not any("GradScaler" in m.text or "autocast" in m.text for m in unit.modules):
        return None
    branches: list[Branch] = []
    classes: list[ClassInfo] = []
    for loss in unit.losses:
        branch = _beside(unit, loss.module, loss.with_stmt)
        if branch is None:
            cls = class_around(unit.project, loss.module, loss.call)
            branch = _made_under(unit, cls) if cls is not None else None
            classes += [cls] if cls is not None else []
        if branch is None:
            return None
        branches.append(branch)
    for init in unit.inits if unit.only_inference else ():
        branch = _inference(unit, init)
        if branch is None:
            return None
        branches.append(branch)
    return NativeTwin(unit.project, branches, classes) if branches else None


def _beside(unit: Unit, module: Module, node: ast.stmt) -> Branch | None:
    """The test of the `if` around a loss whose other branch scales the loss natively, or runs the plain path of a
    program whose native path is chosen elsewhere."""
    for parent in module.ancestors(node):
        if parent in module.scopes:
            return None
        if isinstance(parent, ast.If) and any(_holds(s, node) for s in parent.body):
            if scales_natively(parent.orelse):
                return _branch(unit, module, parent)
    return None


def _made_under(unit: Unit, cls: ClassInfo) -> Branch | None:
    """The test of the `if` under which alone a class is made, where the other branch makes one that scales natively."""
    found: list[Branch] = []
    for module, call in makers(unit.project, cls):
        around = [p for p in module.ancestors(call) if isinstance(p, ast.If) and any(_holds(s, call) for s in p.body)]
        beside = next((p for p in around if makes_native(unit.project, module, p.orelse)), None)
        branch = _branch(unit, module, beside) if beside is not None else None
        if branch is None:
            return None
        found.append(branch)
    return found[0] if found and len({ast.dump(branch.test) for branch in found}) == 1 else None


def _inference(unit: Unit, init: Init) -> Branch | None:
    """The test `use_amp == "apex"` around an initialize call, where another value is chosen together with autocast."""
    module = init.module
    for parent in module.ancestors(init.stmt):
        if parent in module.scopes:
            return None
        if not isinstance(parent, ast.If) or not any(_holds(s, init.stmt) for s in parent.body):
            continue
        test = _asked(unit, module, parent)
        if not isinstance(test, ast.Compare) or not isinstance(test.comparators[0], ast.Constant):
            return None
        for node in module.nodes:
            if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == [ast.unparse(test.left)]:
                value = node.value
                if isinstance(value, ast.Constant) and value.value and value.value != test.comparators[0].value:
                    if any("autocast" in module.source(s) for s in module.block(node) if s is not node):
                        return Branch(test, value)
    return None


def _branch(unit: Unit, module: Module, node: ast.If) -> Branch | None:
    """The branch of an `if` on one thing, with what its `elif` compares the same with."""
    test = _asked(unit, module, node)
    if test is None:
        return None
    mine = _choice(test)
    other = node.orelse[0] if len(node.orelse) == 1 else None
    if mine is not None and isinstance(other, ast.If) and isinstance(other.test, ast.Compare):
        theirs = _choice(other.test)
        if theirs is not None and theirs[0] == mine[0] and isinstance(other.test.ops[0], (ast.Eq, ast.Is)):
            return Branch(test, other.test.comparators[0])
    return Branch(test)


def _asked(unit: Unit, module: Module, node: ast.If) -> ast.expr | None:
    """What an `if` asks beyond Apex being installed, where that is one thing."""
    rest = availability(unit.project, module).rest(node.test)
    return rest[0] if rest is not None and len(rest) == 1 else None


def _tells(stmt: ast.stmt) -> bool:
    """A statement that only tells somebody something: `logger.info(...)`."""
    if not isinstance(stmt, ast.Expr):
        return False
    call = stmt.value
    name = (dotted(call.func) or "").lower() if isinstance(call, ast.Call) else ""
    return (
        isinstance(call, ast.Constant) or name == "print" or name.split(".")[0].lstrip("_").startswith(("log", "warn"))
    )


def _holds(stmt: ast.stmt, node: ast.AST) -> bool:
    return any(n is node for n in ast.walk(stmt))
