"""Programs that rely on weights being half, which they were under O2 and O3."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

BEFORE = """
    import torch
    from apex import amp

    class Net(torch.nn.Module):
        def __init__(self, table):
            super().__init__()
            self.table = torch.nn.Embedding(10, 4)
            self.scale = torch.nn.Parameter(torch.ones(4))
            self.kept = table.clone().half()
            self.plain = table.clone()
            self.steps = 0

        def forward(self, ids):
            {body}
            return self.table(ids) * self.scale

    def main(args, data, optimizer):
        model = Net(torch.randn(10, 4)).cuda()
        model, optimizer = amp.initialize(model, optimizer, opt_level={level})
        {tail}
        for x in data:
            loss = model(x).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()

    main(parse(), [], None)
"""
SCALED = """            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
"""
AFTER = (
    BEFORE.replace("    from apex import amp\n", "")
    .replace(
        "model, optimizer = amp.initialize(model, optimizer, opt_level={level})",
        'scaler = torch.amp.GradScaler("cuda")',
    )
    .replace(
        SCALED,
        "            scaler.scale(loss).backward()\n            scaler.step(optimizer)\n            scaler.update()\n",
    )
    .replace(
        "            loss = model(x)",
        '            with torch.autocast("cuda", dtype=torch.float16):\n                loss = model(x)',
    )
)


def found(body: str = "pass", tail: str = "pass", level: str = '"O2"') -> list[str]:
    texts = (text.format(body=body, tail=tail, level=level) for text in (BEFORE, AFTER))
    return [verdict for _, verdict in told(doubts(*texts), "AMP547")]


@pytest.mark.parametrize("level", ['"O2"', '"O3"', "args.opt_level"])
@pytest.mark.parametrize(
    "body",
    [
        "assert torch.all(torch.eq(self.table.weight, self.kept))",
        "assert (self.table.weight == self.kept).all()",
        "assert self.table.weight.eq(self.kept).all()",
        "assert torch.equal(self.kept, self.table.weight.data)",
        "assert torch.allclose(self.scale, self.kept[0])",
        "weight = self.table.weight.detach(); print(weight != self.kept)",
    ],
)
def test_a_weight_that_is_compared_with_what_is_half(body: str, level: str) -> None:
    assert found(body, level=level) == ["review"]


@pytest.mark.parametrize(
    ("body", "tail", "verdict"),
    [
        ("pass", "half = next(model.parameters()).dtype == torch.float16", "look"),
        ("pass", "assert next(model.parameters()).dtype == torch.half", "review"),
        ("pass", "print([p.dtype in (torch.half, torch.bfloat16) for p in model.parameters()])", "look"),
        ("assert self.table.weight.type() == 'torch.cuda.HalfTensor'", "pass", "review"),
        (
            "pass",
            "flat = torch.cat([p.detach().view(-1) for p in model.parameters()]); assert flat.dtype == torch.half",
            "review",
        ),
        (
            "pass",
            "first = [p.clone().half() for p in model.parameters()]\n"
            "        for p, q in zip(model.parameters(), first):\n            assert torch.equal(p, q)",
            "review",
        ),
        ("if isinstance(self.scale, torch.cuda.HalfTensor): print('half')", "pass", "look"),
        ("if self.table.weight.dtype != torch.half:\n                raise TypeError", "pass", "review"),
    ],
)
def test_a_weight_that_is_asked_whether_it_is_half(body: str, tail: str, verdict: str) -> None:
    assert found(body, tail) == [verdict]


@pytest.mark.parametrize(
    ("body", "level"),
    [
        ("assert torch.equal(self.table.weight, self.plain)", '"O2"'),
        ("assert torch.equal(self.table.weight.half(), self.kept)", '"O2"'),
        ("print(ids.dtype == torch.half, self.steps == 0, self.kept)", '"O2"'),
        ("print(self.table.weight.dtype == torch.float32, self.kept)", '"O2"'),
        (
            "for p in self.parameters():\n                if p.dtype == torch.half:\n                    p.data = p.data.float()",
            '"O2"',
        ),
        ("print([p.float() if p.dtype is torch.half else p for p in self.parameters()])", '"O2"'),
        ("assert torch.equal(self.table.weight, self.kept)", '"O1"'),
        ("plain = self.plain; assert torch.equal(self.table.weight, plain); print(self.kept)", '"O2"'),
        (
            "for p, q in zip(self.parameters(), [self.kept]):\n                assert p.dtype == q.dtype == torch.half",
            '"O2"',
        ),
    ],
)
def test_nothing_is_told_of_the_rest(body: str, level: str) -> None:
    assert found(body, level=level) == []


@pytest.mark.parametrize(
    ("more", "told_of"),
    [
        ("", False),
        ("class Both(Head):\n        def __init__(self):\n            self.head = Head()\n", False),
        ("HEADS = [Head]\n", True),
        ('HEADS = ["Head"]\n', True),
        ("class Both:\n        def __init__(self):\n            self.head = Head()\n\n    both = Both()\n", True),
    ],
)
def test_a_class_that_no_program_makes_an_object_of_asks_nobody(more: str, told_of: bool) -> None:
    head = """
    class Head(torch.nn.Module):
        def forward(self, x):
            return x * 2 if next(self.parameters()).dtype == torch.float16 else x

    MORE
    """
    texts = [
        text.format(body="pass", level="args.level", tail="pass").replace(
            "    class Net(", head.replace("MORE", more) + "\n    class Net(", 1
        )
        for text in (BEFORE, AFTER)
    ]
    assert bool([d for d in doubts(*texts) if d.code == "AMP547"]) is told_of
