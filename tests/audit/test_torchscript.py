"""TorchScript calls none of the functions that O1 patched: it ran in float32, wherever it stood, and autocast reaches it."""

from __future__ import annotations

import pytest

from tests.audit.helpers import Doubt, doubts, sides, told

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.a(x)

    class Distance(torch.nn.Module):
        def __init__(self, other):
            super().__init__()
            self.other = other

        def forward(self, x, y):
            return (self.other(x) - self.other(y)).abs().mean()

    class Held:
        def __init__(self, path):
            self.guide = torch.jit.load(path).cuda().eval()

    def main(path):
        net = Net().cuda()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        OTHERS
  -     net, opt = amp.initialize(net, opt, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda")
        AGAIN
        for _ in range(3):
            x = torch.randn(2, 4).cuda()
  -         out = net(x)
  -         target = CALLED
  -         loss = (out - target).pow(2).mean()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             out = net(x)
  +             target = CALLED
  +             loss = (out - target).pow(2).mean()
            opt.zero_grad()
  -         with amp.scale_loss(loss, opt) as scaled:
  -             scaled.backward()
  -         opt.step()
  +         scaler.scale(loss).backward()
  +         scaler.step(opt)
  +         scaler.update()

    main("net.pt")
    """)
CALLED = 33  # the line, before
IN_A_LOSS = 18
WHY = "it is TorchScript, which calls none of the functions of Python that O1 patched"


def _texts(called: str = "x", others: str = "pass", again: str = "pass") -> list[str]:
    return [t.replace("OTHERS", others).replace("CALLED", called).replace("AGAIN", again) for t in (BEFORE, AFTER)]


def _found(others: str, called: str, again: str = "pass") -> list[Doubt]:
    return [d for d in doubts(*_texts(called, others, again)) if WHY in d.message]


@pytest.mark.parametrize(
    ("others", "called", "line"),
    [
        ("guide = torch.jit.load(path).cuda().eval()", "guide(x)", CALLED),
        ("guide = torch.jit.load(path)", "guide.forward(x)", CALLED),
        ("guides = [torch.jit.load(p) for p in (path, path)]", "sum(g(x) for g in guides)", CALLED),
        ("guides = None if path is None else [torch.jit.load(path)]", "[g(x) for g in guides][0]", CALLED),
        ('guides = {"a": torch.jit.load(path)}', 'guides["a"](x)', CALLED),
        ("guide = torch.jit.script(Net()).cuda()", "guide(x)", CALLED),
        ("guide = torch.jit.freeze(torch.jit.script(Net().eval()))", "guide(x)", CALLED),
        ("guide = torch.jit.trace(Net(), torch.zeros(2, 4))", "guide(x)", CALLED),
        ("held = Held(path)", "held.guide(x)", CALLED),
        ("distance = Distance(torch.jit.load(path)).cuda()", "distance(x, x)", IN_A_LOSS),
    ],
)
def test_o1_did_not_reach_it(others: str, called: str, line: int) -> None:
    (found,) = _found(others, called)
    assert (found.line, found.verdict) == (line, "review")
    assert WHY in found.message


@pytest.mark.parametrize(
    ("others", "called", "again"),
    [
        ("guide = Net().cuda()", "guide(x)", "pass"),
        ("scripted = torch.jit.script(net)", "net(x)", "pass"),  # is not what runs
        ("pass", "guide(x)", "guide = torch.jit.trace(net, torch.zeros(2, 4))"),  # writes down the casts there
    ],
)
def test_of_what_o1_ran_in_half_nothing_is_said(others: str, called: str, again: str) -> None:
    assert _found(others, called, again) == []


def test_it_is_told_of_the_way_that_it_comes() -> None:
    texts = _texts("run(net, x) + run(torch.jit.load(path), x)")
    run = "\n    def run(one, x):\n        return one(x)\n\n    class Net("
    found = doubts(*(t.replace("\n    class Net(", run, 1) for t in texts))
    assert told(found, "AMP531") == [(5, "review")]
    assert "called from train.py:36" in found[0].message


SCRIPTED = "net = Net().cuda()", "net = torch.jit.script(Net()).cuda()"


def test_what_the_set_up_was_given_is_told_of_too() -> None:
    texts = (t.replace(*SCRIPTED) for t in _texts())
    assert told(doubts(*texts), "AMP531") == [(32, "review")]


def test_half_weights_are_half_in_it_as_well() -> None:
    texts = (t.replace(*SCRIPTED).replace('"O1"', '"O2"') for t in _texts())
    assert told(doubts(*texts), "AMP531") == []
