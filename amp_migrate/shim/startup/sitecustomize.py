"""Imported by `site` at interpreter start-up when this folder is on PYTHONPATH (docs.python.org/3/library/site.html).

Prepares the process as the environment asks, then steps aside: it leaves `sys.path` as it would have been and runs the
`sitecustomize` it hid, if there is one.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


def activate() -> None:
    """Call `amp_migrate.shim.install` with what AMP_MIGRATE_APEX and AMP_MIGRATE_DEVICE say."""
    sys.path.append(ROOT)
    try:
        from amp_migrate.shim import APEX_VARIABLE, DEVICE_VARIABLE, install
    finally:
        sys.path.pop()
    install(os.environ.get(APEX_VARIABLE, "auto"), os.environ.get(DEVICE_VARIABLE, "auto"))  # type: ignore[arg-type]


def continue_with_the_hidden_one() -> None:
    """Import the `sitecustomize` that comes next on `sys.path`, under its own name."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    if PathFinder.find_spec("sitecustomize") is not None:
        del sys.modules["sitecustomize"]
        __import__("sitecustomize")


if __name__ == "sitecustomize":
    # Another, older interpreter may be started with this environment: it is left alone.
    if sys.version_info >= (3, 10):  # noqa: UP036
        activate()
    continue_with_the_hidden_one()
