"""What a variable holds may lack a field that its constructor assigns under a test (AMP131)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, program

SCRIPT = """
import argparse
import torch
{imports}

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="")
args = parser.parse_args()


class Solver:
    def __init__(self, mode):
        self.model = torch.nn.Linear(1, 1).cuda()
        {early}
        {setup}

    def train(self):
        {region}:
            loss = self.model(torch.ones(1, 1).cuda()).sum()
        {step}

    def test(self):
        {evaluation}:
            self.model(torch.ones(1, 1).cuda())


{makes}
{runs}
"""
RUNS = """if args.mode == "test":
    solver.test()
else:
    solver.train()"""
EARLY = 'if mode == "test":\n            return'


def said(holder: str, early: str = EARLY, runs: str = RUNS, makes: str = "solver = Solver(args.mode)") -> list[str]:
    before = SCRIPT.format(
        imports="from apex import amp",
        early=early,
        setup="self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1)\n"
        "        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level='O1')",
        region="if True",
        step="with amp.scale_loss(loss, self.optimizer) as scaled:\n            scaled.backward()\n"
        "        self.optimizer.step()",
        evaluation="with torch.no_grad()",
        makes=makes,
        runs=runs,
    )
    after = SCRIPT.format(
        imports="",
        early=early,
        setup="self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1)\n"
        "        self.scaler = torch.amp.GradScaler('cuda')",
        region="with torch.autocast('cuda', dtype=torch.float16)",
        step="self.scaler.scale(loss).backward()\n        self.scaler.step(self.optimizer)\n        self.scaler.update()",
        evaluation=f"with torch.no_grad(), torch.autocast('cuda', enabled={holder}.scaler.is_enabled())",
        makes=makes,
        runs=runs,
    )
    found = doubts(program(before), program(after))
    return [d.message for d in found if d.code == "AMP131" and d.verdict == "refuse"]


@pytest.mark.parametrize("holder", ["self", "solver"])
def test_a_constructor_that_left_gave_it_none(holder: str) -> None:
    (message,) = said(holder)
    assert message.startswith(f"{holder}.scaler has no value here where mode == 'test': the constructor assigns it at")


@pytest.mark.parametrize("holder", ["self", "solver"])
def test_where_it_is_always_given_or_no_such_run_comes(holder: str) -> None:
    assert said(holder, early="self.mode = mode") == []
    assert said(holder, runs='if args.mode != "test":\n    solver.test()\nelse:\n    print(1)') == []


def test_of_what_may_be_another_object_nothing_is_known() -> None:
    makes = "solver = Solver(args.mode) if args.mode else unseen(args)"
    assert said("solver", makes=makes) == []


@pytest.mark.parametrize("mode", ["args.mode", "mode"])
def test_a_mode_that_is_given_anew_is_not_asked_as_it_was(mode: str) -> None:
    makes = "mode = args.mode\nsolver = Solver(mode)"
    runs = f"if {mode} != 'test':\n    solver.train()\n{mode} = 'val'\nif {mode} != 'test':\n    solver.test()"
    (message,) = said("solver", makes=makes, runs=runs)
    assert "solver.scaler has no value here where mode == 'test'" in message
    assert said("solver", makes=makes, runs=runs.replace("= 'val'", "= 'test'")) == []
    assert said("solver", makes=makes, runs=runs.replace(f"{mode} = 'val'", "print(1)")) == []


def test_what_no_run_assigns_is_told() -> None:
    makes = "mode = 'test'\nsolver = Solver(mode)"
    (message,) = said("solver", makes=makes, runs="if args.mode:\n    solver.test()\nelse:\n    solver.train()")
    assert "solver.scaler has no value here where mode" in message
