"""A program that was migrated is told to need Apex still where a file that it loads was left with it.

Proved: the import statements of whole files, none of them under a test or a `try`, lead from a changed file without Apex to one
that asks for a part of Apex which is gone (`amp`, `fp16_utils`) whenever it is loaded. Cannot prove anything of imports in
functions, nor of files that are loaded by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.kept import kept_meanwhile
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.near import runs_itself
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP133: see `without_apex.py`
GONE = ("apex.amp", "apex.fp16_utils")
Needing = tuple[Module, ast.stmt]  # the file that asks for Apex, and where


def check(review: Review) -> Iterable[Doubt]:
    loaders: dict[Needing, list[tuple[Module, ast.stmt]]] = {}
    for change in review.changes.values():
        if "apex" in change.before.words and _asks(change.after) is None:
            for stmt, home in _loads(review.after, change.after):
                if (needing := _needs(review.after, home)) is not None:
                    loaders.setdefault(needing, []).append((change.after, stmt))
                    break
    for (home, stmt), found in loaders.items():
        (module, place), *others = sorted(found, key=lambda f: (not runs_itself(f[0]), f[0].path))
        also = f", as in {', '.join(sorted({m.path for m, _ in others})[:3])}" if others else ""
        message = (
            f"what is loaded here{also} comes to {home.path}:{stmt.lineno}, which asks for Apex's amp still: without it this ends "
            "there, until what is left in that file is done, or the import moved to where it is used"
        )
        yield review.doubt(module, place, "AMP133", "import", message, "review")


def _asks(module: Module) -> ast.stmt | None:
    """The statement of a file itself that imports a part of Apex which is gone."""
    for stmt in module.tree.body if "apex" in module.words else ():
        if isinstance(stmt, ast.Import) and any(a.name.startswith(GONE) for a in stmt.names):
            return stmt
        if isinstance(stmt, ast.ImportFrom) and not stmt.level:
            names = (f"{stmt.module}.{a.name}" for a in stmt.names)
            if any(n.startswith(GONE) for n in names):
                return stmt
    return None


@kept_meanwhile(lambda: None)  # files may import each other
def _needs(program: Program, module: Module) -> Needing | None:
    """What ends a process without Apex when a file is loaded."""
    if (own := _asks(module)) is not None:
        return module, own
    further = (_needs(program, home) for _, home in _loads(program, module))
    return next((f for f in further if f is not None), None)


def _loads(program: Program, module: Module) -> Iterator[tuple[ast.stmt, Module]]:
    """The files of the program that the statements of a file itself import."""
    for stmt in module.tree.body:
        names: list[str] = []
        if isinstance(stmt, ast.Import):
            names = [a.name for a in stmt.names]
        elif isinstance(stmt, ast.ImportFrom):
            base = program._base(module, stmt)
            names = [base, *(f"{base}.{a.name}" for a in stmt.names)]
        for name in names:
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                home = program.module_named(".".join(parts[:end]), module)
                if home is not None and home is not module:
                    yield stmt, home
