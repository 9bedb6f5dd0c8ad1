"""An FP16_Optimizer that a function makes, whose loss scale its caller hands over: what it is set by reads as the caller has
it. What is emitted is run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.rules.helpers import rewrite

SOURCE = """
import torch
from apex.fp16_utils import FP16_Optimizer


def wrapped(parameters, fp16, static=1.0, dynamic=False):
    optimizer = torch.optim.SGD(parameters, 0.1)
    if fp16:
        optimizer = FP16_Optimizer(optimizer, static_loss_scale=static, dynamic_loss_scale=dynamic)
    return optimizer


def train(args, model, loader):
    if args.fp16:
        model.half()
    optimizer = wrapped(model.parameters(), args.fp16{given})
    for x in loader:
        optimizer.zero_grad()
        loss = model(x).float().pow(2).mean() / 16
        if args.fp16:
            optimizer.backward(loss)
        else:
            loss.backward()
        optimizer.step()
"""
GIVEN = {
    ", static=args.scale, dynamic=args.dynamic": "2.0 ** 16 if args.dynamic else float(args.scale)",
    ", args.scale": "args.scale",
    ", dynamic=args.dynamic": "scaler.update(None if args.dynamic else 1.0)",
}


def trained(source: str, entry: str = "train", **args: Any) -> torch.Tensor:
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, "program.py", "exec"), names)
    torch.manual_seed(0)
    model, loader = torch.nn.Linear(3, 3), [torch.randn(4, 3) for _ in range(3)]
    names[entry](SimpleNamespace(**args), model, loader)
    return model.weight.detach()


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("dynamic", [True, False])
def test_a_setting_is_what_the_one_call_passes(given: str, dynamic: bool) -> None:
    result = rewrite(SOURCE.format(given=given), device="cpu")
    assert not [f for f in result.findings if f.status == "manual"], result.findings
    assert result.after is not None
    assert GIVEN[given] in result.after
    plain = SOURCE.format(given="").replace("from apex.fp16_utils import FP16_Optimizer\n", "")
    expected = trained(plain, fp16=False)
    for scale in (128, 128.0):
        found = trained(result.after, fp16=True, scale=scale, dynamic=dynamic)
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("dynamic", [True, False])
def test_what_the_stepping_function_cannot_see_is_handed_to_it(dynamic: bool) -> None:
    source = SOURCE.format(given=", static=args.scale, dynamic=args.dynamic")
    head, loop, body = source.partition("    for x in loader:\n")
    head = head.replace("def train(", "def main(") + "    run(model, loader, optimizer, args.fp16)\n\n\n"
    head += "def run(model, loader, optimizer, fp16):\n"
    source = head + loop + body.replace("args.fp16", "fp16")
    result = rewrite(source, device="cpu")
    assert not [f for f in result.findings if f.status == "manual"], result.findings
    assert result.after is not None
    assert "    loss_scale = None if args.dynamic else float(args.scale)" in result.after
    assert "        scaler.update(loss_scale)" in result.after
    plain = source.replace("from apex.fp16_utils import FP16_Optimizer\n", "")
    expected = trained(plain, "main", fp16=False, scale=128, dynamic=dynamic)
    found = trained(result.after, "main", fp16=True, scale=128, dynamic=dynamic)
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-3)
