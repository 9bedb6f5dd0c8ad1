"""What stands around a training: state that no module or optimizer holds, transforms of data, processes that load it."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import Outcome, judge
from amp_migrate.verify.launch import Launcher
from amp_migrate.verify.verdicts.checkpoint import OUTSIDE
from tests.trust import suite
from tests.trust.programs import Regime


def verify(launcher: Launcher, folder: Path, text: str, steps: int, level: str = "O1", wrong: str = "") -> Outcome:
    """`text` with `initialize()`, `region` and `train(loss)` in the place of what differs."""
    apex = f"""
from contextlib import nullcontext as region
from apex import amp
def initialize(model, optimizer):
    return amp.initialize(model, optimizer, opt_level="{level}", verbosity=0)
def train(loss):
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
"""
    native = f"""
def region():
    return torch.autocast("cuda", dtype=torch.float16)
scaler = torch.amp.GradScaler("cuda")
def initialize(model, optimizer):
    return model, optimizer
def train(loss):
    scaler.scale(loss).backward()
    {wrong}
    scaler.step(optimizer)
    scaler.update()
"""
    for side, own in (("original", apex), ("migrated", native)):
        (folder / side).mkdir()
        (folder / side / "train.py").write_text(f"import torch, torch.nn as nn\n{own}{text}")
    programs = [Program(folder / side / "train.py", folder / side) for side in ("original", "migrated")]
    case = Case("case", *programs, steps=steps, reruns=2, fp32=False, device="cpu", apex="shim", cache=False)
    return judge(case, launcher, folder / "runs")


CARRIED = """
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
model, optimizer = initialize(model, optimizer)
data, labels = torch.randn(8, 6), torch.randint(0, 3, (8,))
delta = torch.zeros(8, 6).cuda().requires_grad_()
for step in range(12):
    optimizer.zero_grad()
    with region():
        loss = nn.functional.cross_entropy(model(data.cuda() + delta), labels.cuda())
    train(loss)
    delta.data = (delta + 0.3 * delta.grad.sign()).detach()
    delta.grad.zero_()
"""


def test_state_that_cannot_be_found_is_said_and_nothing_is_held_against_the_migration(
    launcher: Launcher, tmp_path: Path
) -> None:
    outcome = verify(launcher, tmp_path, CARRIED, 10, level="O2")
    told = {v.name: v for v in outcome.verdicts}
    assert told["checkpoint"].status == "skipped"
    assert any(note.startswith(OUTSIDE) for note in told["checkpoint"].announced)
    assert not [v.name for v in outcome.verdicts if v.status == "disagrees"]


def test_a_fault_from_the_first_step_on_is_held_against_it_all_the_same(launcher: Launcher, tmp_path: Path) -> None:
    wrong = "scaler.unscale_(optimizer); nn.utils.clip_grad_norm_(model.parameters(), 0.01)"
    outcome = verify(launcher, tmp_path, CARRIED, 10, wrong=wrong)
    assert next(v for v in outcome.verdicts if v.name == "lockstep").status == "disagrees"


def test_where_the_original_goes_on_as_before_nothing_is_excused(launcher: Launcher, tmp_path: Path) -> None:
    regime = Regime("adam", "low", "binds", 1, level="O2")
    result = suite.verify(launcher, tmp_path / "work", regime, "missing unscale_")
    assert {"lockstep", "checkpoint"} <= set(result.caught_by)


TRANSFORMED = """
from torch.utils.data import DataLoader, Dataset
class Normalize(nn.Module):  # as torchvision's transforms are modules
    def forward(self, x):
        return (x - 0.1) / 2
class Data(Dataset):
    transform = nn.Sequential(Normalize(), nn.Identity())
    def __len__(self):
        return 16
    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        return self.transform(torch.randn(6, generator=generator)), i % 3
torch.manual_seed(0)
model = nn.Linear(6, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
model, optimizer = initialize(model, optimizer)
for x, y in DataLoader(Data(), batch_size=4, num_workers={workers}):
    optimizer.zero_grad()
    with region():
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    train(loss)
model.eval()
with torch.no_grad(), region():
    for x, y in DataLoader(Data(), batch_size=4, num_workers={workers}):
        print(model(x.cuda()).argmax(1))
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_transforms_are_no_forwards_of_the_training(launcher: Launcher, tmp_path: Path, workers: int) -> None:
    outcome = verify(launcher, tmp_path, TRANSFORMED.replace("{workers}", str(workers)), 4)
    assert outcome.exit_code == 0, (outcome.trouble, outcome.said, [(v.name, v.evidence) for v in outcome.verdicts])
    assert next(v for v in outcome.verdicts if v.name == "precision").summary.startswith("training and evaluation")


SIGNS = """
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
model, optimizer = initialize(model, optimizer)
for step in range(10):
    x, y = torch.randn(8, 6).cuda(), torch.randint(0, 3, (8,)).cuda()
    with region():
        fine = (model(x).float() * 1e6).sin()  # what rounding moves as far as anything else
        loss = nn.functional.cross_entropy(fine, y) * 1e-6
    optimizer.zero_grad()
    train(loss)
"""


def test_where_rounding_moves_gradients_as_far_lockstep_says_that_it_is_blind(
    launcher: Launcher, tmp_path: Path
) -> None:
    outcome = verify(launcher, tmp_path, SIGNS, 6)
    lockstep = next(v for v in outcome.verdicts if v.name == "lockstep")
    assert any("rounding alone moves the gradients as far" in note for note in lockstep.announced), lockstep
