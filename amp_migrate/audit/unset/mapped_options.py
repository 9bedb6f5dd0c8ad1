"""Mappings of all that a command line tells: `vars(args)`, `{f: FLAGS[f].value for f in FLAGS}`. They have what that declares."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.options import declared, declared_in
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.origins import Origin
from amp_migrate.audit.values.values import Values

PARSING = frozenset(
    "parse_args parse_known_args parse_intermixed_args parse_known_intermixed_args parse_args_into_dataclasses".split()
)
FLAGS = ("absl.flags.FLAGS", "tensorflow.flags.FLAGS", "tensorflow.app.flags.FLAGS", "tensorflow.compat.v1.flags.FLAGS")
_DEEPEST = 4


def holds_option(program: Program, values: Values, origin: Origin, node: ast.AST, name: str) -> bool:
    """Whether what is made here is a mapping of all options of command lines which declare this one; of those that it is made of
    by several scripts, the one of the script that reads it."""
    files = _files(program, values, origin)
    files = [file for file in files if file is not None and node in file.parents] or files
    return bool(files) and all(file is not None and name in (declared_in(file) or declared(program)) for file in files)


def _files(program: Program, values: Values, origin: Origin, depth: int = 0) -> list[Module | None]:
    """The files that read the command lines of which a mapping holds all options; None for what is none."""
    files: list[Module | None] = []
    for held in _held(origin.node) if depth < _DEEPEST else ():
        if program.dotted(origin.module.scope_of(held), held) in FLAGS:
            files.append(origin.module)
            continue
        for made in values.origins(origin.module.scope_of(held), held):
            if (isinstance(made.node, ast.Call) and syntax.last(made.node.func) in PARSING) or _is_flags(program, made):
                files.append(made.module)
            else:
                files += _files(program, values, made, depth + 1) or [None]
    return files


def _is_flags(program: Program, origin: Origin) -> bool:
    node = origin.node
    return isinstance(node, ast.expr) and program.dotted(origin.module.scope_of(node), node) in FLAGS


def _held(made: ast.AST) -> Iterator[ast.expr]:
    """Whose entries a mapping takes over, all of them."""
    if isinstance(made, ast.DictComp) and len(made.generators) == 1 and not made.generators[0].ifs:
        yield _whole(made.generators[0].iter)
    elif isinstance(made, ast.Call | ast.Attribute) and (whole := _whole(made)) is not made:
        yield whole


def _whole(node: ast.expr) -> ast.expr:
    """What an expression goes through all entries of: `args` of `vars(args).items()`."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        entries = node.func.attr in ("items", "keys", "flag_values_dict", "copy", "_get_kwargs")
        return _whole(node.func.value) if entries else node
    if isinstance(node, ast.Call) and syntax.last(node.func) in ("vars", "dict", "list", "sorted", "dir") and node.args:
        return _whole(node.args[0])
    return node
