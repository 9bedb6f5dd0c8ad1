"""What ran where `amp.disable_casts()` had switched the casts off is in no region now (AMP531), however amp is kept."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, program

TRAINER = """
import argparse
import torch
{imports}
from data import loader, Net

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
args = parser.parse_args()


class Trainer:
    def __init__(self, fp16):
        self.fp16 = fp16
        self.model = Net().cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        {setup}

    def train(self):
        for x in loader:
            {region}:
                loss = self.model(x).sum()
            self.optimizer.zero_grad()
            {step}
        if self.fp16:
            with {off}:
                self.test()
        else:
            self.test()

    def test(self):
        {evaluation}:
            print(self.model(torch.ones(2, 4).cuda()))


Trainer(args.fp16).train()
"""
KEPT = """if fp16:
            from apex import amp
            self.amp = amp
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
        else:
            self.amp = None"""
PLAIN = """if fp16:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")"""
STEP = """if {asked}:
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            self.optimizer.step()"""
NATIVE = (
    "self.scaler.scale(loss).backward()\n            self.scaler.step(self.optimizer)\n            self.scaler.update()"
)
REGION = 'with torch.autocast("cuda", dtype=torch.float16, enabled=self.fp16)'


def said(setup: str, asked: str, off: str, evaluation: str, helper: str = "") -> list[tuple[str, str]]:
    imports = "from apex import amp" if setup is PLAIN else ""
    step = STEP.format(asked=asked).replace("amp.", "self.amp." if setup is KEPT else "amp.")
    before = TRAINER.format(
        imports=imports, setup=setup, region="if True", step=step, off=off, evaluation="with torch.no_grad()"
    )
    after = TRAINER.format(
        imports="",
        setup='self.scaler = torch.amp.GradScaler("cuda", enabled=fp16)',
        region=REGION,
        step=NATIVE,
        off='torch.autocast("cuda", enabled=False)',
        evaluation=evaluation,
    )
    imported = "import contextlib\nimport torch\n"
    before = before.replace("\n\nclass Trainer", f"{helper}\n\nclass Trainer", 1).replace("import torch\n", imported, 1)
    found = doubts(program(before), program(after))
    return [(d.verdict, d.message) for d in found if d.code in ("AMP531", "AMP532")]


WAYS = [(KEPT, "self.amp", "self.amp.disable_casts()"), (PLAIN, "self.fp16", "amp.disable_casts()")]


@pytest.mark.parametrize(("setup", "asked", "off"), WAYS)
def test_a_region_inside_switches_them_on_again(setup: str, asked: str, off: str) -> None:
    ((verdict, message),) = said(setup, asked, off, f"with torch.no_grad(), {REGION[5:]}")
    assert verdict == "refuse"
    assert "where amp.disable_casts() had switched its casts off" in message


@pytest.mark.parametrize(("setup", "asked", "off"), [*WAYS, (KEPT, "self.amp is not None", "self.amp.disable_casts()")])
def test_without_one_all_is_as_it_was(setup: str, asked: str, off: str) -> None:
    """What keeps amp, or None, is known by its value: no run set Apex up and left the loss unscaled."""
    assert said(setup, asked, off, "with torch.no_grad()") == []


STACK = "contextlib.ExitStack() as stack, stack.enter_context(amp.disable_casts())"


@pytest.mark.parametrize(
    "off",
    [
        "amp.disable_casts() if self.fp16 else contextlib.nullcontext()",
        "torch.no_grad(), amp.disable_casts()",
        "uncast()",
        STACK,
    ],
)
def test_however_the_casts_are_switched_off(off: str) -> None:
    helper = "\n\ndef uncast():\n    return amp.disable_casts()\n"
    (told,) = said(PLAIN, "self.fp16", off, f"with torch.no_grad(), {REGION[5:]}", helper=helper)
    assert told[0] == "refuse"
    assert "had switched its casts off" in told[1]
    assert said(PLAIN, "self.fp16", off, "with torch.no_grad()", helper=helper) == []
