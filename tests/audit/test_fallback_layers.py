"""A layer of the program's own for want of Apex, called as torch's is, is another than torch's. AMP133."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
import torch
from torch import nn

try:
    import apex
    LayerNorm = apex.normalization.FusedLayerNorm
except ImportError:
    FALLBACK

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = LayerNorm(4)
"""
OWN = """class LayerNorm(nn.LayerNorm):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.eps = EPS"""


@pytest.mark.parametrize(
    ("fallback", "told"),
    [
        (OWN.replace("EPS", "1e-9"), ["look"]),
        (OWN.replace("EPS", "1e-5"), ["look"]),
        ("LayerNorm = nn.LayerNorm", []),
        ("from torch.nn import LayerNorm", []),
    ],
)
def test_what_a_machine_without_apex_had_is_told(fallback: str, told: list[str]) -> None:
    before = BEFORE.replace("FALLBACK", fallback)
    start, end = before.index("try:"), before.index("class Net")
    after = before[:start] + "LayerNorm = nn.LayerNorm\n\n" + before[end:]
    found = [d for d in doubts(before, after) if d.code == "AMP133"]
    assert [d.verdict for d in found] == told
    assert ["not 1e-09" in d.message for d in found] == ["1e-9" in fallback] * len(told)
