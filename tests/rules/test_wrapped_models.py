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
def test_what_the_class_itself_calls_so_was_cast_as_well(given: str) -> None:
    """It is a field of the network and no wrapper of it: O1 cast whatever ran there."""
    result = rewrite(PROGRAM.replace("SET", given))
    assert result.after is not None
    lines = [line.strip() for line in result.after.splitlines()]
    assert lines[lines.index("out = model.module.reverse(x)") - 1].startswith("with torch.autocast(")


WRAPPED = """
import torch
from apex import amp


class Engine:
    def data_parallel(self, model, ids=None):
        return torch.nn.DataParallel(model, device_ids=ids)


def train(engine, model, optimizer, loader, criterion):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    WRAP
    for x, y in loader:
        loss = criterion(OUTPUT, y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("wrap", "output"),
    [
        ("model = engine.data_parallel(model)", "model(x)"),
        ("model = engine.data_parallel(model, [0, 1])", "model(x)"),
        ("model = engine.data_parallel(model, ids=[0, 1])", "model(x)"),
        ("engine.data_parallel(model)", "model(x)"),
        ("pass", "torch.nn.parallel.data_parallel(model, x, [0, 1])"),
        ("pass", "torch.utils.checkpoint.checkpoint(model, x)"),
    ],
)
def test_wrapping_a_model_is_no_forward(wrap: str, output: str) -> None:
    after = rewrite(WRAPPED.replace("WRAP", wrap).replace("OUTPUT", output)).after
    assert after is not None
    assert f"\n    {wrap}\n" in after
    assert f"torch.float16):\n            loss = criterion({output}, y)" in after


FROZEN = """
import sys

import torch
from apex import amp


class Config:
    def __init__(self, freeze=False):
        FIELD


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.body(x)

    def freeze(self):
        METHOD


def get_model(config):
    if config == "net":
        model = Net()
    else:
        from elsewhere.models import Ordered

        model = Ordered(config)
    return model


class Learner:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.use_fp16 = False

    @classmethod
    def set_up(cls, config):
        model = get_model(sys.argv[1])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if config.freeze:
            model.freeze()
        return cls(model, optimizer)

    def fp16(self):
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
        self.use_fp16 = True

    def fit(self):
        self.optimizer.zero_grad()
        loss = self.model(torch.ones(2, 3)).sum()
        if self.use_fp16:
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        self.optimizer.step()


def main():
    for i in range(2):
        learner = Learner.set_up(Config(freeze=len(sys.argv) > 2))
        if len(sys.argv) > 3:
            learner.fp16()
        learner.fit()


main()
"""
FREEZES = "for p in self.body.parameters():\n            p.requires_grad = False"


@pytest.mark.parametrize(
    ("field", "method", "told"),
    [("self.freeze = freeze", FREEZES, 0), ("self.freeze = freeze", "self.body(torch.ones(2, 3))", 1)],
)
def test_a_method_of_networks_that_has_the_name_of_a_setting_runs_what_it_runs(
    field: str, method: str, told: int
) -> None:
    result = rewrite(FROZEN.replace("FIELD", field).replace("METHOD", method))
    assert len([f for f in result.findings if f.code == "AMP531" and "model.freeze" in f.message]) == told
