"""What a file is for: the product itself, a test, an example, a notebook, or somebody else's code that lies in the tree.

Told by where a file lies and how it is called, as people and their tools tell it.
https://docs.pytest.org/en/stable/explanation/goodpractices.html#conventions-for-python-test-discovery
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from amp_migrate.reading.program.module import Module

Role = Literal["product", "test", "example", "notebook", "vendored"]

_FOLDERS: Mapping[str, Role] = {
    **dict.fromkeys(("test", "tests", "testing", "unittests"), "test"),
    **dict.fromkeys(("example", "examples", "demo", "demos", "tutorial", "tutorials", "docs"), "example"),
    **dict.fromkeys(("third_party", "thirdparty", "vendor", "vendored", "external", "submodules"), "vendored"),
}


def role(module: Module) -> Role:
    """The role of a file; product where nothing says otherwise."""
    if module.path.suffix == ".ipynb":
        return "notebook"
    *folders, stem = module.name.split(".")
    if stem == "conftest" or stem.startswith("test_") or stem.endswith("_test"):
        return "test"
    return next((_FOLDERS[f] for f in folders if f in _FOLDERS), "product")
