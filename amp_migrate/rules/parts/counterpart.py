"""What the rules about other parts of Apex than amp decide for one site; `carried_out` writes it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from amp_migrate.findings import Review
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.writing.calls import Argument, arguments_of
from amp_migrate.writing.edits import Edits


@dataclass(frozen=True)
class Native:
    """The site becomes `names[0]`, called with `arguments`.

    `arguments` None keeps those of the call. With two names, `choose` is the test that tells the first from the second.
    `suffix` follows the call; `whole` is written in place of all of it. `define` puts a class of that name into the
    file, and the name in the place of Apex's. `beside`: calls elsewhere that are given these arguments. `binding`: what a
    `functools.partial` of the class, kept as a value, gives it for a default. `then`: a statement below the one it stands in.
    """

    code: str
    names: tuple[str, ...]
    message: str
    review: Review = "as-is"
    arguments: tuple[Argument, ...] | None = None
    choose: ast.expr | None = None
    suffix: str = ""
    whole: str | None = None
    define: Callable[[Site, Edits], None] | None = None
    beside: tuple[tuple[Module, ast.Call, tuple[Argument, ...]], ...] = ()
    binding: str = ""
    then: str = ""


@dataclass(frozen=True)
class Manual:
    """The site stays as it is, for the reason given; `works`: it does so with today's Apex, under native AMP, called with
    `arguments`, or with its own."""

    code: str
    message: str
    works: bool = False
    arguments: tuple[Argument, ...] | None = None


Convert = Callable[[Project, Site], Native | Manual]


def named_arguments(call: ast.Call, positions: tuple[str, ...]) -> list[tuple[str | None, ast.expr | ast.keyword]]:
    """The arguments of a call by parameter name, in source order; None for what is unpacked or beyond `positions`."""
    named: list[tuple[str | None, ast.expr | ast.keyword]] = []
    at: int | None = 0
    for argument in arguments_of(call):
        if isinstance(argument, ast.keyword):
            named.append((argument.arg, argument))
        elif isinstance(argument, ast.Starred):
            named.append((None, argument))
            at = None
        else:
            known = at is not None and at < len(positions)
            named.append((positions[at] if at is not None and known else None, argument))
            at = at + 1 if at is not None else None
    return named


def value_of(argument: ast.expr | ast.keyword) -> ast.expr:
    return argument.value if isinstance(argument, ast.keyword) else argument


def is_base(site: Site) -> bool:
    """Whether a class of the program derives from the name."""
    parent = site.module.parents.get(site.node)
    return isinstance(parent, ast.ClassDef) and site.node in parent.bases


def _asked_alone(module: Module, name: str) -> bool:
    """Whether a name of a file is only what `isinstance` asks for; in this file, or nowhere in it."""
    uses = [module.parents.get(n) for n in module.loads.get(name, ())]
    return all(isinstance(c, ast.Call) and called_name(c) in ("isinstance", "issubclass") for c in uses)


def is_type_test(site: Site) -> bool:
    """Whether the name only says what something is: `isinstance(x, NAME)`, `type(x) is NAME`, an annotation."""
    node: ast.AST = site.node
    parent = site.module.parents.get(node)
    while isinstance(parent, (ast.Tuple, ast.Subscript, ast.BinOp)):
        node, parent = parent, site.module.parents.get(parent)
    if isinstance(parent, ast.Assign) and isinstance(node, ast.Tuple) and len(parent.targets) == 1:
        return isinstance(parent.targets[0], ast.Name) and _asked_alone(site.module, parent.targets[0].id)
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id in ("isinstance", "issubclass")
    if isinstance(parent, (ast.arg, ast.AnnAssign)):
        return parent.annotation is node
    return isinstance(parent, ast.Compare) or (
        isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and parent.returns is node
    )
