"""What torch.jit.load gives is compiled: O1 patched no function of it, and what it is given in half was half."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

BEFORE = """
    import torch
    from apex import amp
    from project import load, other

    class Trainer:
        def __init__(self, args):
            self.model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(4, 4)).cuda()
            self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.model, self.opt = amp.initialize(self.model, self.opt, opt_level="{level}")
            self.vocoder = None
            if args.path is not None:
                self.vocoder = {made}

        def train(self, x):
            loss = self.model(x).pow(2).mean()
            with amp.scale_loss(loss, self.opt) as scaled:
                scaled.backward()
            self.opt.step()

        @torch.no_grad()
        def infer(self, x):
            out = self.model(x)
            return self.vocoder(x, out)

    trainer = Trainer(load())
    trainer.train(load())
    trainer.infer(load())
"""


def found(made: str, level: str = "O1") -> list[tuple[int, str]]:
    before = BEFORE.format(made=made, level=level)
    after = before.replace("    from apex import amp\n", "")
    for old, new in (
        (
            f'self.model, self.opt = amp.initialize(self.model, self.opt, opt_level="{level}")',
            'self.scaler = torch.amp.GradScaler("cuda")',
        ),
        (
            "            loss = self.model(x).pow(2).mean()\n",
            '            with torch.autocast("cuda", dtype=torch.float16):\n                loss = self.model(x).pow(2).mean()\n',
        ),
        (
            "            with amp.scale_loss(loss, self.opt) as scaled:\n                scaled.backward()\n"
            "            self.opt.step()\n",
            "            self.scaler.scale(loss).backward()\n            self.scaler.step(self.opt)\n"
            "            self.scaler.update()\n",
        ),
        (
            "            out = self.model(x)\n",
            '            with torch.autocast("cuda", dtype=torch.float16):\n                out = self.model(x)\n',
        ),
    ):
        assert old in after
        after = after.replace(old, new)
    return told(doubts(before, after), "AMP535")


@pytest.mark.parametrize("made", ["torch.jit.load(args.path)", 'torch.jit.load(args.path).to("cuda")'])
def test_what_it_is_given_is_what_it_was_under_o1(made: str) -> None:
    assert not found(made)
    assert found(made, "O2") == [(23, "review")]  # which gave it in float32


@pytest.mark.parametrize("made", ["torch.load(args.path)", "other(args.path)"])
def test_what_o1_patched_is_told(made: str) -> None:
    assert found(made) == [(23, "review")]
