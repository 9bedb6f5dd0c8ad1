"""Gradients that other processes give, put in the place of one's own after unscale_ has looked for infs."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.audit.helpers import doubts, program

HEAD = """
import torch
import torch.distributed as dist
{apex}
from compression import Compressor
from data import loader, model, criterion
compressor = Compressor()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def double(grad):
    return grad * 2
def mean(grad):
    dist.all_reduce(grad)
    return grad / 2
{setup}
for x, y in loader:
    loss = criterion(model(x), y)
"""
COUNT = "for p in model.parameters():\n    print((p.grad.abs() > 0).sum())\n"


def loop(statement: str) -> str:
    return f"for name, p in model.named_parameters():\n{indent(program(statement), '    ')}\n"


def said(exchange: str, level: str = "O1", *, first: bool = False) -> list[tuple[str, str]]:
    """What is said of an exchange that stands after a reader, or before it."""
    before = program(HEAD).format(
        apex="from apex import amp", setup=f"model, optimizer = amp.initialize(model, optimizer, opt_level='{level}')"
    )
    after = program(HEAD).format(apex="", setup="scaler = torch.amp.GradScaler('cuda')")
    scaled = "with amp.scale_loss(loss, optimizer) as scaled:\n    scaled.backward()\n"
    old = [exchange, COUNT] if first else [COUNT, exchange]
    new = [exchange, "scaler.unscale_(optimizer)\n", COUNT]
    new = new if first else ["scaler.unscale_(optimizer)\n", COUNT, exchange]
    before += indent(scaled + "".join(old) + "optimizer.step()\noptimizer.zero_grad()\n", "    ")
    after += indent(
        "scaler.scale(loss).backward()\n"
        + "".join(new)
        + "scaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()\n",
        "    ",
    )
    return [(d.message, d.verdict) for d in doubts(before, after) if d.code == "AMP239"]


EXCHANGES = [
    "p.grad.data = compressor.step(p.grad.data, name)",
    "new = compressor.step(p.grad, name)\np.grad = new",
    "grad = p.grad.data\np.grad.copy_(compressor.step(grad, name) / 2)",
    "p.grad = mean(p.grad)",
    "dist.all_reduce(p.grad.data)",
    "torch.distributed.all_reduce(p.grad)",
]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_what_comes_after_unscale_is_told(exchange: str) -> None:
    ((message, verdict),) = said(loop(exchange))
    assert verdict == "look"
    assert "O1 looked no later either" in message
    assert "masters" not in message


def test_masters_took_no_part_in_an_exchange() -> None:
    ((message, verdict),) = said(loop(EXCHANGES[0]), "O2")
    assert verdict == "review"
    assert "O2 stepped masters" in message
    assert "O1 looked" not in message


@pytest.mark.parametrize("exchange", [EXCHANGES[0], EXCHANGES[4]])
def test_what_comes_before_is_seen_by_it(exchange: str) -> None:
    assert not said(loop(exchange), first=True)


@pytest.mark.parametrize(
    "change",
    [
        "p.grad = double(p.grad)",
        "p.grad.data = p.grad.data.clamp(-1, 1)",
        "p.grad = torch.nan_to_num(p.grad)",
        "p.grad = compressor.fresh(name)",
        "sizes = list(p.grad.shape)\np.grad = p.grad.view(sizes)",
        "norm = compressor.norm(p.grad)\np.grad = p.grad / norm",
    ],
)
def test_what_a_process_does_to_its_own_is_no_exchange(change: str) -> None:
    assert not said(loop(change))


def test_what_a_scaler_of_the_programs_own_came_to_before_is_not_told() -> None:
    """Only an import goes."""
    native = program(HEAD).format(apex="", setup="scaler = torch.amp.GradScaler('cuda')") + indent(
        "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\n"
        + loop(EXCHANGES[4])
        + "scaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()\n",
        "    ",
    )
    before = native.replace("from data", "from apex import amp\nfrom data")
    assert not [d for d in doubts(before, native) if d.code == "AMP239"]
