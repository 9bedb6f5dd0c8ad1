"""`apex.contrib`: nothing of it is here. Asking for a part of it raises ImportError with the name of the part."""

import importlib
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")  # refused by the import hook, which names it
