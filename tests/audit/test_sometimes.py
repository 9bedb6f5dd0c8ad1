"""A field that the constructor assigns under a test is read in runs in which that came out so."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, program, told

TRAINER = """
    import torch
    {imports}

    class Net(torch.nn.Linear):
        pass

    class Trainer:
        def __init__(self, args, train):
            self.args = args
            self.model = Net(4, 4)
            {init}

        def fit(self, data):
            for x in data:
                with nothing():
                    loss = self.model(x).sum()
                {step}

        def evaluate(self, data):
            {before}
            for x in data:
                with nothing(){region}:
                    print(self.model(x))

    def main(args):
        {body}

    main(parse())
"""
UNDER = "if {test}:\n                self.opt = torch.optim.SGD(self.model.parameters(), 0.1)\n                {made}"
SET_UP = 'self.model, self.opt = amp.initialize(self.model, self.opt, opt_level="O1")'
READ = ', torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled())'
BODY = "trainer = Trainer(args, args.train)\n{fit}trainer.evaluate(data)"
FIT = "if args.train:\n    trainer.fit(data)\n"


def found(
    test: str = "args.train",
    body: str = BODY.format(fit=FIT),
    *,
    before: str = "pass",
    first: str = "",
    region: str = READ,
) -> list[str]:
    """Verdicts on a scaler that the constructor makes under a test; `first`: what it assigns in any case."""
    inner = program(body).rstrip("\n").replace("\n", "\n        ")
    old = TRAINER.format(
        imports="from apex import amp",
        init=UNDER.format(test=test, made=SET_UP),
        step="with amp.scale_loss(loss, self.opt) as s: s.backward()\n                self.opt.step()",
        before=before,
        region="",
        body=inner,
    )
    new = TRAINER.format(
        imports="",
        init=first + UNDER.format(test=test, made='self.scaler = torch.amp.GradScaler("cuda")'),
        step="self.scaler.scale(loss).backward()\n                self.scaler.step(self.opt)\n                self.scaler.update()",
        before=before,
        region=region,
        body=inner,
    )
    return [v for _, v in told(doubts(old, new), "AMP131")]


@pytest.mark.parametrize("test", ["args.train", "train", "self.args.train"])
def test_a_run_without_is_refused(test: str) -> None:
    assert found(test) == ["refuse"]


def test_a_library_is_looked_at() -> None:
    assert found(body="pass") == ["look"]


@pytest.mark.parametrize(
    "body",
    [
        BODY.format(fit=FIT).replace("trainer.evaluate", "if args.train:\n    trainer.evaluate"),
        "if args.train:\n    trainer = Trainer(args, True)\n    trainer.fit(data)\n    trainer.evaluate(data)",
        "if not args.train:\n    return\n" + BODY.format(fit=FIT),
    ],
    ids=["asked there", "made there", "left before"],
)
def test_not_where_the_same_is_asked_on_the_way(body: str) -> None:
    assert found(body=body) == []


@pytest.mark.parametrize("asked", ["self.args.train", "hasattr(self, 'scaler')"])
def test_nor_where_the_method_asks(asked: str) -> None:
    guarded = f', torch.autocast("cuda", dtype=torch.float16, enabled={asked} and self.scaler.is_enabled())'
    assert found(region=guarded) == []


def test_nor_where_it_is_assigned_in_any_case() -> None:
    first = 'self.scaler = torch.amp.GradScaler("cuda", enabled=False)\n            '
    assert found(first=first) == []


@pytest.mark.parametrize(("leaves", "told"), [('raise ValueError("it only trains")', []), ("return", ["refuse"])])
def test_nor_where_the_constructor_raises_else_for_then_there_is_no_object(leaves: str, told: list[str]) -> None:
    assert found("True", first=f"if not args.train:\n                {leaves}\n            ") == told


def test_nor_where_the_method_needed_before_what_the_same_test_brings() -> None:
    assert found(before="print(self.opt.param_groups)") == []
