"""What is told to decide whether a forward ran in half does decide it, and a region whose switch is off is told as one."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
import torch
from apex import amp

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.line(x)

class Trainer:
    def __init__(self, args, model, optimizer, data):
        self.args = args
        GUARD
        self.native = args.fp16 and args.level is None
        if args.fp16 and args.level is not None:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        self.model, self.optimizer = model, optimizer

    def train(self, batches):
        for x, y in batches:
            self.evaluate(x)
            loss = self.model(x).sum()
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()

    def evaluate(self, x):
        with torch.no_grad():
            with torch.cuda.amp.autocast(enabled=SWITCH):
                print(self.model(x))

def main(args):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    Trainer(args, model, optimizer, load()).train(load())

if __name__ == "__main__":
    main(parse())
"""
SET_UP = """        if args.fp16 and args.level is not None:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        self.model"""
SCALED = """            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
"""
STOPS = "if args.drop and args.schedule is not None:\n            raise ValueError"
ELSE = "if args.folder is None:\n            raise ValueError\n        elif args.drop:\n            raise ValueError"
RETURNS = "if args.dry:\n            return"


def _said(
    guard: str, switch: str = "self.native", region: str = "torch.cuda.amp.autocast(enabled=self.native)"
) -> list[str]:
    before = BEFORE.replace("GUARD", guard).replace("SWITCH", switch)
    after = before.replace(SET_UP, "        self.model").replace("from apex import amp\n", "")
    after = after.replace(SCALED, "            loss.backward()\n").replace(
        "loss = self.model", "with REGION:\n                loss = self.model"
    )
    after = after.replace("REGION", 'torch.autocast("cuda", enabled=self.args.fp16 and self.args.level is not None)')
    after = after.replace(f"torch.cuda.amp.autocast(enabled={switch})", region)
    return [d.message for d in doubts(before, after) if d.code == "AMP531"]


@pytest.mark.parametrize("guard", ["pass", STOPS, ELSE])
def test_what_only_lets_a_run_go_on_decides_nothing(guard: str) -> None:
    (message,) = _said(guard)
    assert "under Apex where fp16 and level is not None; called from" in message


def test_what_leaves_without_a_set_up_does() -> None:
    gained, lost = _said(RETURNS)
    assert "now where dry and fp16 and level is not None, where Apex had not been set up" in gained
    assert "under Apex where not dry and fp16 and level is not None; called from" in lost


def test_a_region_that_is_off_is_there() -> None:
    (message,) = _said("pass")
    assert "the autocast region around it is off there now (self.native)" in message
    assert "no autocast region" not in message


def test_without_one_there_is_none() -> None:
    (message,) = _said("pass", region="torch.enable_grad()")
    assert "no autocast region is around it" in message


def test_the_scaler_is_on_as_the_way_came_by_its_making() -> None:
    """`main(True)`: what `enabled=fp16` says there, a run with another value is none that is compared."""
    before = """
import torch
from apex import amp

def step(model, optimizer, x, y):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()

def main(batches, fp16):
    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in batches:
        optimizer.zero_grad()
        step(model, optimizer, x, y)

main(load(), True)
"""
    after = (
        before.replace("from apex import amp\n", "")
        .replace(
            '    if fp16:\n        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n',
            '    scaler = torch.amp.GradScaler("cuda", enabled=fp16)\n',
        )
        .replace("step(model, optimizer, x", "step(model, optimizer, scaler, x")
        .replace(
            "    loss = ",
            '    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):\n        loss = ',
        )
        .replace(
            "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n    optimizer.step()",
            "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()",
        )
    )
    assert not doubts(before, after)
    off = after.replace("scaler.is_enabled()):", "False):")
    assert [d.code for d in doubts(before, off)] == ["AMP531"]


@pytest.mark.parametrize(
    ("check", "shorter"),
    [
        ('assert kind in ["none", "apex", "native"]', 'assert kind in ["none", "native"]'),
        (
            'if kind not in ("none", "apex", "native"):\n        raise ValueError',
            'if kind not in ("none", "native"):\n        raise ValueError',
        ),
    ],
)
def test_a_value_that_the_program_takes_no_more_is_asked_for_by_no_run(check: str, shorter: str) -> None:
    before = """
import torch
from apex import amp

def main(kind, batches):
    CHECK
    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if kind == "apex":
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast("cuda", enabled=kind == "native"):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        if kind == "apex":
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
""".replace("CHECK", check)
    after = before.replace("from apex import amp\n", "")
    for line in before.splitlines():
        if "amp." in line or "scaled_loss" in line:
            after = after.replace(f"{line}\n", "")
    after = after.replace('    if kind == "apex":\n    for', "    for").replace(
        '        if kind == "apex":\n        else:\n            loss.backward()', "        loss.backward()"
    )
    assert [d.code for d in doubts(before, after)] == ["AMP531"]
    assert not doubts(before, after.replace(check, shorter))


OUT_OF_SIGHT = """
import argparse

import torch
from apex import amp
from somewhere import evaluator

parser = argparse.ArgumentParser()
parser.add_argument("--level")
parser.add_argument("--check", action="store_true")
parser.add_argument("--submit", action="store_true")


def main():
    args = parser.parse_args()
    if args.check and args.submit:
        STOP
    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fp16 = bool(args.level)
    if fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    evaluate = evaluator.create_evaluator(model)
    for x in evaluate:
        loss = model(x).sum()
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()


main()
"""


@pytest.mark.parametrize("stop", ['parser.error("one of both")', 'raise SystemExit("one of both")', "print(args)"])
def test_what_is_refused_at_the_start_decides_nothing_of_code_out_of_sight(stop: str) -> None:
    before = OUT_OF_SIGHT.replace("STOP", stop)
    after = before.replace(
        "    if fp16:\n        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)\n", SCALER
    )
    (message,) = [d.message for d in doubts(before, after) if "is out of sight" in d.message]
    assert "where level and level is not 'O0', and runs" in message


SCALER = '    scaler = torch.amp.GradScaler("cuda", enabled=fp16 and args.level != "O0")\n'


OPTIONAL = """
import argparse

import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--level", default="O1")
parser.add_argument("--hinge", action="store_true")


def train(args, batches, model, seen=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        if seen is not None:
            [model, seen], optimizer = amp.initialize([model, seen], optimizer, opt_level=args.level)
        else:
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    for x in batches:
        target = seen(x) if args.hinge else x
        loss = (model(x) - target).sum()
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()


def main():
    args = parser.parse_args()
    model = torch.nn.Linear(2, 2).cuda()
    seen = torch.nn.Linear(2, 2).cuda() if args.hinge else None
    train(args, [], model, seen=seen)


main()
"""


def test_a_network_that_is_none_is_not_run() -> None:
    before = OPTIONAL
    start, end = before.index("    if args.fp16:\n        if seen"), before.index("    for x in")
    after = before[:start] + SCALER.replace("fp16 and", "args.fp16 and") + before[end:]
    region = '        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):\n    '
    after = after.replace("        target = seen", f"{region}        target = seen").replace(
        "        loss = (model", "            loss = (model"
    )
    start, end = after.index("        if args.fp16:\n            with"), after.index("        optimizer.step")
    rest = after[end:].replace("        optimizer.step()\n", "")
    steps = "scaler.scale(loss).backward()", "scaler.step(optimizer)", "scaler.update()"
    after = after[:start] + "".join(f"        {step}\n" for step in steps) + rest
    assert not [d.message for d in doubts(before, after) if d.code == "AMP531"]
