"""A class of the program's may have a `half` that makes nothing float16: a call of it stays, and no word is said of weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import rewrite, run_alone
from tests.rules.programs import found

PROGRAM = """
import torch
IMPORT


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def half(self):
        OWN

    def forward(self, x):
        return self.inner(x)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
MADE
for x in torch.ones(3, 2, 4):
    loss = net(x).float().sum() + net.half()
    optimizer.zero_grad()
    BACKWARD
    optimizer.step()
print(net.half().dtype)
"""
AMP = {
    "IMPORT": "from apex import amp",
    "MADE": 'net, optimizer = amp.initialize(net, optimizer, opt_level="O1")',
    "BACKWARD": "with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()",
}
OLDER = {
    "IMPORT": "from apex.fp16_utils import FP16_Optimizer",
    "MADE": "net.to(torch.float16)\noptimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)",
    "BACKWARD": "optimizer.backward(loss)",
}


def program(words: dict[str, str], own: str) -> str:
    text = PROGRAM
    for word, written in {**words, "OWN": own}.items():
        text = text.replace(word, written)
    return text


@pytest.mark.parametrize("words", [AMP, OLDER], ids=["initialize", "FP16_Optimizer"])
def test_a_method_that_makes_nothing_half_stays_as_it_is(tmp_path: Path, words: dict[str, str]) -> None:
    result = rewrite(program(words, "return self.inner.weight.sum() / 2"), device="cpu")
    assert (result.after or "").count("net.half()") == 2
    assert not found(result, "AMP118")
    assert run_alone(tmp_path, result.after or "") == ("torch.float32", "")


@pytest.mark.parametrize(
    "own", ["return super().half()", "return self.narrow()\n\n    def narrow(self):\n        return self.inner.half()"]
)
def test_one_that_does_is_told_of(own: str) -> None:
    result = rewrite(program(AMP, own), device="cpu")
    assert found(result, "AMP118")
