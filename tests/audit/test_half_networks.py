"""Models made half in another file than the one that steps their weights through a GradScaler (AMP534)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, told

MAIN = """
import torch
from engine import Net

net = Net().cuda()
HALF
optimizer = torch.optim.Adam(net.parameters())
net.fit(optimizer, loader, args.fp16)
MORE
"""
ENGINE = """
import torch
from apex.fp16_utils import FP16_Optimizer

class Net(torch.nn.Module):
    def fit(self, optimizer, loader, fp16):
        if fp16:
            optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(self(x), y)
            if fp16:
                optimizer.backward(loss)
            else:
                loss.backward()
            optimizer.step()
"""
NOW = """
import torch

class Net(torch.nn.Module):
    def fit(self, optimizer, loader, fp16):
        scaler = torch.amp.GradScaler("cuda", enabled=fp16)
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.float16, enabled=fp16):
                loss = torch.nn.functional.mse_loss(self(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
"""


def found(half: str, more: str = "") -> list[tuple[int, str]]:
    main = MAIN.replace("HALF", half).replace("MORE", more)
    return told(doubts_of({"main.py": main, "engine.py": ENGINE}, {"engine.py": NOW}), "AMP534")


@pytest.mark.parametrize(
    "half",
    [
        "net = net.half()",
        "if args.fp16:\n    net.half()",
        "net.half().cuda()",
        "net.half()\nif args.other:\n    net.float()",
        "net.float()\nnet.half()",
    ],
)
def test_a_model_made_half_in_another_file_is_refused_at_the_step(half: str) -> None:
    assert found(half) == [(14, "refuse")]


@pytest.mark.parametrize(
    ("half", "more"),
    [
        ("", ""),
        ("if not args.fp16:\n    net.half()", ""),  # without the scaler
        ("", "net.half()"),  # when training is over
        ("net.half()\nprint(net(x))\nnet.float()", ""),  # float32 again
        ("other = Net()\nother.half()", ""),  # another model
        ("net.half().float()", ""),  # rounded
    ],
)
def test_what_the_scaler_does_not_step_as_half_is_left_alone(half: str, more: str) -> None:
    assert not found(half, more)


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("return super().half()", "refuse"),
        ("torch.nn.Module.half(self)", "refuse"),
        ("return self.to(dtype=torch.float16)", "refuse"),
        ("self.inner = self.inner.half()", "review"),
        ("for part in self.children():\n            part.half()", "review"),
        ("return self._apply(lambda t: t.half())", "review"),
        ("narrow(self)", "review"),
        ("return self.width // 2", None),
    ],
)
def test_a_half_of_the_programs_own_is_asked_for_what_it_does(body: str, verdict: str | None) -> None:
    own = f"    def half(self):\n        {body}\n\n"
    more = "def narrow(net):\n    net.half()\n"
    before, after = (f"{text}\n{own}{more}" for text in (ENGINE, NOW))
    main = MAIN.replace("HALF", "net.half()").replace("MORE", "")
    doubts = told(doubts_of({"main.py": main, "engine.py": before}, {"engine.py": after}), "AMP534")
    assert {v for _, v in doubts} == ({verdict} if verdict else set())
