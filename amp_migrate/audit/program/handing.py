"""Functions of a program that hand what they are given to a function of Apex's: who calls them calls that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program


def hands_to_apex(program: Program, function: Function) -> bool:
    """Whether a function gives one of Apex's all its parameters, as they are."""
    return any(True for _ in _handing(program, function))


def in_place_of(program: Program, module: Module, call: ast.Call) -> list[tuple[Module, ast.Call]]:
    """The calls that say what a call of Apex's is given, where it stands in a function that takes whatever comes."""
    function = module.function_around(call)
    if function is None or not any(c is call for c in _handing(program, function)):
        return []
    a = function.node.args
    return program.callers(function) if a.vararg is not None or a.kwarg is not None else []


def _handing(program: Program, function: Function) -> Iterator[ast.Call]:
    if function.owner is not None:
        return
    a = function.node.args
    own = [p.arg for p in function.parameters]
    own += [f"*{a.vararg.arg}"] if a.vararg is not None else []
    own += [f"**{a.kwarg.arg}"] if a.kwarg is not None else []
    for call in syntax.every(function.node, ast.Call):
        if not isinstance(call.func, (ast.Name, ast.Attribute)):
            continue
        given = [syntax.text(v) for v in call.args]
        given += [f"**{syntax.text(k.value)}" if k.arg is None else syntax.text(k.value) for k in call.keywords]
        if own and given[: len(own)] == own:
            name = program.dotted(function.module.scope_of(call), call.func)
            if name is not None and name.startswith("apex.amp."):
                yield call
