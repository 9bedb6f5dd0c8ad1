"""What takes the place of one import in a guard that stays is imported with the rest of torch."""

from __future__ import annotations

import ast

import pytest

from tests.rules.helpers import rewrite

HELD = """
    import os
    import torch
    import torch.distributed as dist
    import torchvision

    import project
    from project.core import prune

    try:
        from apex.parallel import DistributedDataParallel as DDP
        from apex.contrib.sparsity import ASP
    except ImportError:
        raise ImportError("install apex")


    def build(args, model):
        return DDP(model), ASP, dist.get_rank()
    """
NATIVE = "from torch.nn.parallel import DistributedDataParallel as DDP\n"


def after(old: str = "", new: str = "") -> str:
    assert old in HELD
    text = rewrite(HELD.replace(old, new)).after or ""
    ast.parse(text)
    return text


def test_it_stands_with_the_imports_of_torch() -> None:
    assert f"import torch.distributed as dist\n{NATIVE}import torchvision\n" in after()
    assert "prune\n\ntry:\n    from apex.contrib.sparsity import ASP\nexcept" in after()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from project.core import prune", "from project.core import *"),  # which may bring a DDP
        ("from project.core import prune", "from project.core import DDP"),
        ("from project.core import prune", "for DDP in project.all:\n        pass"),
        ("    import torch\n    import torch.distributed as dist\n", ""),
        (
            "    import torch\n    import torch.distributed as dist\n",
            "    if os.name:\n        import torch\n        import torch.distributed as dist\n",
        ),
    ],
)
def test_it_stays_above_the_guard(old: str, new: str) -> None:
    assert f"{NATIVE}try:\n" in after(old, new)


def test_where_the_guard_goes_it_takes_its_place() -> None:
    text = after("        from apex.contrib.sparsity import ASP\n", "")
    assert f"from project.core import prune\n\n{NATIVE}" in text
    assert "try:" not in text
