"""Tests that are skipped for want of Apex, and reports of what is installed: neither holds a program back."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files

ENGINE = """
    from apex import amp


    def fit(model, optimizer, loader):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            loss = (model(x) - y).pow(2).mean()
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
"""
TESTS = """
    import unittest

    import pytest

    try:
        from apex import amp
    except ImportError:
        amp = None
    import torch

    from engine import fit


    {decorator}
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_fit():
        model = torch.nn.Linear(2, 1).cuda()
        fit(model, torch.optim.SGD(model.parameters(), lr=0.1), [])
"""


@pytest.mark.parametrize(
    "decorator",
    [
        '@pytest.mark.skipif(amp is None, reason="needs apex")',
        '@pytest.mark.skipif(not amp, reason="needs apex")',
        '@unittest.skipUnless(amp is not None, "needs apex")',
        '@unittest.skipIf(amp is None, "needs apex")',
    ],
)
def test_a_test_that_needed_apex_runs_without(decorator: str) -> None:
    after = check_files({"engine.py": ENGINE, "test_engine.py": TESTS.format(decorator=decorator)})["test_engine.py"]
    assert "apex" not in after
    assert "amp" not in after
    assert '\n\n@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")\ndef test_fit():\n' in after


def test_a_decorator_that_asks_for_the_opposite_stays() -> None:
    decorator = '@pytest.mark.skipif(amp is not None, reason="without apex")'
    results = rewrite_files({"engine.py": ENGINE, "test_engine.py": TESTS.format(decorator=decorator)})
    assert decorator in (results["test_engine.py"].after or results["test_engine.py"].before)


def test_it_stays_where_the_program_stays_with_apex() -> None:
    engine = ENGINE.replace("optimizer.step()", "optimizer.step(lambda: loss)")
    decorator = '@pytest.mark.skipif(amp is None, reason="needs apex")'
    results = rewrite_files({"engine.py": engine, "test_engine.py": TESTS.format(decorator=decorator)})
    assert results["test_engine.py"].after is None


ENVIRONMENT = """
    import os
    import torch

    def versions():
        found = [("torch", torch.__version__)]
        try:
            import apex
            found.append(("apex", os.path.dirname(apex.__file__)))
        except {caught}:
            found.append(("apex", "none"))
        return found
"""


def test_a_report_of_what_is_installed_may_stay() -> None:
    result = rewrite(ENVIRONMENT.format(caught="ImportError"))
    assert result.after is None
    assert [(f.code, f.status) for f in result.findings] == [("AMP101", "note")]
    assert [f.status for f in rewrite(ENVIRONMENT.format(caught="ValueError")).findings] == ["manual"]


ONE_OF_TWO = """
import torch
from apex import amp


def train_{n}(batches):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in batches:
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
OF_BOTH = """
import pytest
from one import train_1
from two import train_2

try:
    from apex import amp
except ImportError:
    amp = None


@pytest.mark.skipif(amp is None, reason="Apex is not installed")
def test_both():
    train_1([])
    train_2([])
"""


def test_what_only_asks_for_apex_belongs_to_no_set_up_of_several() -> None:
    files = {"one.py": ONE_OF_TWO.format(n=1), "two.py": ONE_OF_TWO.format(n=2), "test_both.py": OF_BOTH}
    results = rewrite_files(files)
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    assert "skipif" not in (results["test_both.py"].after or "")


def test_what_asks_for_apex_where_nothing_in_sight_trains_with_it_is_said_to_ask() -> None:
    test = TESTS.replace("    from engine import fit\n", "").format(
        decorator='@pytest.mark.skipif(amp is None, reason="needs apex")'
    )
    result = rewrite(test)
    assert result.after is None
    (told,) = [f for f in result.findings if f.status == "manual"]
    assert told.code == "AMP116"
    assert "is only asked for" in told.message


def test_what_scales_without_a_set_up_is_not_said_to_ask() -> None:
    source = ENGINE.replace('        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n', "")
    source += '\n\n    if __name__ == "__main__":\n        fit(*build())\n'
    (told, *_) = [f for f in rewrite(source).findings if f.status == "manual"]
    assert told.code == "AMP116"
    assert "is only asked for" not in told.message
