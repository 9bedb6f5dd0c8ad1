"""Import hooks: `import apex` finds the shim or the real Apex, and torch is prepared as soon as it is imported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
# The compiled extensions of Apex that programs import by name, besides the package itself.
EXTENSIONS = {
    "amp_C": HERE / "apex" / "multi_tensor_apply" / "kernels.py",
    "apex_C": HERE / "apex" / "parallel" / "flat.py",
}
# What Apex has and the shim has not: all of it needs compiled kernels, or was given up by Apex itself.
MISSING = ("apex.RNN", "apex.contrib", "apex.fused_dense", "apex.mlp", "apex.transformer")


class ApexFinder(MetaPathFinder):
    """Answers `import apex`, `import amp_C` and `import apex_C`; decides when the program first asks."""

    def __init__(self, choice: str) -> None:
        self.choice = choice
        self.using_shim = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith("apex."):
            if self.using_shim and fullname != "apex.contrib" and fullname.startswith(MISSING):
                raise ModuleNotFoundError(f"{fullname} is not part of amp-migrate's stand-in for Apex", name=fullname)
            return None
        if fullname != "apex" and fullname not in EXTENSIONS:
            return None
        if self.choice != "shim" and complete_apex_on_path():
            return None
        if self.choice == "installed":
            if fullname in EXTENSIONS:
                return None
            raise ModuleNotFoundError(
                "no installed Apex has amp.initialize (removed in its later releases)", name="apex"
            )
        if fullname in EXTENSIONS:
            return importlib.util.spec_from_file_location(fullname, EXTENSIONS[fullname])
        self.using_shim = True
        package = HERE / "apex"
        return importlib.util.spec_from_file_location(
            "apex", package / "__init__.py", submodule_search_locations=[str(package)]
        )


class TorchFinder(MetaPathFinder):
    """Runs a callback right after torch has been imported, before the importing program continues."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenCall(spec.loader, self.callback)
        return spec


class _ThenCall(Loader):
    def __init__(self, loader: Loader, callback: Callable[[], None]) -> None:
        self.loader = loader
        self.callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Resource readers and inspect ask the module for its loader: they get the genuine one.
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.callback()


def provide_apex(choice: str) -> None:
    """Install the finder for `apex`, replacing an earlier one; none where imports are left untouched."""
    sys.meta_path[:] = [found for found in sys.meta_path if not isinstance(found, ApexFinder)]
    if choice == "untouched":
        return
    sys.meta_path.insert(0, ApexFinder(choice))


def after_torch(callback: Callable[[], None]) -> None:
    """Call back now if torch is imported, otherwise right after it is."""
    if "torch" in sys.modules:
        callback()
        return
    sys.meta_path[:] = [found for found in sys.meta_path if not isinstance(found, TorchFinder)]
    sys.meta_path.insert(0, TorchFinder(callback))


def complete_apex_on_path() -> bool:
    """Whether `sys.path` holds an Apex whose `amp` defines `initialize`; nothing is imported to find out."""
    spec = PathFinder.find_spec("apex")
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return False
    amp = PathFinder.find_spec("apex.amp", list(spec.submodule_search_locations))
    if amp is None or not amp.submodule_search_locations:
        return False
    return any(
        b"def initialize(" in source.read_bytes()
        for location in amp.submodule_search_locations
        for source in Path(location).glob("*.py")
    )
