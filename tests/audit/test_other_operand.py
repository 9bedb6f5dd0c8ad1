"""A loss outside of a region computes in the wider dtype of what it is given: beside data in float32 it is float32."""

from __future__ import annotations

import pytest
import torch

from tests.audit.helpers import doubts, program

TRAIN = """
    import torch
    from torch import nn
    import torch.nn.functional as F
    {imports}

    class Trainer:
        def __init__(self, net):
            self.criterion = nn.L1Loss()
            self.opt = torch.optim.SGD(net.parameters(), 0.1)
            {set_up}
            self.net = net

        def set_input(self, batch):
            swapped = self.opt.direction == "BtoA"
            self.real = batch["y" if swapped else "x"].to(self.device)

        def train(self, batch):
            self.set_input(batch)
            {region}
                out = self.net(self.real)
                other = self.net(batch["y"])
            loss = {loss}
            {step}

    def main():
        net = nn.Sequential(nn.Linear(4, 4)).cuda()
        trainer = Trainer(net)
        for batch in load():
            trainer.train(batch)

    main()
"""


def found(loss: str) -> list[str]:
    """What is said of a loss that is computed below the region."""
    before = {
        "imports": "from apex import amp",
        "set_up": 'net, self.opt = amp.initialize(net, self.opt, opt_level="O1")',
        "region": "if True:",
        "step": "with amp.scale_loss(loss, self.opt) as scaled: scaled.backward()\n            self.opt.step()",
    }
    after = {
        "imports": "",
        "set_up": 'self.scaler = torch.amp.GradScaler("cuda")',
        "region": 'with torch.autocast("cuda", dtype=torch.float16):',
        "step": "self.scaler.scale(loss).backward()\n            self.scaler.step(self.opt)\n            self.scaler.update()",
    }
    told = doubts(program(TRAIN.format(loss=loss, **before)), program(TRAIN.format(loss=loss, **after)))
    return [d.message.partition(":")[0] for d in told if d.code == "AMP535" and "is computed in it" in d.message]


@pytest.mark.parametrize(
    "loss",
    [
        "self.criterion(out, self.real)",
        "F.l1_loss(out, self.real)",
        "F.mse_loss(self.real, out)",
    ],
    ids=["a layer", "a function", "the other way round"],
)
def test_beside_data_it_is_float32(loss: str) -> None:
    assert found(loss) == []


@pytest.mark.parametrize(
    "loss",
    ["F.l1_loss(out, other)", "F.l1_loss(out, other.detach() * 2)", "F.mse_loss(other, out)"],
    ids=["two outputs", "computed of one", "the other way round"],
)
def test_of_two_outputs_it_is_half(loss: str) -> None:
    assert found(loss) == [loss]


def test_logits_are_told_of_beside_data_too_as_their_gradient_is_half() -> None:
    output, target = torch.zeros(4, dtype=torch.float16, requires_grad=True), torch.ones(4)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(output, target)
    (loss * 2.0**17).backward()
    assert output.grad is not None
    assert output.grad.isinf().all()  # 16384 in float32
    text = "F.binary_cross_entropy_with_logits(out, batch['x'].cuda())"
    assert found(text) == [text]
