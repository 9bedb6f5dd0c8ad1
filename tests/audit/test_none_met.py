"""A run that comes to the native side only now, since Apex's went, where what it asks something of is None (AMP137)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, program

TASK = """
import argparse
import torch
{imports}


class Task:
    def __init__(self, kind):
        self.kind = kind
        self.grad_scaler = {first}
        if kind == "apex":
            {setup}
        {elif_} kind == "native":
            self.make_scaler()

    def make_scaler(self):
        self.grad_scaler = torch.amp.GradScaler("cuda")

    def resume(self, state):
        {resume}


parser = argparse.ArgumentParser()
parser.add_argument("--kind", default="apex")
args = parser.parse_args()
Task(args.kind).resume(torch.load("state.pt"))
"""
LOAD = 'self.grad_scaler.load_state_dict(state["amp"])'
BEFORE = f"""if self.kind == "apex":
            amp.load_state_dict(state["amp"])
        {{other}}:
            {LOAD}"""


def said(resume: str, other: str = "else", first: str = "None", made: str = 'if kind == "native"') -> list[str]:
    before = TASK.format(
        imports="from apex import amp",
        first=first,
        setup="self.model = amp.initialize(torch.nn.Linear(1, 1).cuda())",
        elif_="elif",
        resume=BEFORE.format(other=other),
    )
    after = TASK.format(imports="", first=first, setup="pass", elif_="elif", resume=resume)
    after = after.replace('if kind == "apex":\n            pass\n        elif kind == "native"', made)
    return [d.message for d in doubts(program(before), program(after)) if d.code == "AMP137"]


def test_a_run_that_asked_for_apex_meets_none() -> None:
    (message,) = said(LOAD)
    assert message.startswith("a run where kind is 'apex' comes here now")
    assert "self.grad_scaler may be None there" in message


@pytest.mark.parametrize(
    ("resume", "other", "first", "made"),
    [
        (f'if self.kind == "native":\n            {LOAD}', 'elif self.kind == "native"', "None", 'if kind == "native"'),
        (f"if self.grad_scaler is not None:\n            {LOAD}", "else", "None", 'if kind == "native"'),
        (f'if self.kind != "apex":\n            {LOAD}', "else", "None", 'if kind == "native"'),
        (LOAD, "else", 'torch.amp.GradScaler("cuda", enabled=False)', 'if kind == "native"'),
        (LOAD, "else", "None", 'if kind in ("apex", "native")'),
        (LOAD, "else", "None", "if True"),
    ],
)
def test_what_is_asked_for_first_or_always_there(resume: str, other: str, first: str, made: str) -> None:
    assert said(resume, other, first, made) == []
