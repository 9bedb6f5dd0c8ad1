"""Where a program believes it is: its folder, arguments, environment and module path, all of them in the run's own copy.

Whatever would lead back into the user's folder (PYTHONPATH, variables, packages installed from it with `pip install -e`)
leads into the copy instead: else the migrated program would import the modules of the original.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from importlib.machinery import all_suffixes
from pathlib import Path

from amp_migrate.verify.interpreter import python_path
from amp_migrate.verify.recording.spec import RunSpec
from amp_migrate.verify.recording.strays import MARK

# A socket's path has 107 bytes (unix(7)), and multiprocessing puts 32 behind the folder for temporary files.
LONGEST_TEMPORARY = 75


def enter(spec: RunSpec) -> None:
    """Prepare this process, in which `spec` is to run."""
    given = [spec.moved(entry) for entry in python_path()]
    os.environ.update({name: moved for name, value in os.environ.items() if (moved := spec.moved(value)) != value})
    os.environ.update(spec.environment())
    os.environ[MARK] = str(os.getpid())
    temporary = spec.home.absolute() / "tmp"
    if len(str(temporary)) <= LONGEST_TEMPORARY:
        temporary.mkdir(exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    tempfile.gettempdir()  # looked for now: Python tries a folder by writing to it, which is no write of the program's
    os.chdir(spec.cwd)
    os.environ["PWD"] = spec.cwd
    folder = str(Path(spec.script).parent)
    sys.argv = [spec.script, *spec.argv]
    sys.path[:] = [folder, *given, *(spec.moved(entry) for entry in sys.path if spec.moved(entry) not in given)]
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__") and isinstance(mapping := getattr(module, "MAPPING", None), dict):
            mapping.update({package: spec.moved(place) for package, place in mapping.items()})


def forget_shadowed(spec: RunSpec, early: frozenset[str]) -> None:
    """Let the program import modules of its own that are called like ones this process has imported for torch: a
    `profile.py`, a `select.py`. Those of `early` a bare Python has too, and they win there as well."""
    folders = [str(Path(spec.script).parent), *(spec.moved(entry) for entry in python_path())]
    own = {name for folder in folders for name in _modules(Path(folder))} - early - {"amp_migrate"}
    for name in [n for n in sys.modules if n.partition(".")[0] in own]:
        top = sys.modules.get(name.partition(".")[0])
        if not str(getattr(top, "__file__", None) or "").startswith(tuple(f"{folder}{os.sep}" for folder in folders)):
            del sys.modules[name]


def _modules(folder: Path) -> Iterator[str]:
    suffixes = tuple(all_suffixes())
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith(suffixes) and entry.is_file():
            yield entry.name.partition(".")[0]
        elif os.path.isfile(os.path.join(entry.path, "__init__.py")):
            yield entry.name
