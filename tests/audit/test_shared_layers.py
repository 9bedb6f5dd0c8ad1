"""A layer normalization of Apex's own that became torch's in a file which a program loads that stays with Apex."""

from __future__ import annotations

import textwrap

import pytest

from tests.audit.helpers import doubts_of

LAYERS = """
    {imported}

    def make(width):
        return {name}(width)
"""
FUSED = textwrap.dedent(LAYERS).format(imported="from apex.normalization import FusedLayerNorm", name="FusedLayerNorm")
NATIVE = textwrap.dedent(LAYERS).format(imported="from torch.nn import LayerNorm", name="LayerNorm")
TRAIN = """
    import torch
    from apex import amp
    {loads}

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)).cuda()
    model, optimizer = amp.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), opt_level="{level}")
"""


def said(loads: str = "from layers import make", level: str = "O1", after: str = "") -> list[str]:
    train = textwrap.dedent(TRAIN).format(loads=loads, level=level)
    middle = "from layers import make\n"
    files = {"layers.py": FUSED, "middle.py": middle, "train.py": train}
    found = doubts_of(files, {"layers.py": NATIVE, **({"train.py": after} if after else {})})
    return [f"{d.path}:{d.line} {d.message}" for d in found if d.code == "AMP634"]


@pytest.mark.parametrize("loads", ["from layers import make", "import layers", "from middle import make"])
def test_the_layer_is_told_with_the_program_that_stays_with_apex(loads: str) -> None:
    (message,) = said(loads)
    assert message.startswith("layers.py:")
    assert "train.py:6 stays with Apex" in message


@pytest.mark.parametrize("level", ["O0", "O2"])
def test_a_level_that_patches_nothing_says_nothing(level: str) -> None:
    assert not said(level=level)


def test_neither_does_a_program_that_does_not_load_it_or_is_migrated() -> None:
    assert not said("")
    assert not said(after="import torch\nfrom layers import make\n\nmodel = make(4).cuda()\n")
