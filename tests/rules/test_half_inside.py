"""What is computed of a model's outputs in the region itself, and not cast there: O2 gave those in float32."""

from __future__ import annotations

import pytest
import torch

from tests.rules.helpers import rewrite
from tests.rules.programs import found

PROGRAM = """
    import numpy
    import torch
    from apex import amp
    from config import level


    def predict(model, loader):
        found = []
        model.eval()
        with torch.no_grad():
            for x in loader:
                scores = {scores}
                found.append(scores.cpu())
        numpy.save("scores.npy", torch.cat(found).numpy())


    def main(loader):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level={level})
        for x in loader:
            optimizer.zero_grad()
            with amp.scale_loss(model(x).sum(), optimizer) as scaled:
                scaled.backward()
            optimizer.step()
        predict(model, loader)
    """
BOTH = "(torch.sigmoid(model(x)) + torch.sigmoid(model(-x))) / 2"


@pytest.mark.parametrize(
    ("scores", "cast"),
    [
        (BOTH, "(torch.sigmoid(model(x).float()) + torch.sigmoid(model(-x).float())) / 2"),
        ("model(x).sigmoid() + model(-x).sigmoid()", "model(x).float().sigmoid() + model(-x).float().sigmoid()"),
    ],
)
def test_what_o2_computed_in_float32_is_cast(scores: str, cast: str) -> None:
    result = rewrite(PROGRAM.format(scores=scores, level='"O2"'))
    assert result.after is not None
    assert cast in result.after
    assert not found(result, "AMP535")
    assert {f.message.partition("as it did ")[2] for f in found(result, "AMP522")} == {"under O2 and O3"}
    assert rewrite(result.after).after is None


@pytest.mark.parametrize(("level", "told"), [('"O1"', []), ("level", ["look"])])
def test_what_o1_computed_in_half_is_left(level: str, told: list[str]) -> None:
    result = rewrite(PROGRAM.format(scores=BOTH, level=level))
    assert result.after is not None
    assert BOTH in result.after
    assert [f.review for f in found(result, "AMP535")] == told


def test_it_is_true_that_half_scores_tie() -> None:
    outputs = torch.randn(2000)
    half, single = (torch.sigmoid(o).unique().numel() for o in (outputs.half(), outputs.half().float()))
    assert half < single
