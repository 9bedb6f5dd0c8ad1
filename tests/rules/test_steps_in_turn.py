"""Several optimizers of one turn, each stepped after a backward of its own: whose gradients a clip reads is asked of what it
is given, not of where it stands. What is emitted is run."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found
from tests.rules.trained import PRELUDE, check_trained

TURNS = """
def turn(x, y, net, one, other, two, i):
    one.zero_grad()
    two.zero_grad()
    if i != 1:
        loss = criterion(net(x), y)
        with amp.scale_loss(loss, one) as scaled:
            scaled.backward()
        CLIPPED
        one.step()
    if i != 2:
        loss = criterion(other(x), y)
        with amp.scale_loss(loss, two) as scaled:
            scaled.backward()
        two.step()
    seen.append(loss.item())


other = build()
first = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.SGD(other.parameters(), lr=0.1)
model, first = amp.initialize(model, first, opt_level="O1")
other, second = amp.initialize(other, second, opt_level="O1")
for i, (x, y) in enumerate(loader):
    turn(x, y, model, first, other, second, i)
"""
CLIPS = {
    "of its network": "clip_grad_norm_(net.parameters(), 0.01)",
    "of its optimizer": "clip_grad_norm_(amp.master_params(one), 0.01)",
    "kept": "norm = clip_grad_norm_(parameters=net.parameters(), max_norm=0.01)\n        seen.append(float(norm))",
}


@pytest.mark.parametrize("clip", CLIPS.values(), ids=list(CLIPS))
def test_a_clip_stays_with_the_step_whose_gradients_it_reads(clip: str) -> None:
    after = check_trained(TURNS.replace("CLIPPED", clip))
    turn = after[after.index("def turn") :]
    assert turn.count("unscale_(") == 1
    assert turn.index("scaler.unscale_(one)") < turn.index("clip_grad_norm_") < turn.index("scaler.step(one)")
    assert turn.count("scaler.update()") == 2


def test_each_backward_has_an_update_of_its_own() -> None:
    result = rewrite(PRELUDE + TURNS.replace("CLIPPED", CLIPS["of its network"]))
    assert not found(result, "AMP302")
    assert not found(result, "AMP207")


def test_without_an_update_between_them_they_share_one() -> None:
    source = PRELUDE + TURNS.replace("        CLIPPED\n        one.step()\n", "").replace(
        "        two.step()\n", "        two.step()\n    one.step()\n"
    )
    assert found(rewrite(source.replace("if i != 1", "if True").replace("if i != 2", "if True")), "AMP207")
