"""What an object gives that is called, `Average(net)(x)`, is followed as what its `__call__` returns."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides, told

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    class Flips:
        def __init__(self, net):
            self.net = net

        def __call__(self, x):
  -         return (self.net(x) + self.net(-x)) / 2
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             return (self.net(x) + self.net(-x)) / 2

    class Counts:
        def __init__(self, net):
            self.net = net

        def __call__(self, x):
  -         return self.net(x).argmax(1)
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             return self.net(x).argmax(1)

    class Held:
        def __init__(self, net):
            self.flips = Flips(net)

    def main():
        net = torch.nn.Linear(4, 2).cuda()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
  -     net, opt = amp.initialize(net, opt, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda")
        for _ in range(3):
            x = torch.randn(2, 4).cuda()
  -         loss = net(x).mean()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = net(x).mean()
            opt.zero_grad()
  -         with amp.scale_loss(loss, opt) as scaled:
  -             scaled.backward()
  -         opt.step()
  +         scaler.scale(loss).backward()
  +         scaler.step(opt)
  +         scaler.update()
        MADE
        print(CALLED.cpu().numpy())

    main()
    """)
PRINTED = 34


def _told(made: str, called: str) -> list[int]:
    texts = (t.replace("MADE", made).replace("CALLED", called) for t in (BEFORE, AFTER))
    return [line for line, _ in told(doubts(*texts), "AMP535")]


@pytest.mark.parametrize(
    ("made", "called"),
    [
        ("flips = Flips(net)", "flips(x)"),
        ("flips = Flips(net)", "torch.sigmoid(flips(x) * 2)"),
        ("held = Held(net)", "held.flips(x)"),
        ('named = {"a": Flips(net)}', 'named["a"](x)'),
    ],
)
def test_what_an_object_gives(made: str, called: str) -> None:
    assert _told(made, called) == [PRINTED]


@pytest.mark.parametrize(("made", "called"), [("counts = Counts(net)", "counts(x)"), ("pass", "torch.ones(2)")])
def test_of_what_it_makes_no_half_nothing_is_said(made: str, called: str) -> None:
    assert _told(made, called) == []
