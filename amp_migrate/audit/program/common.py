"""Methods so common that an unknown receiver says nothing about which class is meant."""

from __future__ import annotations

import ast

from amp_migrate.audit.program.module import Module

COMMON = frozenset(
    "append add get items keys values update pop copy close open read write join split format strip run start stop step "
    "zero_grad backward forward train eval to cuda cpu half float double state_dict load_state_dict parameters modules "
    "named_parameters apply size view reshape item detach mean sum max min log info debug warning error save load reset "
    "set put next send name type clone __init__ __call__ __getitem__ __len__ call encode decode".split()
)


def tells_nothing(module: Module, method: ast.Attribute) -> bool:
    """Whether a method is called as any object's may be: not `task.eval(model, loader)`, where a network's takes nothing."""
    call = module.parents.get(method)
    given = isinstance(call, ast.Call) and call.func is method and bool(call.args)
    return method.attr in COMMON and not (method.attr == "eval" and given)
