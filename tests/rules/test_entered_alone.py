"""Functions of a library that may be entered without `initialize` before them: they are not handed a switch that is always on."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

WORK = """
import torch
from apex import amp
from data import loader, read, save, Net


def predict(model, batches):
    return [model(x).detach() for x in batches]


def validate(model, batches):
    return read(predict(model, batches))


def submit(model, batches):
    save(predict(model, batches))


def _after(model):
    read(predict(model, loader))


def train():
    model = Net().cuda()
    validate(model, loader)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
    validate(model, loader)
    _after(model)
"""
TESTS = """
from package import work


class TestWork:
    def test_train(self):
        work.train()

    def test_submit(self):
        work.submit(work.Net(), [])


if __name__ == "__main__":
    TestWork().test_train()
    TestWork().test_submit()
"""
MAIN = "from package import work\nwork.train()\nwork.submit(work.Net(), [])\n"


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({}, "nothing in sight calls it"),
        ({"tests/test_work.py": TESTS}, "left out, as in tests/test_work.py"),
    ],
)
def test_what_may_be_entered_alone_takes_the_switch(others: dict[str, str], said: str) -> None:
    files = {"package/__init__.py": "", "package/work.py": WORK, **others}
    results = rewrite_files(files)
    after = results["package/work.py"].after
    assert after is not None
    assert "def submit(model, batches, use_amp=False):\n    save(predict(model, batches, use_amp=use_amp))" in after
    assert "read(predict(model, loader, use_amp=True))" in after  # comes after initialize alone
    (told,) = [f.message for r in results.values() for f in r.findings if f.code == "AMP220" and "submit" in f.message]
    assert said in told


def test_what_a_program_calls_once_it_is_set_up_is_on() -> None:
    results = rewrite_files({"package/__init__.py": "", "package/work.py": WORK, "main.py": MAIN})
    after = results["package/work.py"].after
    assert after is not None
    assert "save(predict(model, batches, use_amp=True))" in after
