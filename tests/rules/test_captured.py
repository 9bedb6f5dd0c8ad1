"""CUDA graphs, and parameters sharded over processes."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, rewrite

PROGRAM = """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from apex import amp

model = torch.nn.Linear(4, 4).cuda()
{before}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=128.0)
{after}
criterion = torch.nn.MSELoss()
x, y = torch.zeros(8, 4).cuda(), torch.zeros(8, 4).cuda()


def step(x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()


for _ in range(3):
    step(x, y)
"""


def program(after: str = "", before: str = "") -> str:
    return PROGRAM.format(after=after, before=before)


@pytest.mark.parametrize(
    "code",
    [
        "model = torch.cuda.make_graphed_callables(model, (torch.zeros(8, 4).cuda(),))",
        "g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    out = model(torch.zeros(8, 4).cuda())",
        "g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    step(x, y)",
        "g = torch.cuda.CUDAGraph()\ng.capture_begin()\nout = model(torch.zeros(8, 4).cuda())\ng.capture_end()",
    ],
)
def test_what_is_captured_is_refused(code: str) -> None:
    result = check_manual(program(code), "AMP521")
    assert result.after is None


def test_another_capture_is_none_of_it() -> None:
    code = "g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    noise = torch.zeros(8).cuda() * 2"
    result = rewrite(program(code))
    assert result.after is not None
    assert not [f for f in result.findings if f.code == "AMP521"]


def test_sharded_parameters_want_a_scaler_that_asks_the_other_ranks() -> None:
    result = rewrite(program(before="model = FSDP(model)"))
    assert result.after is not None
    (found,) = [f for f in result.findings if f.code == "AMP223"]
    assert (found.status, found.review) == ("note", "review")
    assert "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler" in found.message


CHOSEN = """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from apex import amp


def train(args, loader, criterion, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = None
    if args.fp16:
        if args.local_rank != -1:
            scaler = ShardedGradScaler()
        else:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    if {sharded}:
        model = FSDP(model)
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        if args.fp16:
            if args.local_rank != -1:
                scaler.scale(loss).backward()
            else:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
        else:
            loss.backward()
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
"""


@pytest.mark.parametrize(("sharded", "told"), [("args.local_rank != -1", 0), ("args.world_size > 1", 1)])
def test_sharded_parameters_where_the_scaler_is_off_want_nothing(sharded: str, told: int) -> None:
    result = rewrite(CHOSEN.format(sharded=sharded))
    assert result.after is not None
    assert len([f for f in result.findings if f.code == "AMP223"]) == told


def test_fully_shard_needs_nothing() -> None:
    result = rewrite(program(before="fully_shard(model)"))
    assert result.after is not None
    assert not [f for f in result.findings if f.code == "AMP223"]
