"""Autocast regions: which code runs in one, written around it, on a function, or around the calls of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.values.names import binds_alone
from amp_migrate.audit.values.origins import in_order
from amp_migrate.audit.values.same import is_partial
from amp_migrate.audit.values.values import Values

AUTOCAST = {  # full name: position of `enabled`
    "torch.autocast": 2,
    "torch.amp.autocast": 2,
    "torch.amp.autocast_mode.autocast": 2,
    "torch.cuda.amp.autocast": 0,
    "torch.cuda.amp.autocast_mode.autocast": 0,
    "torch.cpu.amp.autocast": 0,
}


@dataclass(frozen=True, eq=False)
class Region:
    """One autocast region. `call`: what opens it; `enabled`: its switch, None where it is always on."""

    module: Module
    call: ast.Call
    enabled: ast.expr | None
    unseen: bool = False  # what is opened is chosen at run time: `with amp_autocast():`

    @property
    def off(self) -> bool:
        return syntax.is_false(self.enabled)

    @property
    def choice(self) -> tuple[ast.expr, bool] | None:
        """The test that chooses between the region and something else, and how it comes out for the region:
        `with torch.autocast("cuda") if mixed else nullcontext():`."""
        choice = self.module.parents.get(self.call)
        return (choice.test, choice.body is self.call) if isinstance(choice, ast.IfExp) else None

    @property
    def switch(self) -> tuple[list[ast.expr], bool]:
        """What switches the region on, each by itself, and whether a region around it does as well:
        `enabled=mixed or torch.is_autocast_enabled("cuda")`."""
        either = isinstance(self.enabled, ast.BoolOp) and isinstance(self.enabled.op, ast.Or)
        parts = self.enabled.values if either and isinstance(self.enabled, ast.BoolOp) else [self.enabled]
        own = [p for p in parts if p is not None and not _asks_around(p)]
        return own, self.enabled is not None and len(own) < len(parts)


def _asks_around(expr: ast.expr) -> bool:
    called = expr.func if isinstance(expr, ast.Call) else None
    return isinstance(called, (ast.Name, ast.Attribute)) and syntax.text(called).endswith("is_autocast_enabled")


class Regions:
    """The regions of one state of a program."""

    def __init__(self, program: Program, values: Values) -> None:
        self.program = program
        self.values = values

    def has_any(self, module: Module) -> bool:
        return "autocast" in module.text or not self.program.spelled("autocast").isdisjoint(module.words)

    @kept
    def opened(self, module: Module, expr: ast.expr) -> Region | None:
        """The region that a context manager or decorator opens, if it is one."""
        scope = module.scope_of(expr)
        if isinstance(expr, ast.Call):
            name = self.program.dotted(scope, expr.func)
            if name in AUTOCAST:
                return Region(module, expr, argument(expr, "enabled", AUTOCAST[name]))
            if not isinstance(expr.func, (ast.Name, ast.Attribute)):
                return None
            seen = self.program.definitions(scope, expr.func, guess=False)  # which may be all, or one of several
            if (not seen and "autocast" in syntax.text(expr.func)) or self._may_open(module, expr.func):
                return Region(module, expr, None, unseen=True)
        elif not isinstance(expr, (ast.Name, ast.Attribute, ast.IfExp)):
            return None
        for origin in in_order(self.values.origins(scope, expr)):  # `ctx = torch.autocast(...)`, `with ctx:`
            if isinstance(origin.node, ast.Call) and origin.node is not expr:
                found = self.program.dotted(origin.module.scope_of(origin.node), origin.node.func)
                if found in AUTOCAST:
                    return Region(origin.module, origin.node, argument(origin.node, "enabled", AUTOCAST[found]))
        return None

    def _may_open(self, module: Module, func: ast.expr) -> bool:
        """Whether what is called may be autocast, handed in or kept: `region = torch.autocast`, `partial(torch.autocast, "cuda")`."""
        for origin in self.values.origins(module.scope_of(func), func):
            node, scope = origin.node, origin.module.scope_of(origin.node)
            if is_partial(node, self.program, scope):
                node = node.args[0]
            if isinstance(node, (ast.Name, ast.Attribute)) and self.program.dotted(scope, node) in AUTOCAST:
                return True
        return False

    def around(self, module: Module, node: ast.AST) -> Iterator[Region]:
        """The regions written around a node within its function, the innermost first; then those on the function."""
        child = node
        for at in module.ancestors(node):
            if isinstance(at, (ast.With, ast.AsyncWith)):
                if any(child is s for s in at.body):
                    for item in reversed(at.items):
                        region = self.opened(module, item.context_expr)
                        if region is not None:
                            yield region
            given = module.parents.get(at)
            if isinstance(at, ast.Lambda) and (not isinstance(given, (ast.Call, ast.keyword)) or binds_alone(given)):
                return  # which is kept, and runs where it is called
            if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if any(child is s for s in at.body):
                    for decorator in at.decorator_list:
                        region = self.opened(module, decorator)
                        if region is not None:
                            yield region
                    return
            child = at

    def nearest(self, module: Module, node: ast.AST) -> Region | None:
        return next(self.around(module, node), None)

    @cached_property
    def wrapped(self) -> list[tuple[Module, ast.Attribute, Region]]:
        """`model.forward = torch.autocast(...)(model.forward)`: the forward that is wrapped."""
        found = []
        for module in self.program.modules.values():
            if not self.has_any(module):
                continue
            for call in module.calls():
                if not isinstance(call.func, ast.Call) or not call.args:
                    continue
                region = self.opened(module, call.func)
                if region is not None and isinstance(call.args[0], ast.Attribute):
                    found.append((module, call.args[0], region))
        return found

    def of_function(self, function: Function) -> Region | None:
        for decorator in function.node.decorator_list:
            region = self.opened(function.module, decorator)
            if region is not None:
                return region
        return None
