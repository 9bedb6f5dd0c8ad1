"""An optimizer that Apex was not given, and whose parameters a scaled loss reaches (AMP238): its gradients stay scaled."""

from __future__ import annotations

import ast

import pytest

from amp_migrate.audit.paths.facts import NOTHING, learned, outcome
from tests.audit.helpers import doubts, told

PROGRAM = """
import torch
IMPORT
from losses import CenterLoss

def main(loader):
    model = torch.nn.Linear(4, 4).cuda()
    center = CenterLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer_center = torch.optim.SGD(center.parameters(), lr=0.5)
    SETUP
    for x, y in loader:
        optimizer.zero_grad()
        optimizer_center.zero_grad()
        REGION
            out = model(x)
            loss = out.mean() + CENTER
        BACKWARD
        BETWEEN
        optimizer_center.step()
"""
BEFORE = (
    PROGRAM.replace("IMPORT", "from apex import amp")
    .replace("SETUP", 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")')
    .replace("REGION", "if True:")
    .replace(
        "BACKWARD",
        "with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()\n        optimizer.step()",
    )
)
AFTER = (
    PROGRAM.replace("IMPORT\n", "")
    .replace("SETUP", 'scaler = torch.amp.GradScaler("cuda")')
    .replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16):')
    .replace("BACKWARD", "scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        UPDATE")
)


def found(center: str, between: str = "pass", after: str = AFTER, update: str = "scaler.update()") -> list[str]:
    texts = [t.replace("CENTER", center).replace("BETWEEN", between) for t in (BEFORE, after.replace("UPDATE", update))]
    return [verdict for _, verdict in told(doubts(*texts), "AMP238")]


@pytest.mark.parametrize("center", ["center(out, y)", "0.1 * center(model(x), y)"])
def test_it_is_told_to_step_on_scaled_gradients(center: str) -> None:
    assert found(center) == ["review"]


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        ('model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', "initialize was not given it"),
        ("optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)", "no FP16_Optimizer wrapped it"),
    ],
)
def test_it_says_what_of_apex_the_program_has(setup: str, said: str) -> None:
    before = BEFORE.replace('model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', setup)
    if "FP16" in setup:
        scaled = "with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()"
        before = before.replace(scaled, "optimizer.backward(loss)").replace(
            "apex import amp", "apex.fp16_utils import FP16_Optimizer"
        )
    texts = [t.replace("CENTER", "center(out, y)").replace("BETWEEN", "pass") for t in (before, AFTER)]
    (doubt,) = [d for d in doubts(texts[0], texts[1].replace("UPDATE", "scaler.update()")) if d.code == "AMP238"]
    assert said in doubt.message


@pytest.mark.parametrize("center", ["other(out, y)", "center(out, y).detach()", "center(out, y).item()"])
def test_not_where_the_loss_does_not_reach_it(center: str) -> None:
    assert not found(center)


def test_not_where_it_gave_what_is_detached() -> None:
    made = "center(x, y).detach()\n            loss = loss + model(given)"
    assert not found("0\n            given = " + made)
    assert found("0\n            given = " + made.replace(".detach()", "")) == ["review"]


def test_not_where_its_gradients_are_its_own() -> None:
    own = "optimizer_center.zero_grad()\n        center(out.detach(), y).backward()"
    assert not found("center(out, y)", own)


def test_not_where_the_scaler_steps_it() -> None:
    after = AFTER.replace("optimizer_center.step()", "scaler.step(optimizer_center)\n        scaler.update()")
    assert not found("center(out, y)", after=after, update="pass")


def test_nor_what_a_scaler_of_the_programs_own_left_so() -> None:
    """Beside the migration, in a program that scaled by itself before."""
    own = AFTER.replace("CENTER", "center(out, y)").replace("BETWEEN", "pass").replace("UPDATE", "scaler.update()")
    own = own.replace("import torch\n", "").replace("def main", "def native")
    texts = [
        t.replace("CENTER", "0").replace("BETWEEN", "pass").replace("UPDATE", "scaler.update()") + own
        for t in (BEFORE, AFTER)
    ]
    assert not told(doubts(*texts), "AMP238")


def comes_out(known: str, asked: str) -> bool | None:
    """How a test comes out where another one held."""
    facts = learned(ast.parse(known, mode="eval").body, True, NOTHING)
    assert facts is not None
    return outcome(ast.parse(asked, mode="eval").body, facts)


@pytest.mark.parametrize(
    ("known", "asked", "expected"),
    [
        ('mode == "valid"', 'mode in ["train"]', False),
        ('mode == "train"', 'mode in ("train", "valid")', True),
        ('mode == "test"', 'mode not in {"train", "valid"}', True),
        ('mode in ["train"]', 'mode == "valid"', False),
        ('mode not in ["valid", "test"]', 'mode == "test"', False),
        ('mode == "valid"', "mode in modes", None),
        ("self.fp16_enabled()", "self.fp16_enabled()", True),
        ("self.is_last()", "self.is_last()", None),  # which may come out otherwise next time
        ('mode in ["train", "valid"]', 'mode == "train"', None),
    ],
)
def test_what_a_test_goes_through_is_told_apart(known: str, asked: str, expected: bool | None) -> None:
    """`mode in ["train"]` is no other test than `mode == "train"`: a run of another mode neither scales nor steps."""
    assert comes_out(known, asked) is expected


def test_a_fault_of_the_programs_own_scaler_is_no_fault_of_the_migration() -> None:
    """The scaler is made out of sight; on a TPU it unscales and never updates, before as after."""
    text = """
    import torch
    from engine import Base, is_tpu, xm
    IMPORT

    class Trainer(Base):
        def train(self, model, loader):
            for x in loader:
                loss = model(x).mean()
                if self.native:
                    self.scaler.scale(loss).backward()
                    self.scaler.unscale_(self.optimizer)
                BRANCH
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                if is_tpu():
                    xm.optimizer_step(self.optimizer)
                elif self.native:
                    self.scaler.step(self.optimizer)
                    self.scaler.update()
                else:
                    self.optimizer.step()
                model.zero_grad()

    def main(model, optimizer, loader, level):
        SETUP
        for x in loader:
            loss = model(x).mean()
            STEP
            optimizer.zero_grad()
    """
    old = {
        "IMPORT": "from apex import amp",
        "BRANCH": "if self.apex:\n                    with amp.scale_loss(loss, self.optimizer) as scaled:\n"
        "                        scaled.backward()",
        "SETUP": "model, optimizer = amp.initialize(model, optimizer, opt_level='O1')",
        "STEP": "with amp.scale_loss(loss, optimizer) as scaled:\n                scaled.backward()\n            optimizer.step()",
    }
    new = {
        "IMPORT": "",
        "BRANCH": "pass",
        "SETUP": "scaler = torch.amp.GradScaler('cuda')",
        "STEP": "scaler.scale(loss).backward()\n            scaler.step(optimizer)\n            scaler.update()",
    }
    before, after = text, text
    for name in old:
        before, after = before.replace(name, old[name]), after.replace(name, new[name])
    assert not [d for d in doubts(before, after) if "unscale_ would be called twice" in d.message]


FROZEN = (
    "import torch\nfrom data import Net, loader, criterion\nhead = torch.nn.Linear(2, 2)\nhead.requires_grad_(False)\n"
)
FROZEN += "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
FROZEN += "second = torch.optim.SGD(head.parameters(), lr=0.1)\n"


@pytest.mark.parametrize(
    ("step", "frozen", "verdict"),
    [
        ("second.step()", True, set()),
        ("scaler.step(second)", True, {"refuse"}),
        ("second.step()", False, {"refuse"}),
        ("scaler.step(second)", False, set()),
    ],
)
def test_a_step_of_what_takes_no_gradient_is_no_step_of_the_scaler(step: str, frozen: bool, verdict: set[str]) -> None:
    head = FROZEN if frozen else FROZEN.replace("head.requires_grad_(False)\n", "")
    before = (
        "from apex import amp\n" + head + "model, [optimizer, second] = amp.initialize(model, [optimizer, second])\n"
    )
    before += "for x, y in loader:\n    loss = criterion(head(model(x)), y)\n"
    before += "    with amp.scale_loss(loss, [optimizer, second]) as scaled_loss:\n        scaled_loss.backward()\n"
    before += "    optimizer.step()\n    second.step()\n"
    after = (
        head + "scaler = torch.amp.GradScaler('cuda')\nfor x, y in loader:\n    loss = criterion(head(model(x)), y)\n"
    )
    after += f"    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    {step}\n    scaler.update()\n"
    assert {d.verdict for d in doubts(before, after) if d.code in ("AMP231", "AMP232")} == verdict
