"""An item of a float32 tensor of one dimension has none: half times it stays half, and is cast where NumPy gets it. AMP504."""

from __future__ import annotations

import pytest
import torch

from tests.audit.helpers import doubts
from tests.rules.helpers import rewrite
from tests.rules.trained import check_trained

PROGRAM = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 1)
        self.scale = MADE

    def forward(self, x):
        y = self.body(x)
        return TAKEN


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(model.parameters(), 100)
    optimizer.step()


def evaluate(model):
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            found = out.cpu().numpy()
            assert found.dtype == "float32", found.dtype
            seen.append(found.sum().item())


evaluate(model)
"""


def written(made: str, taken: str) -> tuple[str, str]:
    program = PROGRAM.replace("MADE", made).replace("TAKEN", taken)
    source = "import torch\nfrom apex import amp\nfrom data import loader, criterion, clip_grad_norm_, seen\n" + program
    after = rewrite(source).after
    assert after is not None
    return source, after


@pytest.mark.parametrize(
    ("made", "taken"),
    [
        ("torch.ones(3)", "y * self.scale[0] + self.scale[1]"),
        ("torch.tensor([0.5, 0.25])", "y * self.scale[-1]"),
        ("torch.linspace(0, 1, 4)", "y + self.scale[2]"),
    ],
)
def test_an_item_promotes_nothing(made: str, taken: str) -> None:
    check_trained(PROGRAM.replace("MADE", made).replace("TAKEN", taken))
    source, after = written(made, taken)
    assert "found = out.float().cpu().numpy()" in after
    assert "AMP535" in {d.code for d in doubts(source, after.replace("out.float()", "out"))}


@pytest.mark.parametrize(
    ("made", "taken"),
    [
        ("torch.ones(1)", "y * self.scale"),
        ("torch.ones(3, 1)", "y * self.scale[0]"),
        ("torch.zeros((2, 1))", "y + self.scale[1]"),
    ],
)
def test_what_has_a_dimension_does(made: str, taken: str) -> None:
    source, after = written(made, taken)
    assert "found = out.cpu().numpy()" in after
    assert "AMP535" not in {d.code for d in doubts(source, after)}


def test_so_torch_has_it() -> None:
    half, one = torch.ones(2).half(), torch.ones(3)
    assert (half * one[0]).dtype == torch.float16
    assert (half * one[:1]).dtype == torch.float32
