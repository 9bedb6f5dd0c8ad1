"""What torch puts around a training: compiled models, checkpointed and offloaded activations, DDP with `no_sync`, FSDP.

Each program is migrated by the rewriter and judged beside its original.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import Outcome, judge
from amp_migrate.verify.launch import Launcher
from amp_migrate.verify.report.findings import not_seen
from amp_migrate.verify.verdicts.verdict import Verdict
from tests.rules.helpers import rewrite

PROGRAM = """
import contextlib, os
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint
from apex import amp
{definitions}

def main():
    torch.manual_seed(0)
{setup}
    for step in range(8):
        x, y = torch.randn(8, 8).cuda(), torch.randint(2, (8,)).cuda()
{body}


if __name__ == "__main__":
    main()
"""
SETUP = """
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
"""
BODY = """
optimizer.zero_grad()
loss = F.cross_entropy(model(x), y)
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
optimizer.step()
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 2)

    def block(self, x):
        return F.dropout(torch.relu(self.second(x)), 0.1, self.training)

    def forward(self, x):
        return self.head(%s)
"""
PLAIN = NET % "self.block(self.first(x))"
PROCESSES = """
rank = int(os.environ.get("RANK", 0))
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29531"
dist.init_process_group("nccl", rank=rank, world_size=int(os.environ.get("WORLD_SIZE", 1)))
torch.cuda.set_device(rank)
"""


def verify(
    launcher: Launcher, folder: Path, *, definitions: str = PLAIN, setup: str = SETUP, body: str = BODY, nproc: int = 1
) -> Outcome:
    code = PROGRAM.format(definitions=dedent(definitions), setup=_at(4, setup), body=_at(8, body))
    case = Case("train.py", *write(folder, code), steps=5, reruns=1, nproc=nproc, device="cpu", apex="shim")
    outcome = judge(case, launcher, folder / "runs")
    assert outcome.exit_code == 0, (
        outcome.trouble,
        outcome.said,
        [v for v in outcome.verdicts if v.status != "agrees"],
    )
    return outcome


def write(folder: Path, code: str) -> list[Program]:
    """A program and its migration, which is whole."""
    result = rewrite(code)
    assert result.after is not None, result.findings
    assert not [f for f in result.findings if f.status == "manual"], result.findings
    for side, text in (("original", code), ("migrated", result.after)):
        (folder / side).mkdir()
        (folder / side / "train.py").write_text(text)
    return [Program(folder / side / "train.py", folder / side) for side in ("original", "migrated")]


def _at(depth: int, code: str) -> str:
    return indent(dedent(code).strip("\n"), " " * depth)


def data(outcome: Outcome, verdict: str) -> dict[str, object]:
    return next(v.data for v in outcome.verdicts if v.name == verdict)


def test_a_compiled_model(launcher: Launcher, tmp_path: Path) -> None:
    """Recorded once each: importing the compiler takes seconds."""
    setup = SETUP + 'model = torch.compile(model, backend="eager")'
    code = PROGRAM.format(definitions=PLAIN, setup=_at(4, setup), body=_at(8, BODY))
    programs = write(tmp_path, code)
    case = Case("train.py", *programs, steps=5, device="cpu", apex="shim")
    runs = launcher.run([case.spec(side, tmp_path / "runs" / side) for side in ("original", "migrated")])
    assert [r.trouble for r in runs] == [None, None], [r.said() for r in runs]
    assert runs[0].losses() == pytest.approx(runs[1].losses(), rel=1e-3)
    assert len(runs[0].attempts) == 5
    assert all(r.uncompiled for r in runs)
    assert "torch.compile" in " ".join(not_seen(Outcome(case, [Verdict("", "agrees", "")], uncompiled=True)))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_activations(launcher: Launcher, tmp_path: Path, reentrant: bool) -> None:
    net = NET % f"checkpoint(self.block, self.first(x), use_reentrant={reentrant})"
    outcome = verify(launcher, tmp_path, definitions=net)
    assert not any("torch.compile" in told for told in not_seen(outcome))
    # What is computed within the backward pass is no loss, no evaluation, and no model of its own.
    series = data(outcome, "loss curve")["series"]
    assert isinstance(series, dict)
    assert all(0.3 < v < 1.5 for side in ("original", "migrated") for v in series["loss 0"][side]), series
    for side in ("original", "migrated"):
        census = data(outcome, "precision")[side]
        assert isinstance(census, dict)
        assert set(census) == {"train"}
        assert census["train"]["linear"].keys() == {"float16"}


@pytest.mark.parametrize("around", ["saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.cuda())", "save_on_cpu()"])
def test_offloaded_activations(launcher: Launcher, tmp_path: Path, around: str) -> None:
    forward = f"with torch.autograd.graph.{around}:\n    loss = F.cross_entropy(model(x), y)\n"
    verify(launcher, tmp_path, body=BODY.replace("loss = F.cross_entropy(model(x), y)\n", forward))


@pytest.mark.parametrize("nproc", [1, 2])
def test_ddp_that_accumulates_under_no_sync(launcher: Launcher, tmp_path: Path, nproc: int) -> None:
    body = """
    optimizer.zero_grad()
    for micro in range(2):
        with model.no_sync() if micro == 0 else contextlib.nullcontext():
            loss = F.cross_entropy(model(x + rank), y) / 2
            with amp.scale_loss(loss, optimizer, delay_unscale=micro == 0) as scaled_loss:
                scaled_loss.backward()
    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
    optimizer.step()
    """
    wrapped = SETUP + "model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])"
    outcome = verify(launcher, tmp_path, setup=PROCESSES + wrapped, body=body, nproc=nproc)
    assert all(len(outcome.norms[side]) == 5 for side in ("original", "migrated"))


def test_parameters_sharded_over_processes(launcher: Launcher, tmp_path: Path) -> None:
    wrapped = SETUP.replace("optimizer =", "model = FullyShardedDataParallel(model, device_id=rank)\noptimizer =", 1)
    imported = "from torch.distributed.fsdp import FullyShardedDataParallel\n" + PLAIN
    verify(launcher, tmp_path, definitions=imported, setup=PROCESSES + wrapped, nproc=2)


def test_a_checkpoint_function_of_the_program(launcher: Launcher, tmp_path: Path) -> None:
    """It runs forwards within the backward pass, as OpenAI's and Megatron's do."""
    net = """
    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, run, x, *params):
            ctx.run, ctx.params = run, params
            ctx.save_for_backward(x)
            with torch.no_grad():
                return run(x)

        @staticmethod
        def backward(ctx, grad):
            x = ctx.saved_tensors[0].detach().requires_grad_(True)
            with torch.enable_grad():
                again = ctx.run(x)
            return (None, *torch.autograd.grad(again, (x, *ctx.params), grad))
    """
    forward = NET.replace("F.dropout(torch.relu(self.second(x)), 0.1, self.training)", "torch.relu(self.second(x))")
    again = forward % "Again.apply(self.block, self.first(x), *self.second.parameters())"
    outcome = verify(launcher, tmp_path, definitions=dedent(net) + again)
    assert "migrated" in data(outcome, "precision")
