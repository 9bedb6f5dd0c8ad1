"""`model.module`, where the class of the model is in sight: what a parallel wrapper holds is the model."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import torch
from apex import amp


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 2)
        SET

    def forward(self, x):
        return self.head(x)

    def reverse(self, x):
        return self.head(x)


def train(loader, several):
    def sample():
        with torch.no_grad():
            for x, y in loader:
                try:
                    out = model.reverse(x)
                except AttributeError:
                    out = model.module.reverse(x)
                print(out.argmax(1))

    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    if several:
        model = torch.nn.DataParallel(model)
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        sample()
"""


def test_a_method_called_through_the_wrapper_runs_in_a_region() -> None:
    result = rewrite(PROGRAM.replace("SET", ""))
    assert result.after is not None
    lines = [line.strip() for line in result.after.splitlines()]
    region = 'with torch.autocast("cuda", dtype=torch.float16):'
    assert lines[lines.index("out = model.module.reverse(x)") - 1] == region
    assert lines[lines.index("out = model.reverse(x)") - 1] == region
    assert not [f for f in result.findings if f.code in ("AMP502", "AMP531")]


@pytest.mark.parametrize("given", ["self.module = None", "self.module = torch.nn.Identity()"])
def test_what_the_class_itself_calls_so_is_a_field_of_it(given: str) -> None:
    result = rewrite(PROGRAM.replace("SET", given))
    assert result.after is not None
    lines = [line.strip() for line in result.after.splitlines()]
    assert lines[lines.index("out = model.module.reverse(x)") - 1] == "except AttributeError:"
