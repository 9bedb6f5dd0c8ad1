"""Data loaders, checkpoints, child processes."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("error")
def test_loader_pins_and_the_program_moves(workers: int) -> None:
    data = TensorDataset(torch.arange(6.0), torch.arange(6))
    seen = []
    for x, y in DataLoader(data, batch_size=3, num_workers=workers, pin_memory=True):
        assert x.is_pinned()
        assert not x.is_cuda
        x, y = x.cuda(non_blocking=True), y.to("cuda", non_blocking=True)
        assert x.is_cuda
        assert not x.is_pinned()
        x += 10
        seen += x.tolist()
    assert seen == [10, 11, 12, 13, 14, 15]
    assert data.tensors[0].tolist() == [0, 1, 2, 3, 4, 5]


class Batch:
    def __init__(self, items: list[Any]) -> None:
        self.pinned = False

    def pin_memory(self) -> Batch:
        self.pinned = True
        return self


def test_custom_batches_are_pinned_by_their_own_method() -> None:
    (batch,) = DataLoader([1], collate_fn=Batch, pin_memory=True)
    assert batch.pinned


LOCATIONS = [
    (None, "cuda:0"),
    ("cuda:0", "cuda:0"),
    ("cuda", "cuda:0"),
    (torch.device("cuda", 0), "cuda:0"),
    (lambda storage, location: storage.cuda(0), "cuda:0"),
    ({"cuda:1": "cuda:0"}, "cuda:0"),
    ("cpu", "cpu"),
    (torch.device("cpu"), "cpu"),
    (lambda storage, location: storage, "cpu"),
]


@pytest.mark.parametrize(("map_location", "expected"), LOCATIONS)
@pytest.mark.parametrize("weights_only", [True, False])
def test_load(map_location: Any, expected: str, weights_only: bool) -> None:
    buffer = io.BytesIO()
    torch.save(nn.Linear(2, 2).cuda().state_dict(), buffer)
    buffer.seek(0)
    state = torch.load(buffer, map_location=map_location, weights_only=weights_only)
    assert str(state["weight"].device) == expected
    model = nn.Linear(2, 2).cuda()
    model.load_state_dict(state)
    assert model.weight.is_cuda


def test_load_a_file_written_on_a_gpu() -> None:
    buffer = io.BytesIO()
    torch.save({"x": torch.arange(3.0)}, buffer, _use_new_zipfile_serialization=False)
    # The location is a pickled string: one byte of length, then the text.
    written = buffer.getvalue()
    assert written.count(b"X\x03\x00\x00\x00cpu") == 1
    on_gpu = io.BytesIO(written.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"))
    state = torch.load(on_gpu, weights_only=False)
    assert state["x"].tolist() == [0, 1, 2]
    assert state["x"].is_cuda


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "NAdam", "RAdam", "LBFGS"])
def test_optimizers_step_and_resume(name: str) -> None:
    model = nn.Linear(3, 3).cuda()
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3).cuda()).pow(2).mean()
        loss.backward()
        return loss

    first = optimizer.step(closure).item()
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    buffer.seek(0)
    optimizer.load_state_dict(torch.load(buffer, map_location="cpu", weights_only=False))
    for _ in range(3):
        last = optimizer.step(closure).item()
    assert last < first


PROGRAM = "import torch, apex; print(torch.zeros(1).cuda().is_cuda, apex.__file__)"


def test_child_interpreters_are_redirected_too() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    visible, path = result.stdout.split()
    assert visible == "True"
    assert Path(path).parent.name == "apex"


def _in_child(rank: int, results: Any) -> None:
    results[rank] = torch.zeros(1).cuda().device.type


def test_spawned_processes_are_redirected_too() -> None:
    results = torch.multiprocessing.get_context("spawn").Manager().dict()
    torch.multiprocessing.spawn(_in_child, (results,), nprocs=2)
    assert dict(results) == {0: "cuda", 1: "cuda"}


def test_dynamo_is_off() -> None:
    compiled = torch.compile(lambda x: x.cuda() + torch.ones(1, device="cuda"))
    assert compiled(torch.zeros(1)).tolist() == [1]
