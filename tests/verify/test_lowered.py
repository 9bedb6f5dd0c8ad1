"""Where the original overflows for want of float16's range, both are compared from a lower scale; nothing else is excused."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import Outcome, judge
from amp_migrate.verify.launch import Launcher

# The model returns its loss. Under O2 that is a half number, whose gradient is the scale: 65536 is infinite in half.
PROGRAM = """
import torch, torch.nn as nn
torch.manual_seed(0)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)
    def forward(self, x):
        out = self.linear(x)
        return {loss}
model = Model().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
{setup}
for step in range(8):
    x = torch.randn(8, 4).cuda()
    optimizer.zero_grad()
{body}
"""
LOSS = "out.square().mean()"
INITIALIZE = 'from apex import amp\nmodel, optimizer = amp.initialize(model, optimizer, opt_level="O2", verbosity=0)'
APEX = """
    loss = model(x)
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
"""
SCALER = 'scaler = torch.amp.GradScaler("cuda")'
NATIVE = """
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
    {before}
    {step}
    scaler.update()
"""


def verify(
    launcher: Launcher, folder: Path, setup: str = SCALER, before: str = "pass", step: str = "scaler.step(optimizer)",
    loss: str = LOSS, apex: str = APEX,
) -> Outcome:  # fmt: skip
    native = dedent(NATIVE).format(before=before, step=step)
    texts = {
        "original": PROGRAM.format(loss=LOSS, setup=INITIALIZE, body=indent(dedent(apex), "    ")),
        "migrated": PROGRAM.format(loss=loss, setup=setup, body=indent(native, "    ")),
    }
    for side, text in texts.items():
        (folder / side).mkdir()
        (folder / side / "train.py").write_text(text)
    programs = [Program(folder / side / "train.py", folder / side) for side in texts]
    case = Case("case", *programs, steps=8, reruns=1, fp32=False, device="cpu", apex="shim")
    return judge(case, launcher, folder / "runs")


def told(outcome: Outcome) -> dict[str, str]:
    return {v.name: v.status for v in outcome.verdicts}


def test_an_overflow_for_want_of_range_is_no_fault(launcher: Launcher, tmp_path: Path) -> None:
    outcome = verify(launcher, tmp_path)
    assert outcome.exit_code == 0, outcome.verdicts
    assert outcome.notes == [
        "the original overflows at step 0, where float16 ends, and the migrated program does not: all but the scale is "
        "judged by runs of both that start at scale 32768"
    ]
    scale = outcome.verdicts[1]
    assert scale.summary == "8 steps, 1 skipped, scale 32768 to 65536: equal up to step 0"
    assert scale.announced[0].startswith("step 0: taken, in the original skipped (half weights, losses and gradients")
    assert scale.data["original"]["skipped"] == [0]
    lockstep = outcome.verdicts[0]
    assert lockstep.data["steps"][0]["scale"] == 32768  # the very step that Apex skipped is compared


@pytest.mark.parametrize(
    ("fault", "red"),
    [
        ({"setup": 'scaler = torch.amp.GradScaler("cuda", init_scale=1024)'}, {"scale"}),
        ({"setup": 'scaler = torch.amp.GradScaler("cuda", growth_interval=3)'}, {"scale"}),
        ({"loss": LOSS + " * 2"}, {"lockstep"}),
        ({"before": "optimizer.param_groups[0]['lr'] = 0.02"}, {"lockstep"}),
        # It overflows as well; what is done about it is wrong.
        ({"loss": LOSS + ".half()", "step": "scaler.unscale_(optimizer); optimizer.step()"}, {"lockstep", "scale"}),
        (
            {
                "loss": LOSS + ".half()",
                "before": "scaler.unscale_(optimizer); [p.grad.nan_to_num_(0, 0, 0) for p in model.parameters()]",
                "step": "optimizer.step()",
            },
            {"lockstep", "scale"},
        ),
        # It overflows where the original does not.
        (
            {"before": "if step == 3: model.linear.bias.grad[0] = float('inf')"},
            {"lockstep", "scale"},
        ),
    ],
    ids=["initial scale", "growth interval", "loss", "learning rate", "plain step", "gradients mended", "other overflow"],
)  # fmt: skip
def test_faults_are_seen_all_the_same(launcher: Launcher, tmp_path: Path, fault: dict[str, str], red: set[str]) -> None:
    outcome = verify(launcher, tmp_path, **fault)
    assert outcome.exit_code == 1
    assert red <= {name for name, status in told(outcome).items() if status == "disagrees"}


def test_an_overflow_of_every_scale_is_none_of_range(launcher: Launcher, tmp_path: Path) -> None:
    spoiled = APEX.replace(
        "    scaled.backward()",
        "    scaled.backward()\n        if step == 2: next(iter(model.parameters())).grad[0] = float('inf')",
    )
    outcome = verify(launcher, tmp_path, apex=spoiled)
    assert outcome.exit_code == 1
    assert not outcome.notes
    assert {"lockstep", "scale"} <= {name for name, status in told(outcome).items() if status == "disagrees"}
