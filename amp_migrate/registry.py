"""Every finding code the tool knows: collected from the rules, never listed by hand.

A rule module states its codes in a module-level `CODES` tuple and imports libcst, if it needs it, inside its functions;
so collecting the codes is cheap.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType

from amp_migrate.findings import Code

BANDS = {
    "0": "Files that could not be read or written",
    "1": "Imports and set-up",
    "2": "Scaling, stepping, updating",
    "3": "Gradients: clipping, unscaling, master parameters",
    "4": "State and checkpoints",
    "5": "Casts and autocast regions",
    "6": "apex.parallel, apex.optimizers, apex.normalization",
    "7": "Older APIs",
    "8": "Frameworks, notebooks, leftovers",
    "9": "Deprecated torch.cuda.amp",
}

_PACKAGES = ("amp_migrate.rules", "amp_migrate.audit")
_MODULES = ("amp_migrate.sources.failures", "amp_migrate.leftovers")
_FORM = re.compile(r"AMP\d{3}")


class RegistryError(Exception):
    """Codes that contradict each other: a mistake in the rules, not in anybody's input."""


def all_codes() -> dict[str, Code]:
    """Every code by its name, in order. Raises RegistryError for a name used twice or out of form."""
    codes: dict[str, Code] = {}
    origin: dict[str, str] = {}
    for module in _modules():
        for code in getattr(module, "CODES", ()):
            if not _FORM.fullmatch(code.code):
                raise RegistryError(f"{module.__name__}: {code.code!r} is not AMP and three digits")
            if codes.get(code.code, code) is not code:
                raise RegistryError(f"{code.code} is stated in {origin[code.code]} and again in {module.__name__}")
            codes[code.code] = code
            origin[code.code] = module.__name__
    return dict(sorted(codes.items()))


def matching(prefix: str) -> list[Code]:
    """The codes a prefix such as AMP2, amp201 or 201 stands for."""
    wanted = normal(prefix)
    return [code for name, code in all_codes().items() if name.startswith(wanted)]


def normal(prefix: str) -> str:
    """A code prefix as it is written in the registry."""
    prefix = prefix.strip().upper()
    return f"AMP{prefix}" if prefix[:1].isdigit() else prefix


def _modules() -> Iterator[ModuleType]:
    for name in _MODULES:
        yield importlib.import_module(name)
    for name in _PACKAGES:
        package = importlib.import_module(name)
        yield package
        for info in pkgutil.walk_packages(package.__path__, f"{name}."):
            yield importlib.import_module(info.name)
