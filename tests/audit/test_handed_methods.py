"""Networks, and methods of theirs, that are handed to what calls them: O1 ran them in half, wherever and whenever that was."""

from __future__ import annotations

import pytest

from tests.audit.helpers import Doubt, doubts, sides

BEFORE, AFTER = sides("""
    import operator
    import torch
  - from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.a(x)

        def generate(self, x):
            return self.forward(x).argmax(1)

        def name(self, x):
            return str(x)

    def main(pool, xs):
        net = Net().cuda()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
  -     net, opt = amp.initialize(net, opt, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda")
        for x in xs:
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
        OPENED
            print(RUN)

    main(None, [torch.randn(2, 4).cuda()])
    """)
OPEN, REGION = "with torch.no_grad():", 'with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):'
LATER = "it runs later, or in another thread"


def _found(run: str, opened: str = OPEN) -> list[Doubt]:
    texts = [BEFORE.replace("OPENED", OPEN), AFTER.replace("OPENED", opened)]
    return [d for d in doubts(*(t.replace("RUN", run) for t in texts)) if d.code == "AMP531"]


@pytest.mark.parametrize(
    "run",
    [
        "list(map(net.generate, xs))",
        "*map(net, xs)",
        "[y for y in map(net.generate, xs)]",
        "torch.stack(tuple(map(net, xs)))",
        'operator.methodcaller("generate", xs[0])(net)',
    ],
)
def test_what_runs_there_and_then_is_kept_by_a_region_around_it(run: str) -> None:
    (told,) = _found(run)
    assert (told.line, told.verdict) == (30, "review")
    assert LATER not in told.message
    assert _found(run, REGION) == []


@pytest.mark.parametrize(
    "run",
    ["map(net.generate, xs)", "pool.map(net.generate, xs)", "pool.submit(net, xs[0]).result()", "pool.imap(net, xs)"],
)
def test_what_runs_elsewhere_is_not(run: str) -> None:
    for opened in (OPEN, REGION):
        (told,) = _found(run, opened)
        assert LATER in told.message
        assert not told.lost


@pytest.mark.parametrize(
    "run",
    [
        "list(map(net.name, xs))",
        "list(map(str, xs))",
        "list(map(net.train, [True]))",
        "pool.map(len, xs)",
        'operator.itemgetter("a")(xs)',
        'operator.methodcaller("train")(net)',
    ],
)
def test_what_runs_no_network_is_not_told_of(run: str) -> None:
    assert _found(run) == []
