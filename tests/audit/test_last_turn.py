"""Parts that a loop of a forward runs in turn, of the last of which nothing reads what it hands to the next."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, program

BEFORE = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    class Block(nn.Module):
        def __init__(self, width, side=4):
            super().__init__()
            self.body = nn.Linear(width, width)
            self.on = nn.Linear(width, width)
            self.out = nn.Linear(width, side)

        def forward(self, x, more=None):
            y = torch.tanh(self.body(x))
            z = self.on(y)
            return (x + z) * 0.5, self.out(y)

    class Net(nn.Module):
        def __init__(self, width=4, count=3, side=4):
            super().__init__()
            self.both = True if side is not None else False
            self.first = nn.Linear(1, width)
            self.blocks = nn.ModuleList()
            for n in range(count):
                self.blocks.append(Block(width, side))
            self.downs = nn.ModuleList([nn.Linear(width, width) for _ in range(count)])
            self.sides = nn.ModuleList([nn.Linear(width, side) for _ in range(count)])

        def forward(self, x):
            h = self.first(x)
            total = 0
            given = []
            LOOP
            return total

    model = Net(8)
    model = DDP(model)
    """
NEXT = "\n            "
IN = NEXT + "    "
PLAIN = f"for f in self.blocks:{IN}h, s = f(h){IN}total += s"
PAIRS = (
    f"for down, side in zip(self.downs, self.sides):{IN}given.append(side(h)){IN}h = down(h){NEXT}total = sum(given)"
)
ALL = f"{NEXT}total = total + sum(b(x) for b in self.downs) + sum(b(x) for b in self.sides)"
USED = f"{NEXT}x = sum(b(x)[0] for b in self.blocks)"
SWITCH = (
    f"for i, f in enumerate(self.blocks):{IN}if self.both:{IN}    h, s = f(h, x){IN}    total += s{IN}else:{IN}    h, _ = f(h, x)"
    f"{NEXT}if not self.both:{NEXT}    total = h"
)


def messages(text: str) -> list[str]:
    before = program(text)
    found = doubts(before, before.replace("from apex.parallel", "from torch.nn.parallel"))
    return [d.message for d in found if d.code == "AMP651" and d.because]


@pytest.mark.parametrize(
    ("loop", "part"),
    [
        (PLAIN + ALL, "self.on of the last of self.blocks"),
        (
            PLAIN.replace("f in self.blocks", "n, f in enumerate(self.blocks)") + ALL,
            "self.on of the last of self.blocks",
        ),
        (
            PLAIN.replace("f in", "f in reversed(").replace("blocks:", "blocks):") + ALL,
            "self.on of the last of self.blocks",
        ),
        (
            PLAIN.replace("f in self.blocks", "n in range(len(self.blocks))").replace("f(h)", "self.blocks[n](h)")
            + ALL,
            "self.on of the last of self.blocks",
        ),
        (PLAIN.replace("total += s", "given.append(s)") + f"{NEXT}total = sum(given)" + ALL, "self.on of the last"),
        (PLAIN.replace("h, s = f(h)", f"h, s = f(h){IN}h = torch.relu(h)") + ALL, "self.on of the last of self.blocks"),
        (f"with torch.enable_grad():{IN}{PLAIN.replace(NEXT, IN)}" + ALL, "self.on of the last of self.blocks"),
        (PAIRS + USED, "the last of self.downs"),
        (PAIRS.replace("h = down(h)", f"r = down(h){IN}h = h + torch.relu(r)") + USED, "the last of self.downs"),
        (SWITCH + ALL, "self.on of the last of self.blocks"),
    ],
)
def test_what_the_last_of_a_list_hands_on_is_not_read(loop: str, part: str) -> None:
    (message,) = messages(BEFORE.replace("LOOP", loop))
    assert message.startswith(f"Net reads nothing of what {part}")
    assert "of a single process, too" in message


@pytest.mark.parametrize(
    ("loop", "changed"),
    [
        (PLAIN + f"{NEXT}total = total + h" + ALL, ()),
        (PLAIN + f"{IN}given.append(h)" + f"{NEXT}total = total + given[-1]" + ALL, ()),
        (PLAIN.replace("total += s", "total = total + s + h") + ALL, ()),
        (PLAIN + f"{IN}if total.sum() > 1:{IN}    break" + ALL, ()),
        (PLAIN.replace("h, s = f(h)", f"if total is 0:{IN}    h, s = f(h){IN}else:{IN}    s = f(h)[1]") + ALL, ()),
        (PLAIN.replace("h, s = f(h)", f"h, s = f(h){IN}h = h.add_(s)") + ALL, ()),
        (PLAIN + USED + ALL, ()),  # run elsewhere, too
        (PLAIN + ALL, (("return (x + z) * 0.5, self.out(y)", "return z, self.out(y) + z.mean()"),)),
        (PLAIN + ALL, (("return (x + z) * 0.5, self.out(y)", "y.add_(z); return z, self.out(y)"),)),
        (PLAIN + ALL, (("return (x + z) * 0.5, self.out(y)", "self.seen = z; return z, self.out(y)"),)),
        (PLAIN + ALL, (("            self.on = ", "            if side > 4:\n                self.on = "),)),
        (PLAIN + ALL, (("self.on = nn.Linear(width, width)", "self.on = nn.ReLU()"),)),
        (PLAIN + ALL, (("self.blocks.append(Block(width, side))", "self.blocks.append(make(width))"),)),
        (PLAIN + ALL, (("model = DDP(model)", "model.blocks[-1].on.weight.sum().backward()\n    model = DDP(model)"),)),
        (PAIRS + f"{NEXT}total = total + h" + USED, ()),
        (PAIRS.replace("given.append(side(h))", f"h = down(h){IN}given.append(side(h))") + USED, ()),
        (SWITCH + ALL, (("Net(8)", "Net(8, side=options.side)"),)),
        (SWITCH.replace("total = h", "total = total + h").replace("if not self.both", "if self.both") + ALL, ()),
    ],
)
def test_what_is_read_or_may_be(loop: str, changed: tuple[tuple[str, str], ...]) -> None:
    text = BEFORE.replace("LOOP", loop)
    for old, new in changed:
        assert old in text
        text = text.replace(old, new)
    assert not messages(text)


def test_the_other_side_of_a_switch() -> None:
    (message,) = messages(BEFORE.replace("LOOP", SWITCH + ALL).replace("side=4):", "side=None):"))
    assert message.startswith("Net reads nothing of what self.out of the last of self.blocks gives")
