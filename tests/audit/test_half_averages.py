"""Averages that were kept in half at O2, since they were copied from the model after `initialize`: AMP541."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
import argparse
import copy
import torch
import torch.nn.functional as F
IMPORT

parser = argparse.ArgumentParser()
parser.add_argument("--level", default="O1")
args = parser.parse_args()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.body(x)

class Shadow:
    def __init__(self, model):
        self.model = model
        self.kept = {}
        self.start = {}
        for name, p in self.model.named_parameters():
            self.kept[name] = p.data.clone()
            self.start[name] = p.data.clone()

    def update(self, decay=0.99):
        for name, p in self.model.named_parameters():
            self.kept[name] = (decay * self.kept[name] + (1 - decay) * p.data).clone()

class Listed:
    def __init__(self, model):
        self.kept = [p.clone().detach() for p in model.parameters()]

    def update(self):
        for old, new in zip(self.kept, model.parameters()):
            old.sub_(0.01 * (old - new))

class Attack:
    def __init__(self, model):
        self.model = model
        self.backup = {}

    def update(self):
        for name, p in self.model.named_parameters():
            self.backup[name] = p.data.clone()
            p.data.add_(0.1 * p.grad)
        for name, p in self.model.named_parameters():
            print((p.data - self.backup[name]).norm())
            p.data = self.backup[name]

class Seen:
    def __init__(self, x):
        self.mean = (x + 1).clone()

    def update(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x

class Average:
    def __init__(self, model):
        self.model = model
        self.module = copy.deepcopy(model)
        self.module.eval()

    def update(self, decay=0.99):
        for old, new in zip(self.module.state_dict().values(), self.model.state_dict().values()):
            old.copy_(decay * old + (1 - decay) * new)

def update(one, other):
    for old, new in zip(one.parameters(), other.parameters()):
        old.data.mul_(0.99).add_(new.data, alpha=0.01)

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
EARLY
SETUP
LATE
for x, y in loader:
    STEP
    UPDATE
EVALUATE
"""
STEP = """
    loss = F.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
AFTER_STEP = """
    with torch.autocast("cuda", dtype=torch.float16, enabled=ENABLED):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
EVALUATE = """
ema.eval()
with torch.no_grad():
    for x, y in loader:
        print(ema(x).argmax(1))
"""
IN_REGION = """
ema.eval()
with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=ENABLED):
    for x, y in loader:
        print(ema(x).argmax(1))
"""
KINDS = {
    "a copy": ("ema = copy.deepcopy(model)", "update(ema, model)"),
    "kept by an object": ("ema = Average(model)", "ema.update()"),
    "clones of the weights": ("ema = Shadow(model)", "ema.update()"),
    "a list of clones": ("ema = Listed(model)", "ema.update()"),
}


def said(early: str, late: str, update: str, level: str = '"O2"', evaluate: bool = False) -> list[tuple[str, str]]:
    text = PROGRAM.replace("EARLY", early).replace("LATE", late).replace("UPDATE", update)
    initialize = f"model, optimizer = amp.initialize(model, optimizer, opt_level={level})"
    before = text.replace("IMPORT", "from apex import amp").replace("SETUP", initialize).replace("    STEP\n", STEP)
    scaler = 'scaler = torch.amp.GradScaler("cuda", enabled=ENABLED)'
    after = text.replace("IMPORT", "").replace("SETUP", scaler).replace("    STEP\n", AFTER_STEP)
    before, after = (t.replace("EVALUATE", e if evaluate else "") for t, e in ((before, EVALUATE), (after, IN_REGION)))
    found = doubts(before, after.replace("ENABLED", "True" if level.startswith('"') else 'args.level != "O0"'))
    return [(d.code, d.verdict) for d in found if d.code in ("AMP531", "AMP541")]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_copied_once_the_weights_are_half_is_told_once(kind: str) -> None:
    made, update = KINDS[kind]
    lost = kind == "kept by an object"  # which writes to what state_dict() gives
    assert said("", made, update) == [("AMP541", "review" if lost else "look")]
    assert said("", made, update, "args.level") == [("AMP541", "look")]


def test_what_is_written_to_a_state_dict_never_came_to_half_weights() -> None:
    """`initialize` made it give float32 copies of them, of models that it was given and of their copies."""
    update = "for p in model.state_dict().values():\n        p.mul_(0.99)"
    assert said("", "", update) == [("AMP541", "review")]
    assert said("kept = list(model.state_dict().values())", "", "kept[0].mul_(0.99)") == [("AMP541", "review")]
    assert not said("", "", update, '"O1"')
    assert not said("", "", update.replace("state_dict().values()", "parameters()"))
    assert not said("", "", "kept = {k: v.clone() for k, v in model.state_dict().items()}")


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_copied_before_or_at_o1_is_not(kind: str) -> None:
    made, update = KINDS[kind]
    assert not said(made, "", update)
    assert not said("", made, update, '"O1"')


def test_what_is_put_back_or_measured_against_is_no_average() -> None:
    assert not said("", "ema = Attack(model)", "ema.update()")


def test_an_average_of_what_is_no_weight() -> None:
    assert not said("", "ema = Seen(load())", "ema.update(x)")


def test_a_copy_that_nothing_writes_to_is_no_average() -> None:
    assert not said("", "ema = copy.deepcopy(model)", "print(x)")


def test_a_copy_of_half_weights_was_not_left_in_float32() -> None:
    """Its forward was the model's own, which Apex had patched: only one that was copied before is another network."""
    made, update = KINDS["a copy"]
    assert said("", made, update, evaluate=True) == [("AMP541", "look")]
    assert said(made, "", update, evaluate=True) == [("AMP531", "review")]


LIBRARY = """
import torch
{apex}

class Shadow:
    def __init__(self, model):
        self.model = model
        self.kept = {{name: p for name, p in model.named_parameters()}}

    def register(self):
        for name, p in self.model.named_parameters():
            self.kept[name] = p.data.clone()

    def update(self):
        for name, p in self.model.named_parameters():
            self.kept[name] = 0.9 * self.kept[name] + 0.1 * p.data

class Trainer:
    def __init__(self, loader):
        self.loader = loader
        self.model = torch.nn.Linear(4, 2).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.shadow = Shadow(self.model)
        {made}

    def prepare(self):
        {setup}

    def train(self):
        self.prepare()
        {later}
        for x, y in self.loader:
            {region}
                loss = (self.model(x) - y).sum()
            {backward}
            self.shadow.update()
"""


@pytest.mark.parametrize(
    ("made", "later", "expected"), [("self.shadow.register()", "pass", 0), ("pass", "self.shadow.register()", 1)]
)
def test_an_object_is_made_before_the_method_that_sets_apex_up(made: str, later: str, expected: int) -> None:
    before = LIBRARY.format(
        apex="from apex import amp",
        made=made,
        later=later,
        setup="self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level='O2')",
        region="if True:",
        backward="with amp.scale_loss(loss, self.optimizer) as scaled:\n                scaled.backward()\n"
        "            self.optimizer.step()",
    )
    after = LIBRARY.format(
        apex="",
        made=made,
        later=later,
        setup="self.scaler = torch.amp.GradScaler('cuda')",
        region="with torch.autocast('cuda', dtype=torch.float16):",
        backward="self.scaler.scale(loss).backward()\n            self.scaler.step(self.optimizer)\n"
        "            self.scaler.update()",
    )
    assert len([d for d in doubts(before, after) if d.code == "AMP541"]) == expected


MASTERS = """
import copy
import torch
import torch.nn.functional as F
IMPORT

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.body(x)

def restore(net, saved):
    own = net.state_dict()
    for name, value in saved.items():
        own[name].copy_(value)

model = Net().cuda()HALF
FIRST
optimizer = MADE
LAST
for x, y in loader:
    REGIONloss = F.cross_entropy(model(x).float(), y)
    BACKWARD
"""
RESTORE = 'restore(model, torch.load("last.pt"))'


def restored(first: str, last: str, made: str = "FP16_Optimizer(make(model))") -> list[str]:
    before = MASTERS.replace("IMPORT", "from apex.fp16_utils import FP16_Optimizer").replace("HALF", ".half()")
    before = before.replace("MADE", made).replace("BACKWARD", "optimizer.backward(loss)\n    optimizer.step()")
    after = MASTERS.replace("IMPORT\n", "").replace("HALF", "")
    after = after.replace("MADE", 'make(model)\nscaler = torch.amp.GradScaler("cuda")')
    after = after.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16):\n        ')
    after = after.replace("BACKWARD", "scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()")
    before, after = (t.replace("FIRST", first).replace("LAST", last).replace("REGION", "") for t in (before, after))
    return [d.message for d in doubts(before, after) if d.code == "AMP541"]


def test_what_is_written_to_half_weights_behind_their_masters_was_lost_with_the_first_step() -> None:
    """No set-up of `amp.initialize` casts what state_dict() gives here: the masters of FP16_Optimizer decide."""
    (message,) = restored("", RESTORE)
    assert "FP16_Optimizer had made its float32 masters" in message
    assert "float32 copies" not in message
    assert not restored(RESTORE, "")
    assert not restored("", RESTORE, made="make(model)")  # which keeps none


def test_a_copy_of_what_the_program_made_half_names_no_initialize() -> None:
    (message,) = restored("", "shadow = copy.deepcopy(model)\nfor p in shadow.parameters():\n    p.data.mul_(0.9)")
    assert "after it was made half" in message
