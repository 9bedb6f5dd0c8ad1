"""What a use of a value shows of it: that it holds whole numbers, or floating values."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.regions.hot import is_loss

# Functions and methods that return a tensor of the dtype they are given, and methods that write into a part of one.
KEEPING = frozenset(
    "sigmoid softmax log_softmax tanh relu exp log sqrt normalize detach clone squeeze unsqueeze view reshape flatten "
    "permute transpose t contiguous clamp expand expand_as repeat flip roll".split()
)
UNCHANGED = KEEPING - frozenset("softmax log_softmax exp log normalize".split())  # autocast makes those float32
# What is done to floating values alone.
FLOATING = frozenset("softmax log_softmax sigmoid exp norm argmax std mean tanh log sqrt normalize logsigmoid".split())
WHOLE_GIVEN = frozenset("repeat_interleave index_select gather".split())  # beside the first


def shows_whole(module: Module, use: ast.expr) -> bool:
    """Whether a value, or a part of it, is handed to what takes whole numbers alone: `repeat_interleave(x, lengths[0].cpu())`."""
    whole: ast.AST = use
    while isinstance(around := module.parents.get(whole), (ast.Subscript, ast.Attribute, ast.keyword, ast.Call)):
        if isinstance(around, ast.Call) and around.func is not whole:
            first = isinstance(around.func, ast.Attribute) and ast.unparse(around.func.value) not in ("torch", "F")
            among = [*around.args[0 if first else 1 :], *(k for k in around.keywords if k.arg in ("repeats", "index"))]
            return called_name(around) in WHOLE_GIVEN and any(n is whole for n in among)
        if isinstance(around, ast.Subscript) and around.slice is whole:
            return False  # a mask as well
        if isinstance(around, ast.Call) and called_name(around) not in (*UNCHANGED, "cpu", "cuda", "to"):
            return False
        whole = around
    return False


def shows_floating(module: Module, node: ast.Name) -> bool:
    """Whether a use is made of floating values alone: `softmax(x)`, a loss of it; what comes second in a loss are targets."""
    parent = module.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr in FLOATING
    if isinstance(parent, ast.Call) and node in parent.args:
        last = called_name(parent)
        return last in ("softmax", "log_softmax", "sigmoid", "exp", "argmax") or (
            is_loss(parent) and parent.args[0] is node
        )
    return False
