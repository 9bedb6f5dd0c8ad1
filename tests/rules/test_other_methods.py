"""What another method of a model gives than its forward came half from O2, too: nothing says that Apex computed from it in
float32. AMP522; and nothing is cast of which only a number is read. AMP503."""

from __future__ import annotations

import pytest

from tests.rules.helpers import names_of, rewrite
from tests.rules.programs import found

PROGRAM = """
import torch
import torch.nn.functional as F
from apex import amp


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.body(x)

    def losses(self, x):
        return self.body(x).mean(), self.body(x)

    def query(self, x):
        return self.body(x), self.body(x + 1)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
for x in [torch.ones(2, 4)]:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), torch.zeros(2, 3))
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()


def evaluate(model, x):
    with torch.no_grad():
        starts, ends = model.RUN
    USED


given = evaluate(model, torch.ones(2, 4))
"""
SOFTMAX = "starts = F.softmax(starts, dim=-1)\n    return starts, F.softmax(ends, dim=-1)"
PRODUCT = "starts = F.softmax(starts, dim=-1)\n    return torch.mm(starts, OTHER.t())"


def _said(run: str, used: str, level: str = "O2") -> list[str]:
    result = rewrite(PROGRAM.replace("LEVEL", level).replace("RUN", run).replace("USED", used))
    assert result.after is not None
    return [f.message for f in found(result, "AMP522")]


def test_other_methods_gave_half_at_o2() -> None:
    assert not _said("query(x)", SOFTMAX)
    assert len(_said("query(x)", SOFTMAX, "O1")) == 2
    assert not _said("query(x)", PRODUCT.replace("OTHER", "ends"))


def test_half_beside_float32_is_cast_for_it_raises() -> None:
    (message,) = _said("query(x)", PRODUCT.replace("OTHER", "torch.ones(2, 3)"))
    assert (
        message == "mm computes from starts in float32: outside of a region it raises on float16 and float32 together"
    )


@pytest.mark.parametrize(("read", "cast"), [("item()", ""), ("size()", ""), ("sum().item()", ".float()")])
def test_what_only_a_number_is_read_of_is_not_cast(read: str, cast: str) -> None:
    program = PROGRAM.replace("LEVEL", "O2").replace("RUN", "forward(x)")
    program = program.replace(
        "        return self.body(x)\n\n    def losses",
        "        return self.body(x).mean(), self.body(x)\n\n    def losses",
    )
    program = program.replace("F.mse_loss(model(x), torch", "F.mse_loss(model(x)[1], torch")
    program = program.replace("USED", f"return starts.{read}, ends.sum().item()")
    result = rewrite(program, device="cpu")
    assert result.after is not None
    assert f"return starts{cast}.{read}, ends.float().sum().item()" in result.after
    names_of(result.after)
