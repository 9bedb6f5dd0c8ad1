"""What an absolute import finds beside the file: Python's own rule, over folders that share file names."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.reading.program.sibling_imports import SiblingImports

TREE = {
    "cifar/train.py": "cifar.train",
    "cifar/utils.py": "cifar.utils",
    "mnist/train.py": "mnist.train",
    "mnist/utils/__init__.py": "mnist.utils",
    "mnist/utils/data.py": "mnist.utils.data",
    "utils.py": "utils",
    "pkg/__init__.py": "pkg",
    "pkg/run.py": "pkg.run",
    "pkg/utils.py": "pkg.utils",
    "pkg/logging.py": "pkg.logging",
    "pkg/losses.py": "pkg.losses",
    "old/torch.py": "old.torch",
    "old/apex/amp/frontend.py": "old.apex.amp.frontend",
    "old/train.py": "old.train",
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("cifar/train.py", {"train", "utils"}),
        ("mnist/train.py", {"train", "utils"}),
        ("mnist/utils/__init__.py", {"data"}),  # of a package: not the project's own top level
        ("utils.py", set()),
        ("pkg/run.py", {"run", "losses"}),  # utils is the project's, logging is Python's
        ("old/train.py", {"train"}),
    ],
)
def test_names_found_in_the_folder(path: str, expected: set[str]) -> None:
    siblings = SiblingImports({Path(p): name for p, name in TREE.items()})
    assert siblings.of(Path(path)) == expected
