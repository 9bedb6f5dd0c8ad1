"""A flag of a function that nothing makes true any more: what asks for it alone comes out one way."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts
from tests.rules.helpers import rewrite

SCHEDULE = """
from torch.optim import Optimizer


class Schedule:
    def __init__(self, optimizer):
        if not isinstance(optimizer, Optimizer):
            known = False
            try:
                from apex.fp16_utils import FP16_Optimizer
                if isinstance(optimizer, FP16_Optimizer):
                    known = True
            except ImportError:
                pass
            if not known:
                raise TypeError(f"{optimizer} is no optimizer")
        MORE
        self.optimizer = optimizer
"""
FOLDED = """
from torch.optim import Optimizer


class Schedule:
    def __init__(self, optimizer):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{optimizer} is no optimizer")
        MORE
        self.optimizer = optimizer
"""


def test_what_only_refuses_where_the_flag_is_false_refuses() -> None:
    assert rewrite(SCHEDULE.replace("MORE", "pass")).after == FOLDED.replace("MORE", "pass").lstrip()


def test_what_asks_whether_it_is_true_goes() -> None:
    more = "if known:\n            print(optimizer)\n        else:\n            print(self)"
    assert rewrite(SCHEDULE.replace("MORE", more)).after == FOLDED.replace("MORE", "print(self)").lstrip()


@pytest.mark.parametrize(
    "more",
    [
        "self.known = known",
        "if known and optimizer:\n            print(1)",
        "known = bool(optimizer)",
        "later = lambda: known",
        "while known:\n            pass",
    ],
)
def test_what_reads_it_otherwise_keeps_it(more: str) -> None:
    after = rewrite(SCHEDULE.replace("MORE", more)).after or ""
    assert "FP16_Optimizer" not in after
    assert "            known = False\n" in after
    assert "            if not known:\n" in after


@pytest.mark.parametrize("value", ["True", "None", "0"])
def test_a_switch_that_somebody_may_set_stays(value: str) -> None:
    after = rewrite(SCHEDULE.replace("known = False", f"known = {value}").replace("MORE", "pass")).after or ""
    assert f"            known = {value}\n" in after


@pytest.mark.parametrize(("left", "refused"), [("log.write(optimizer)", True), ("log.clear()", False)])
def test_the_audit_knows_which_side_such_a_flag_leaves(left: str, refused: bool) -> None:
    before = """
    def check(optimizer, log):
        known = False
        try:
            from apex.fp16_utils import FP16_Optimizer
            if isinstance(optimizer, FP16_Optimizer):
                known = True
        except ImportError:
            pass
        if known:
            log.write(optimizer)
        else:
            log.clear()
    """
    found = doubts(before, f"\n    def check(optimizer, log):\n        {left}\n    ")
    assert bool([d for d in found if d.code == "AMP134"]) is refused
