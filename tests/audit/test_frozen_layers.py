"""Layers of one list that run without gradients, and the rest of it that runs with them: AMP536."""

from __future__ import annotations

import pytest

from tests.audit.test_weight_cache import migrated

LAYERS = """
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(6)])
            self.fixed = 2

        def forward(self, x):
            with torch.no_grad():
                for {first}
            for {second}
            return x.sum()

    model = Deep().cuda()
    opt = torch.optim.SGD(model.parameters(), 0.1)
"""
BY_NUMBER = "i in range({}):\n                    x = self.layers[i](x)"
OF_A_PART = "layer in {}:\n                    x = layer(x)"


@pytest.mark.parametrize(
    ("first", "second", "verdicts"),
    [
        (BY_NUMBER.format("self.fixed"), BY_NUMBER.format("self.fixed, 6"), []),
        (BY_NUMBER.format("6"), BY_NUMBER.format("6"), ["review"]),
        (OF_A_PART.format("self.layers[: self.fixed]"), OF_A_PART.format("self.layers[self.fixed :]"), []),
        (OF_A_PART.format("self.layers"), OF_A_PART.format("self.layers"), ["review"]),
    ],
)
def test_layers_that_are_chosen_apart_share_no_copies(first: str, second: str, verdicts: list[str]) -> None:
    assert migrated(LAYERS.format(first=first, second=second.replace("\n    ", "\n")), "loss = model(x)") == verdicts
