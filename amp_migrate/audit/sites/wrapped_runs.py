"""The forwards of a wrapped network that are in sight, and which of them one backward follows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.sites.unused import ASKED
from amp_migrate.audit.sites.writers import gradients_off
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.values.origins import Origin

Call = tuple[Module, ast.Call]
QUESTIONS = frozenset(
    "isinstance len print id type hasattr getattr setattr str repr modules named_modules children".split()
)


@dataclass
class Runs:
    """The calls of a wrapped network: those of one object in a function before one backward of it together, and how many."""

    groups: list[list[Call]] = field(default_factory=list)
    count: int = 0
    recorded: int = 0
    # Whether something else may run it: a method of it, a function out of sight, who has it from a list.
    elsewhere: bool = False
    # Whether the backward of some calls is not in their function: which others it follows is not seen.
    open: bool = False

    @property
    def never_trained(self) -> bool:
        """Whether gradients are off wherever it runs."""
        return bool(self.count) and not self.recorded and not self.elsewhere


def runs(review: Review, module: Module, wrap: ast.Call) -> Runs:
    """Those of what a call wraps."""
    found = Runs()
    by_function: dict[Function, list[ast.Call]] = {}
    for there, call, run in _calls(review, module, wrap):
        if not run:
            found.elsewhere = True
            continue
        found.count += 1
        if not gradients_off(review.after, there, call):
            found.recorded += 1
            if (function := there.function_around(call)) is not None:
                by_function.setdefault(function, []).append(call)
    for function, calls in by_function.items():
        there = function.module
        waiting: list[tuple[frozenset[Origin], list[Call]]] = []  # those of each object, as far as they are told apart
        ends = [c for c in syntax.every(function.node, ast.Call) if c not in calls and _ends(review.after, there, c)]
        for call in sorted([*calls, *ends], key=lambda c: (c.end_lineno or 0, c.end_col_offset or 0)):
            if call in ends:
                found.groups += [group for _, group in waiting]
                waiting = []
                continue
            made = review.values_after.of(there, call.func)
            same = [w for w in waiting if w[0] & made]
            waiting = [w for w in waiting if w not in same]
            waiting.append(
                (made.union(*(m for m, _ in same)), [*(c for _, group in same for c in group), (there, call)])
            )
        found.open = found.open or bool(waiting)
    return found


def _ends(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call runs backward, itself or in the function that it calls."""
    if syntax.last(call.func) == "backward":
        return True
    return any(
        syntax.last(c.func) == "backward" for f in program.callees(module, call) for c in syntax.every(f.node, ast.Call)
    )


def several(group: list[Call]) -> bool:
    """Whether a backward may follow more than one of some calls: no two branches of a test, or a loop without it."""
    apart = ((m, a, b) for n, (m, a) in enumerate(group) for _, b in group[n + 1 :])
    return any(not _exclusive(m, a, b) for m, a, b in apart) or any(_repeated(m, c) for m, c in group)


def _exclusive(module: Module, one: ast.Call, other: ast.Call) -> bool:
    around = [a for a in module.ancestors(one) if isinstance(a, ast.If)]
    return any(
        one in below_body and other in below_else
        for a in around
        for below_body, below_else in [_branches(a), _branches(a)[::-1]]
    )


def _branches(test: ast.If) -> tuple[set[ast.AST], set[ast.AST]]:
    return {n for s in test.body for n in syntax.walk(s)}, {n for s in test.orelse for n in syntax.walk(s)}


def _repeated(module: Module, call: ast.Call) -> bool:
    """Whether a loop that no backward stands in runs a call."""
    for around in module.ancestors(call):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(around, (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            return not any(syntax.last(c.func) == "backward" for c in syntax.every(around, ast.Call))
    return False


def _calls(review: Review, module: Module, wrap: ast.Call) -> Iterator[tuple[Module, ast.Call, bool]]:
    """The calls, in sight, that run the object that a call makes, by its name and those that functions know it by; of any object of
    the file that is made as it is, where what holds it has no such name: `setattr(self, name, [DDP(m) for m in models])`."""
    stmt, wrapped = module.statement(wrap), argument(wrap, "module", 0)
    targets = stmt.targets if isinstance(stmt, ast.Assign) and stmt.value is wrap else []
    names = {
        t.attr if isinstance(t, ast.Attribute) else t.id for t in targets if isinstance(t, (ast.Name, ast.Attribute))
    }
    if wrapped is None:
        return
    near = {module: names}
    owner = review.after.class_around(module.scope_of(wrap))
    if owner is not None and not any(isinstance(t, ast.Name) for t in targets):
        near |= {c.module: names for c in review.after.family(owner)}
    todo = list(near)
    for there in todo:
        for callee, inner in _handed(review.after, there, near[there]):
            todo += [callee] if inner not in near.get(callee, ()) else []
            near[callee] = near.get(callee, set()) | {inner}
    made = review.values_after.of(module, wrapped)
    for there, called in near.items():

        def is_it(node: ast.AST, there: Module = there, called: set[str] = called) -> bool:
            named = last_name(node) if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) else None
            if named is None or not isinstance(node, ast.expr) or (names and named not in called):
                return False
            return bool(made & review.values_after.of(there, node))

        for call in there.calls():
            if call is wrap or review.after.callees(there, call):
                continue
            if is_it(call.func):
                yield there, call, True
            elif names and _runs_elsewhere(review.after, there, call) and any(map(is_it, _holders(call))):
                yield there, call, False
        for node in (n for name in called if names for n in there.loads.get(name, ())):
            if _kept(there, node, called) and is_it(node):
                yield there, wrap, False


def _kept(module: Module, node: ast.expr, called: set[str]) -> bool:
    """Whether what has one of some names is put where another name, or none, stands for it: into a list, given back."""
    parent = module.parents.get(node)
    if isinstance(parent, ast.Assign):
        return parent.value is node and not all(last_name(t) in called for t in parent.targets)
    return isinstance(parent, (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Return, ast.Yield, ast.Starred, ast.IfExp))


def _holders(call: ast.Call) -> Iterator[ast.AST]:
    """What a call that is not of a network itself may run: what it is given, and whose method it is."""
    yield from syntax.given(call)
    on: ast.AST = call.func
    while isinstance(on, ast.Attribute):
        on = on.value
        yield on


def _runs_elsewhere(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call may run a network that it has: none of torch's own, no question, none of what is asked of each."""
    name = program.dotted(module.scope_of(call), call.func)
    if name is not None and name.startswith(("torch.", "apex.")):
        return False
    return syntax.last(call.func) not in ASKED | QUESTIONS


def _handed(program: Program, module: Module, names: set[str]) -> Iterator[tuple[Module, str]]:
    """The functions that what has one of some names is handed to, by their files, and as which parameter."""
    for call in module.calls():
        if any(last_name(v) in names for v in syntax.given(call) if isinstance(v, (ast.Name, ast.Attribute))):
            for callee in program.callees(module, call):
                for inner, value in (program.arguments(callee, call) or {}).items():
                    if isinstance(value, (ast.Name, ast.Attribute)) and last_name(value) in names:
                        yield callee.module, inner
