"""Methods of common names called of an object of which nothing is known: what else is asked of it tells whose they are."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides, told

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp
    from tools import build

    class Trainer:
        def __init__(self, args):
            self.net = build(args).cuda()
            self.opt = build(args, self.net)
  -         self.net, self.opt = amp.initialize(self.net, self.opt, opt_level="O1")
  +         self.scaler = torch.amp.GradScaler("cuda")

        def NAME(self, loss, opt):
            opt.zero_grad()
  -         with amp.scale_loss(loss, opt) as scaled:
  -             scaled.backward()
  +         self.scaler.scale(loss).backward()

        def fit(self, loader):
            for x in loader:
  -             self.NAME(self.net(x).mean(), self.opt)
  -             self.opt.step()
  +             with torch.autocast("cuda", dtype=torch.float16):
  +                 loss = self.net(x).mean()
  +             self.NAME(loss, self.opt)
  +             self.scaler.step(self.opt)
  +             self.scaler.update()

    OTHER
    """)
TUNE = """def tune(trainer, args, loader):
        opt = build(args)
        for x in loader:
            trainer.NAME(trainer.net(x).mean(), opt)
            opt.step()
"""
HELD = """class Tuner:
        def __init__(self, trainer, args):
            self.trainer, self.opt = trainer, build(args)

        def run(self, loader):
            for x in loader:
                self.trainer.NAME(self.trainer.net(x).mean(), self.opt)
                self.opt.step()
"""
TENSOR = """def tune(value, args, loader):
        opt = build(args)
        for x in loader:
            value.NAME(value.data, True)
            opt.step()
"""


def _told(name: str, other: str) -> list[tuple[int, str]]:
    return told(doubts(*(t.replace("OTHER", other).replace("NAME", name) for t in (BEFORE, AFTER))), "AMP231")


@pytest.mark.parametrize("name", ["backward", "step", "push"])
@pytest.mark.parametrize(("other", "line"), [(TUNE, 25), (HELD, 28)])
def test_a_step_behind_it_is_one_on_scaled_gradients(name: str, other: str, line: int) -> None:
    assert _told(name, other) == [(line, "refuse")]


def test_what_only_tensors_are_asked_for_tells_of_no_class() -> None:
    assert _told("backward", TENSOR) == []
