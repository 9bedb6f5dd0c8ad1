"""The step of optimizers that objects of one class hold, each its own: AMP231; and files that are spelled oddly."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, told

PROGRAM = """
import torch
{imports}

class Updater:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def __call__(self):
        self.run()

    def run(self):
        {step}

one, two = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
first = torch.optim.SGD(one.parameters(), lr=0.1)
second = torch.optim.SGD(two.parameters(), lr=0.1)
{set_up}
a, b = Updater(first), Updater(second)
for x in loader:
    first.zero_grad()
    second.zero_grad()
    {train}
    scaler.update()
"""
SET_UP = '[one, two], [first, second] = amp.initialize([one, two], [first, second], opt_level="O1")'
BEFORE = ("with amp.scale_loss(one(x).sum() + two(x).sum(), [first, second]) as scaled:", "    scaled.backward()")
AFTER = (
    'with torch.autocast("cuda", dtype=torch.float16):',
    "    loss = one(x).sum() + two(x).sum()",
    "scaler.scale(loss).backward()",
)


def said(*order: str) -> list[str]:
    """What is told of a program that does these things for each batch; "B" is the backward of both losses."""

    def text(backward: tuple[str, ...], **parts: str) -> str:
        lines = [line for part in order for line in (backward if part == "B" else (part,))]
        return PROGRAM.format(train="\n    ".join(lines), **parts)

    old = text(BEFORE, imports="from apex import amp", step="self.optimizer.step()", set_up=SET_UP)
    scaler = 'scaler = torch.amp.GradScaler("cuda")'
    new = text(AFTER, imports="", step="scaler.step(self.optimizer)", set_up=scaler)
    return [d.message for d in doubts(old.replace("    scaler.update()\n", ""), new) if d.code == "AMP231"]


@pytest.mark.parametrize("call", ["{}()", "{}.run()"])
def test_each_object_steps_its_own_optimizer(call: str) -> None:
    a, b = call.format("a"), call.format("b")
    assert said("B", a, b) == []
    assert said("B", b, a) == []
    for wrong in ((a, "B", b), ("B", a, a), (b, "B", a)):
        assert said(*wrong) != [], wrong


MODEL = """
import torch
{imports}

class Trainer:
    def {gap}prepare(self):
        self.model = torch.nn.Linear(4, 2).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.set_up()

    def {gap}set_up(self):
        {set_up}

    def train(self, loader):
        for x in loader:
            {forward}
            {step}

trainer = Trainer()
trainer.prepare()
trainer.train([])
"""


@pytest.mark.parametrize("gap", ["", "\\\n        "])
def test_a_definition_may_go_on_on_the_next_line(gap: str) -> None:
    setting = 'self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")'
    scaled = "with amp.scale_loss(loss, self.optimizer) as scaled:\n                scaled.backward()"
    old = MODEL.format(
        imports="from apex import amp",
        gap=gap,
        set_up=setting,
        forward="loss = self.model(x).sum()",
        step=f"{scaled}\n            self.optimizer.step()",
    )
    new = MODEL.format(
        imports="",
        gap=gap,
        set_up='self.scaler = torch.amp.GradScaler("cuda")',
        forward='with torch.autocast("cuda", dtype=torch.float16):\n                loss = self.model(x).sum()',
        step="self.scaler.scale(loss).backward()\n            self.scaler.step(self.optimizer)\n            self.scaler.update()",
    )
    assert [d for d in doubts(old, new) if d.verdict == "refuse"] == []


@pytest.mark.parametrize("gap", [" ", " \\\n    ", "\t"])
def test_an_import_may_go_on_on_the_next_line(gap: str) -> None:
    helper = "import torch\n\ndef evaluate(model, x):\n    return model(x)\n"
    main = f"""
import torch
{{imports}}
from{gap}helper{gap}import{gap}evaluate

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{{set_up}}
model.eval()
print(evaluate(model, torch.rand(2, 4)))
"""
    setting = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    before = {"helper.py": helper, "main.py": main.format(imports="from apex import amp", set_up=setting)}
    after = {"main.py": main.format(imports="", set_up='scaler = torch.amp.GradScaler("cuda")')}
    assert told(doubts_of(before, after), "AMP531") == [(4, "review")]
