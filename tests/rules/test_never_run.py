"""A use of Apex that no import reaches: of branches that no run takes it is told that they can go."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import torch

use_half = False
# from apex import amp

def main(model, optimizer, loader, debug):
    for x in loader:
        loss = model(x).mean()
        if TEST:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("use_half", "use_half never holds"),
        ("use_half and debug", "use_half and debug never holds"),
        ("not (debug or not use_half)", "not (debug or not use_half) never holds"),
    ],
)
def test_it_is_told_of_and_refuses_nothing(test: str, said: str) -> None:
    result = rewrite(PROGRAM.replace("TEST", test))
    assert result.status == "unchanged"
    (finding,) = result.findings
    assert (finding.code, finding.status, finding.review, finding.line) == ("AMP102", "note", "look", 10)
    assert said in finding.message
    assert "NameError" not in finding.message


def test_the_other_branch_of_what_always_holds_does_not_run_either() -> None:
    source = PROGRAM.replace("use_half = False", "plain = True").replace("TEST", "not plain")
    (finding,) = rewrite(source).findings
    assert (finding.review, "not plain never holds" in finding.message) == ("look", True)


@pytest.mark.parametrize("given", ["use_half = debug", "use_half = torch.cuda.is_available()"])
def test_what_may_run_raises(given: str) -> None:
    source = PROGRAM.replace("TEST", "use_half").replace("    for x", f"    {given}\n    for x")
    (finding,) = rewrite(source).findings
    assert finding.status == "manual"
    assert "NameError" in finding.message


def test_an_import_is_no_advice_where_nothing_sets_apex_up() -> None:
    source = PROGRAM.replace("TEST", "debug")
    (finding,) = rewrite(source).findings
    assert "import it" not in finding.message
    assert "nothing in sight sets Apex up" in finding.message
    set_up = source.replace("    for x", "    model, optimizer = amp.initialize(model, optimizer)\n    for x")
    assert "import it to have it migrated" in rewrite(set_up).findings[0].message
