"""Several `initialize` calls that one scaler stands for: it is on where any of them was reached."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

HEAD = """
import torch
from apex import amp


class Net(torch.nn.Module):
    def forward(self, x):
        return x

"""
TRAIN = """
    for x in range(3):
        loss = model(x).mean()
        if {flag}:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        optimizer.step()
"""


def test_branches_of_one_function() -> None:
    """With `optimizers` None, as its branch says, initialize gave the models alone."""
    program = (
        HEAD
        + """
def setup(model, optimizer, fp16=False, level="O1", teacher=None):
    if fp16:
        if optimizer is None:
            if teacher is None:
                model = amp.initialize(model, optimizer, opt_level=level)
            else:
                model, teacher = amp.initialize([model, teacher], optimizer, opt_level=level)
        else:
            model, optimizer = amp.initialize(model, optimizer, opt_level=level)
    print(model)
    return model, optimizer


def main(args):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = setup(model, optimizer, args.fp16, args.level)
"""
        + TRAIN.format(flag="args.fp16")
    )
    after = rewrite(program).after or ""
    assert 'enabled=fp16 and level != "O0")' in after
    setup = after[after.index("def setup") : after.index("def main")]
    assert "model =" not in setup
    assert "teacher = " not in setup.partition("\n")[2]


@pytest.mark.parametrize(
    ("second", "enabled"),
    [
        ("args.b", "args.a or args.b"),
        ("args.a", "args.a"),
        ("not args.a", ""),
    ],
)
def test_calls_one_after_the_other(second: str, enabled: str) -> None:
    call = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    program = (
        HEAD
        + f"""
def main(args):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.a:
        {call}
    if {second}:
        {call}
"""
        + TRAIN.format(flag="args.a or args.b")
    )
    after = rewrite(program).after or ""
    assert after.count("GradScaler(") == 1
    line = next(line for line in after.splitlines() if "GradScaler(" in line)
    assert (f"enabled={enabled})" in line or f"enabled=({enabled}))" in line) if enabled else "enabled" not in line


def test_what_the_constructor_sets_up_is_not_switched_off() -> None:
    """A disabled scaler for a method that may be called later does not take the place of the constructor's."""
    program = (
        HEAD
        + """
class Trainer:
    def __init__(self, model, optimizer, n, fp16):
        self.model, self.optimizer, self.fp16 = model, optimizer, fp16
        if n == 1 and fp16:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
        if n > 1:
            self.later()

    def later(self):
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def step(self, x):
        loss = self.model(x).mean()
        if self.fp16:
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        self.optimizer.step()
"""
    )
    after = rewrite(program).after or ""
    assert "enabled=n == 1 and fp16)" in after
    assert "enabled=False" not in after
    assert after.count("GradScaler(") == 2
