"""What an import of Apex loaded is not read any more where no import loads it: `apex.amp.__version__` is there once some
`from apex.amp import __version__` has run, whatever names are read.

Proves it of the file itself that reads it, by the names that its imports bind. Cannot prove what another file loads first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.imports import STARRED
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP131: see `assigned.py`
OF_ITSELF = {
    f"apex.{part}" for part in ("amp", "fp16_utils", "multi_tensor_apply", "normalization", "optimizers", "parallel")
}


def check(review: Review) -> Iterable[Doubt]:
    for change in review.changes.values():
        after = change.after
        if "apex" not in after.words:
            continue
        gone = {name for name in _loaded(change.before) if name.startswith("apex.")} - {*_loaded(after), *OF_ITSELF}
        gone -= {f"{package}.{name}" for package, names in STARRED.items() for name in names}
        for node in syntax.every(after.tree, ast.Attribute) if gone else ():
            name = review.after.dotted(after.scope_of(node), node)
            if name in gone and isinstance(node.ctx, ast.Load):
                message = (
                    f"{syntax.text(node)} is there where an import has loaded it, and the one that did went: this raises an "
                    f"AttributeError. Keep the import of {name}, or take this out"
                )
                yield review.doubt(after, node, "AMP131", syntax.text(node), message, "review")


def _loaded(module: Module) -> Iterator[str]:
    """The modules that the imports of a file may load, those above each included."""
    for node in syntax.every(module.tree, ast.Import):
        for alias in node.names:
            yield from _above(alias.name)
    for taken in syntax.every(module.tree, ast.ImportFrom):
        for alias in taken.names if not taken.level and taken.module else ():
            yield from _above(f"{taken.module}.{alias.name}")


def _above(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))
