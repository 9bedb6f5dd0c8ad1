"""A network that is made anew under an optimizer that is not: its step raises now, AMP233."""

from __future__ import annotations

import textwrap

import pytest

from tests.audit.helpers import doubts

HEAD = """
import copy
import torch
import torch.nn.functional as F
{imports}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(x)

def build():
    net = Net()
    return net

spare = Net()

def kept():
    return spare

def nothing():
    print("nothing")

"""
STEP = """
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
AFTER_STEP = """
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
INITIALIZE = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
SCALER = 'scaler = torch.amp.GradScaler("cuda")'


def said(text: str, runs: str = "model") -> list[tuple[int, str]]:
    """Lines (of the text) and messages for a program in which STEP and INITIALIZE stand where Apex was; what it `runs`."""
    text = textwrap.dedent(text)
    old = HEAD.format(imports="from apex import amp") + text
    new = HEAD.format(imports="") + text.replace(STEP.strip("\n"), AFTER_STEP.strip("\n")).replace(INITIALIZE, SCALER)
    new = new.replace("self.optimizer.step()", "self.scaler.step(self.optimizer)\n        self.scaler.update()")
    above = HEAD.strip("\n").format(imports="from apex import amp").count("\n") + 2
    old, new = (side.replace("model(x), y", f"{runs}(x), y") for side in (old, new))
    return [(d.line - above, d.message) for d in doubts(old, new) if d.code == "AMP233"]


def script(inside: str = "", after: str = "", before: str = "") -> str:
    def block(text: str, depth: int) -> str:
        return textwrap.indent(text + "\n", "    " * depth) if text else ""

    return (
        "model = Net().cuda()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        + block(before, 0)
        + f"{INITIALIZE}\nfor epoch in range(3):\n    for x, y in loader:{STEP}{block(inside, 2)}{block(after, 1)}"
    )


@pytest.mark.parametrize(
    "anew",
    [
        "model = Net().cuda()",
        "model: torch.nn.Module = Net()",
        "model = build()",
        "model = copy.deepcopy(model)",
        "model = torch.load('best.pt')",
        "if epoch == 1:\n    model = Net()",
        "model = torch.nn.Sequential(torch.nn.Linear(4, 2))",
    ],
)
def test_a_turn_later_the_step_raises(anew: str) -> None:
    ((_, message),) = said(script(after=anew))
    assert "No inf checks were recorded" in message
    assert len(said(script(inside=anew))) == 1


@pytest.mark.parametrize(
    "same",
    [
        "model = Net().cuda()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        "model = torch.nn.DataParallel(model)",
        "model = model.cuda()",
        "model = kept()",
        "model = nothing()",
        "model = Net()\nmodel, other = pair()",
        "other = Net()",
        "model = Net()\noptimizer.add_param_group({'params': model.parameters()})",
        "model = Net()\nbreak",
        "model.head = torch.nn.Linear(4, 2)\nbreak",
    ],
)
def test_what_keeps_them_together_is_right(same: str) -> None:
    assert said(script(after=same)) == []


def test_after_the_training_it_harms_nobody() -> None:
    assert said(script() + "model = torch.load('best.pt')\nprint(model(x))\n") == []


def test_before_apex_was_set_up() -> None:
    assert len(said(script(before="model = Net()"))) == 1


def test_through_functions() -> None:
    text = f"""
def train(model, loader, optimizer):
    for x, y in loader:{STEP}
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{INITIALIZE}
for epoch in range(3):
    train(model, loader, optimizer)
    {{}}
"""
    assert said(text.format("pass")) == []
    assert len(said(text.format("model = Net()"))) == 1
    assert said(text.format("best = copy.deepcopy(model)")) == []


def test_within_the_function_that_is_given_both() -> None:
    text = f"""
def train(net, loader, optimizer):
    model = net
    for x, y in loader:{STEP}
def train_anew(model, loader, optimizer):
    model = Net()
    for x, y in loader:{STEP}
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{INITIALIZE}
train(model, loader, optimizer)
{{}}
"""
    assert said(text.format("")) == []
    assert len(said(text.format("train_anew(model, loader, optimizer)"))) == 1


TRAINER = """
class Trainer:
    def __init__(self):
        self.build()
        self.scaler = None
        {setting}

    def build(self):
        self.model = Net()
        {built}

    def optimizers(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, loader):
        for x, y in loader:
            self.one(x, y)
            {turn}

    def one(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        {scaled}
        self.optimizer.step()
"""
TRAINER += "".join(f"\n    def report_{number}(self):\n        print({number})\n" for number in range(5))


def trainer(built: str = "pass", turn: str = "pass") -> list[tuple[str, int]]:
    setting = 'self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")'
    scaled = "with amp.scale_loss(loss, self.optimizer) as scaled_loss:\n            scaled_loss.backward()"
    new_setting = 'self.scaler = torch.amp.GradScaler("cuda")'
    use = "Trainer().train(loader)\n"
    parts = {"built": built, "turn": turn}
    make = "" if "self.optimizers()" in built else "self.optimizers()\n        "
    old = HEAD.format(imports="from apex import amp") + TRAINER.format(setting=make + setting, scaled=scaled, **parts)
    new = HEAD.format(imports="") + TRAINER.format(
        setting=make + new_setting, scaled="self.scaler.scale(loss).backward()", **parts
    ).replace("self.optimizer.step()", "self.scaler.step(self.optimizer)\n        self.scaler.update()")
    found = doubts(old + use, new + use)
    return [(d.verdict, d.line) for d in found if d.code == "AMP233"]


def test_methods_of_an_object_that_holds_both() -> None:
    assert trainer() == []
    assert [v for v, _ in trainer(turn="self.model = Net()")] == ["review"]
    assert [v for v, _ in trainer(turn="self.build()")] == ["review"]
    assert trainer(turn="self.build()\n            self.optimizers()") == []
    assert trainer(built="self.optimizers()", turn="self.build()") == []
    reports = "".join(f"self.report_{number}()\n            " for number in range(5))
    assert [v for v, _ in trainer(turn=f"{reports}self.build()")] == ["review"]


def test_an_optimizer_of_two_networks_has_gradients_still() -> None:
    text = script(after="model = Net()").replace(
        "SGD(model.parameters()", "SGD([*model.parameters(), *other.parameters()]"
    )
    assert said("other = Net()\n" + text) == []


@pytest.mark.parametrize("other", ["model", "torch.nn.parallel.DistributedDataParallel(model, [0])"])
def test_what_runs_under_another_name_is_another_question(other: str) -> None:
    text = script(after="model = Net()").replace("for epoch", f"ddp = {other}\nfor epoch")
    assert said(text, runs="ddp") == []
    assert len(said(text)) == 1


def test_where_a_function_is_given_the_optimizer_alone() -> None:
    helper = "def apply(optimizer):\n    optimizer.step()\n"
    text = script(after="model = Net()")
    old = HEAD.format(imports="from apex import amp") + helper + text.replace("optimizer.step()", "apply(optimizer)")
    new = HEAD.format(imports="") + helper.replace("(optimizer):", "(optimizer, scaler):").replace(
        "optimizer.step()", "scaler.step(optimizer)\n    scaler.update()"
    )
    after = AFTER_STEP.replace("scaler.step(optimizer)", "apply(optimizer, scaler)").replace(
        "        scaler.update()\n", ""
    )
    new += text.replace(STEP.strip("\n"), after.strip("\n")).replace(INITIALIZE, SCALER)
    assert [d.verdict for d in doubts(old, new) if d.code == "AMP233"] == ["review"]
