"""A program that was migrated is told to need Apex still where a file that it loads was left with it.

Proved: what is run whenever files are loaded (`ways/on_loading.py`), none of it under a test or a `try` that goes on, leads from
a changed file without Apex to one that asks for a part of Apex which is gone (`amp`, `fp16_utils`, `optimizers.FP16_Optimizer`),
by an import of that, or of Apex, of which it is read. Cannot prove anything of imports in functions, nor of files that are loaded by
a name which is put together.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.near import runs_itself
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review
from amp_migrate.audit.ways.on_loading import loads, surely_run
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP133: see `without_apex.py`
GONE = ("apex.amp", "apex.fp16_utils", "apex.optimizers.FP16_Optimizer", "apex.optimizers.fp16_optimizer")
Needing = tuple[Module, ast.stmt, str]  # the file that asks for Apex, where, and for which part


def check(review: Review) -> Iterable[Doubt]:
    loaders: dict[Needing, list[tuple[Module, ast.stmt]]] = {}
    for change in review.changes.values():
        if "apex" in change.before.words and _asks(change.after) is None:
            for stmt, home in loads(review.after, change.after):
                if (needing := _needs(review.after, home)) is not None:
                    loaders.setdefault(needing, []).append((change.after, stmt))
                    break
    for (home, stmt, part), found in loaders.items():
        (module, place), *others = sorted(found, key=lambda f: (not runs_itself(f[0]), f[0].path))
        also = f", as in {', '.join(sorted({m.path for m, _ in others})[:3])}" if others else ""
        message = (
            f"what is loaded here{also} comes to {home.path}:{stmt.lineno}, which asks for Apex's {part} still: without it this ends "
            "there, until what is left in that file is done, or the import moved to where it is used"
        )
        yield review.doubt(module, place, "AMP133", "import", message, "review")


@kept
def _asks(module: Module) -> Needing | None:
    """The statement of a file itself that imports a part of Apex which is gone."""
    for stmt in surely_run(module) if "apex" in module.words else ():
        names = [a.name for a in stmt.names] if isinstance(stmt, ast.Import) else []
        if isinstance(stmt, ast.ImportFrom) and not stmt.level:
            names = [f"{stmt.module}.{a.name}" for a in stmt.names]
        names += _read(module) if "apex" in names else []
        gone = next((g for n in names for g in GONE if f"{n}.".startswith(f"{g}.")), None)
        if gone is not None:
            return module, stmt, gone.rpartition(".")[2]
    return None


def _read(module: Module) -> list[str]:
    """What a file reads of Apex that it imports whole: `apex.amp.initialize`."""
    texts = (syntax.text(n) for n in syntax.every(module.tree, ast.Attribute))
    return sorted({t for t in texts if t.startswith("apex.")})


@kept
def _needs(program: Program, start: Module) -> Needing | None:
    """What ends a process without Apex when a file is loaded; files may import each other."""
    found = [start]
    for module in found:
        if (own := _asks(module)) is not None:
            return own
        found += [home for home in dict.fromkeys(h for _, h in loads(program, module)) if home not in found]
    return None
