"""Where a model is put in a Sequential no more, whoever reads the same checkpoint does not put one in it either.

`network_to_half`, Apex's and copies of it, gives `Sequential(tofp16(), model)`: the keys of its state begin with `1.`. Proves: no
call of such a function stays whose model loads a file of a name that a program names in which such a call went. Cannot prove
anything of files that are named at run time, nor of models that are put in a Sequential by no function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP720: see `rules/older/fp16_utils.py`

APEX = ("apex.fp16_utils.network_to_half", "apex.fp16_utils.fp16util.network_to_half")
LOADING = ("load_state_dict", "load")


def check(review: Review) -> Iterable[Doubt]:
    gone: dict[str, tuple[Module, ast.Call]] = {}
    stays: list[tuple[Module, ast.Call]] = []
    for module, call in _wrapping(review.before):
        now = review.statement_now(module, call)
        if now is not None and any(_puts(review.after, now[0], c) for c in syntax.every(now[1], ast.Call)):
            stays.append((module, call))
        elif module.path in review.changes:
            for name, state in _files(review, module, call):
                gone.setdefault(name, (module, state))
    for module, call in stays if gone else ():
        for name, state in _files(review, module, call):
            now = review.statement_now(module, state)
            if name not in gone or now is None or syntax.last(state.func) != "load_state_dict":
                continue
            other, line = gone[name]
            message = (
                f"{name}, which {other.path}:{line.lineno} names, is loaded into a model that {syntax.text(call.func)} put in a "
                "Sequential, whose keys begin with its place there; those of the other do no more, and one of the two raises"
            )
            yield review.doubt(*now, "AMP720", "load_state_dict", message, "review", ("AMP720",))


def _wrapping(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """The calls of functions that put a network in a Sequential."""
    making = (m for m in program.modules.values() if "Sequential" in m.words)
    names = {f.name for m in making for f in m.functions if _gives_sequential(program, f)} | {"network_to_half"}
    for module in program.modules.values():
        for call in module.calls() if not names.isdisjoint(module.words) else ():
            if call.args and _puts(program, module, call):
                yield module, call


def _puts(program: Program, module: Module, call: ast.Call) -> bool:
    if not isinstance(call.func, (ast.Name, ast.Attribute)):
        return False
    scope = module.scope_of(call)
    found = program.definitions(scope, call.func, guess=False)
    if not found:
        return program.dotted(scope, call.func) in APEX
    return any(isinstance(f, Function) and _gives_sequential(program, f) for f in found)


@kept
def _gives_sequential(program: Program, function: Function) -> bool:
    """Whether a function makes half what it is given, and gives that back in a Sequential."""
    own = {p.arg for p in function.parameters}
    given = [n.value for n in syntax.every(function.node, ast.Return) if isinstance(n.value, ast.Call)]
    return any(
        (program.dotted(function.scope, made.func) or "").endswith("nn.Sequential")
        and any(n.id in own for arg in made.args for n in syntax.every(arg, ast.Name))
        and ("half" in syntax.text(made) or "fp16" in syntax.text(made).lower())
        for made in given
    )


def _files(review: Review, module: Module, call: ast.Call) -> Iterator[tuple[str, ast.Call]]:
    """The names of the files that the state of the model of a call is saved in or read from, in its function."""
    stmt = module.statement(call)
    target = syntax.text(stmt.targets[0]) if isinstance(stmt, ast.Assign) else syntax.text(call.args[0])
    scope = module.scope_of(call)
    for state in module.calls():
        if not isinstance(state.func, ast.Attribute) or state.func.attr not in ("state_dict", "load_state_dict"):
            continue
        if module.scope_of(state) is not scope or syntax.text(state.func.value) != target:
            continue
        for path in _paths(review, module, state):
            known = review.values_before.constants(module.scope_of(state), path)
            yield from ((str(one).rpartition("/")[2], state) for one in known or () if isinstance(one, str))


def _paths(review: Review, module: Module, state: ast.Call) -> Iterator[ast.expr]:
    if syntax.last(state.func) == "state_dict":
        for around in module.ancestors(state):
            if isinstance(around, ast.Call) and syntax.last(around.func) == "save":
                yield from around.args[1:2]
        return
    for given in state.args[:1]:
        made = [o.node for o in review.values_before.of(module, given)]
        for node in (*syntax.every(given, ast.Call), *made):
            if isinstance(node, ast.Call) and syntax.last(node.func) == "load":
                yield from node.args[:1]
