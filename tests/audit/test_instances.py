"""A region whose switch is a field of its object: another object of the class, never set up, ran in half too under O1."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, program, told

TRAINER = """
    import torch
    {imports}

    class Base:
        def __init__(self, model):
            self.model = model
            {new}

        def evaluate(self, loader):
            self.model.eval()
            return [self.run(x) for x in loader]

        def run(self, x):
            {region}
                return self.model(x)

    class Trainer(Base):
        def train(self, loader):
            opt = torch.optim.SGD(self.model.parameters(), 0.1)
            {set_up}
            for x in loader:
                loss = self.run(x).sum()
                {step}
            {after}
"""
BEFORE = {
    "imports": "from apex import amp",
    "new": "pass",
    "region": "if True:",
    "set_up": 'self.model, opt = amp.initialize(self.model, opt, opt_level="{level}")',
    "step": "with amp.scale_loss(loss, opt) as scaled: scaled.backward()\n                opt.step()",
    "after": "pass",
}
AFTER = {
    "imports": "",
    "new": 'self.scaler = torch.amp.GradScaler("cuda", enabled=False)',
    "region": 'with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()):',
    "set_up": 'self.scaler = torch.amp.GradScaler("cuda")',
    "step": "self.scaler.scale(loss).backward()\n                self.scaler.step(opt)\n                self.scaler.update()",
    "after": "pass",
}
FLAG = {
    **AFTER,
    "new": "self.amp = False",
    "region": 'with torch.autocast("cuda", dtype=torch.float16, enabled=self.amp):',
    "set_up": 'self.amp = True\n            self.scaler = torch.amp.GradScaler("cuda")',
}
SCRIPT = """
    from trainer import Trainer
    from networks import Net

    def main(args):
        {body}

    main(parse())
"""
ANOTHER = """
        trainer = Trainer(Net())
        if args.train:
            trainer.train(data)
        if args.eval:
            trainer = Trainer(Net())
            trainer.evaluate(data)
"""


def found(body: str, after: dict[str, str] = AFTER, *, level: str = "O1") -> list[tuple[str, int]]:
    """Where AMP531 speaks of another object."""
    texts = {
        "trainer.py": TRAINER.format(**{**BEFORE, "set_up": BEFORE["set_up"].format(level=level)}),
        "main.py": SCRIPT.format(body=program(body).replace("\n", "\n        ")),
        "networks.py": "import torch\n\nclass Net(torch.nn.Linear):\n    pass\n",
    }
    doubts = doubts_of(texts, {"trainer.py": TRAINER.format(**after)})
    assert {verdict for _, verdict in told(doubts, "AMP531")} <= {"review", "look"}
    return [
        (d.path, d.line) for d in doubts if d.code == "AMP531" and "another" not in d.message and "made at" in d.message
    ]


@pytest.mark.parametrize("after", [AFTER, FLAG], ids=["scaler", "flag"])
@pytest.mark.parametrize(
    "body",
    [
        ANOTHER,
        "a, b = Trainer(Net()), Trainer(Net())\na.train(data)\nb.evaluate(data)",
        "kinds = {'plain': (Trainer, 1)}\nkind, n = kinds[args.kind]\nt = kind(Net())\nt.train(data)\nu = kind(Net())\n"
        "u.evaluate(data)",
        "Trainer(Net()).train(data)\nt = Trainer(Net())\nt.run(1)",
    ],
    ids=["a new one under the name", "two", "a class chosen by a key", "called at once"],
)
def test_an_object_that_nothing_sets_up_is_told(body: str, after: dict[str, str]) -> None:
    assert found(body, after) == [("trainer.py", 15)]


@pytest.mark.parametrize(
    "body",
    [
        "t = Trainer(Net())\nt.train(data)\nt.evaluate(data)",
        "a, b = Trainer(Net()), Trainer(Net())\na.train(data)\nb.train(data)\nb.evaluate(data)",
        "b = Trainer(Net())\nb.evaluate(data)\na = Trainer(Net())\na.train(data)",
        "t = load()\nTrainer(Net()).train(data)\nt.evaluate(data)",
    ],
    ids=["the same", "both set up", "evaluated before", "out of sight"],
)
def test_objects_that_are_right_or_not_known_are_not(body: str) -> None:
    assert found(body) == []


def test_nor_where_only_the_weights_were_half() -> None:
    assert found(ANOTHER, level="O2") == []


@pytest.mark.parametrize(
    "after",
    [
        {**AFTER, "new": 'self.scaler = torch.amp.GradScaler("cuda")'},
        {**FLAG, "new": "self.amp = model.half"},
        {**AFTER, "after": "Trainer.scaler = self.scaler", "new": "pass"},
    ],
    ids=["on from the start", "as the model says", "of the class"],
)
def test_nor_where_each_object_has_its_switch(after: dict[str, str]) -> None:
    assert found(ANOTHER, after) == []
