"""Extensions that Apex compiles, loaded by their names in quotes."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files

NORM = """
    import importlib
    import torch
    from apex.normalization import FusedLayerNorm

    global fused_layer_norm_cuda
    fused_layer_norm_cuda = None

    class Norm(torch.nn.Module):
        def __init__(self, size):
            super().__init__()
            global fused_layer_norm_cuda
            fused_layer_norm_cuda = importlib.import_module("fused_layer_norm_cuda")
            self.norm = FusedLayerNorm(size)
    """


def told(result: object) -> list[str]:
    findings = result.findings  # type: ignore[attr-defined]
    return [f.message for f in findings if f.code == "AMP102" and f.status == "manual"]


def test_an_extension_that_nothing_uses_is_to_be_deleted() -> None:
    result = rewrite(NORM)
    assert result.after is not None
    assert "self.norm = torch.nn.LayerNorm(size)" in result.after
    (message,) = told(result)
    assert message.endswith(
        "without Apex this import fails, and nothing in this file uses fused_layer_norm_cuda: delete the statement"
    )


def test_one_that_is_used_is_told_too() -> None:
    (message,) = told(rewrite(NORM + "\n    print(fused_layer_norm_cuda)\n"))
    assert message.endswith("without Apex this import fails")


@pytest.mark.parametrize(
    "text",
    [
        NORM.replace('"fused_layer_norm_cuda"', '"kernels_of_my_own"'),
        NORM.replace("            fused_layer_norm_cuda = imp", "            try:\n                x = imp").replace(
            "            self.norm", "            except ImportError:\n                x = None\n            self.norm"
        ),
    ],
    ids=["another", "guarded"],
)
def test_others_are_not(text: str) -> None:
    assert not told(rewrite(text))


def test_one_that_the_project_builds_itself_is_not() -> None:
    build = 'from torch.utils.cpp_extension import load\n\nload(name="fused_layer_norm_cuda", sources=["norm.cpp"])\n'
    assert not told(rewrite_files({"norm.py": NORM, "build.py": build})["norm.py"])
