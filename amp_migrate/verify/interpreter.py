"""Python processes of the tool: what lies in the user's folders takes no part in starting them.

`python -m` looks for modules in the current folder first: a `select.py`, `types.py` or `click.py` of the project would be
imported by torch, by click, by this tool.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])


def command(call: str) -> list[str]:
    """The command line of a Python that runs `call`, for instance `package.module:main`, on the tool's own path.

    A call that ends in `(early)` is given the names of the modules that a bare Python has imported by then.
    """
    module, _, name = call.partition(":")
    name = name if name.endswith(")") else f"{name}()"
    code = f"import sys; early = frozenset(sys.modules); sys.path[:] = {own_path()!r}; import {module} as m; m.{name}"
    return [sys.executable, "-c", code]


def own_path() -> list[str]:
    """Where the tool finds its modules: the standard library and installed packages before what the user's PYTHONPATH
    names, and the current folder not at all, unless the tool lies in it."""
    given = python_path()
    nowhere = {"", os.curdir, os.getcwd(), *given}
    path = [entry for entry in sys.path if entry not in nowhere]
    return list(dict.fromkeys([*path, ROOT, *given]))


def python_path() -> list[str]:
    """The entries of PYTHONPATH, absolute as `site` makes them."""
    return [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
