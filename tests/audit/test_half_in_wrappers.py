"""Half weights that a GradScaler steps by way of what code out of sight was given the network to make."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides

BEFORE, AFTER = sides("""
    import torch
  - from apex.fp16_utils import FP16_Optimizer
    from away import Wrapper, count

    class Trainer:
        def __init__(self, fp16):
            self.fp16 = fp16
            self.core = torch.nn.Linear(4, 2).cuda()
            if fp16:
                HALF
            self.run = Wrapper(self.core)
            self.make()

        def make(self):
            self.opt = torch.optim.SGD(STEPPED.parameters(), lr=0.1)
  -         if self.fp16:
  -             self.opt = FP16_Optimizer(self.opt, dynamic_loss_scale=True)
  +         self.scaler = torch.amp.GradScaler("cuda", enabled=self.fp16)

        def step(self, x):
  -         loss = self.run(x).float().mean()
  +         with torch.autocast("cuda", dtype=torch.float16, enabled=self.fp16):
  +             loss = self.run(x).float().mean()
            self.opt.zero_grad()
  -         if self.fp16:
  -             self.opt.backward(loss)
  -         else:
  -             loss.backward()
  -         self.opt.step()
  +         self.scaler.scale(loss).backward()
  +         self.scaler.step(self.opt)
  +         self.scaler.update()

    trainer = Trainer(True)
    trainer.step(torch.randn(2, 4).cuda().half())
    """)
OTHER = "self.other = torch.nn.Linear(4, 2).cuda().half()"


def _told(half: str, stepped: str) -> list[str]:
    texts = (t.replace("HALF", half).replace("STEPPED", stepped) for t in (BEFORE, AFTER))
    return [d.verdict for d in doubts(*texts) if d.code == "AMP534"]


@pytest.mark.parametrize(
    "half", ["self.core.half()", "self.core = self.core.half()", "self.core = torch.nn.Linear(4, 2).cuda().half()"]
)
def test_what_a_wrapper_out_of_sight_was_given_may_be_stepped(half: str) -> None:
    assert _told(half, "self.run") == ["review"]
    assert _told(half, "self.core") == ["refuse"]


@pytest.mark.parametrize("half", [OTHER, "count(self.core)", "self.copy = Wrapper(self.core).half()"])
def test_other_networks_are_not(half: str) -> None:
    assert _told(half, "self.run") == []
