"""Ways through objects that no call is seen to make, through methods chosen by name, and levels put together: AMP531."""

from __future__ import annotations

import pytest

from amp_migrate.audit.ways.formulas import example
from tests.audit.helpers import doubts, told
from tests.rules.helpers import rewrite_files

AGENT = """
import torch
from apex import amp


class Agent:
    def __init__(self, mode="train", level=1):
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        SETUP

    def fit(self, loader):
        for x, y in loader:
            out = self.model(x)
            loss = torch.nn.functional.cross_entropy(out, y)
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    @torch.no_grad()
    def talk(self, x):
        return TALK.argmax(1)


class Louder(Agent):
    def answer(self, x):
        return self.talk(x)


class Quiet(Agent):
    def __init__(self):
        self.model = torch.nn.Linear(4, 2).cuda()
        self.optimizer = None

    def answer(self, x):
        return self.talk(x)
"""
INITIALIZE = 'self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="LEVEL")'
MAIN = """
from agents import Agent, Louder, Quiet
from data import loader

KINDS = {"agent": Agent, "louder": Louder}


def main(kind):
    agent = KINDS[kind]()
    agent.fit(loader)
    print(agent.talk(loader), agent.answer(loader))


if __name__ == "__main__":
    main("agent")
"""


def said(setup: str, talk: str = "self.model(x)", level: str = "O2", main: str = MAIN) -> list[str]:
    source = AGENT.replace("SETUP", setup).replace("TALK", talk).replace("LEVEL", level)
    found = rewrite_files({"agents.py": source, "main.py": main})
    assert found["agents.py"].status == "migrated"
    assert "torch.autocast" in (found["agents.py"].after or "")
    return [f.message for r in found.values() for f in r.findings if f.code == "AMP531"]


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_constructor_is_behind_when_a_method_runs(level: str) -> None:
    assert not said(INITIALIZE, level=level)


def test_a_constructor_that_sets_up_in_one_mode() -> None:
    assert not said(f'if mode == "train":\n            {INITIALIZE}')


def test_a_part_of_what_was_initialized_was_half_with_it() -> None:
    assert not said(INITIALIZE, "self.model[1](self.model[0](x))")
    source = AGENT.replace("SETUP", INITIALIZE).replace("LEVEL", "O2").replace("TALK", "self.model.head(x)")
    found = rewrite_files({"agents.py": source, "main.py": MAIN})
    assert not [f for f in found["agents.py"].findings if "was not given to amp.initialize" in f.message]


def test_an_object_made_in_sight_tells_by_itself() -> None:
    """The one that the program makes is asked for no mode that sets Apex up."""
    main = MAIN.replace("KINDS[kind]()", 'Agent("talk")').replace("    agent.fit(loader)\n", "")
    setup = f'if mode == "train":\n            {INITIALIZE}'
    source = AGENT.replace("SETUP", setup).replace("LEVEL", "O2").replace("TALK", "self.model(x)")
    found = rewrite_files({"agents.py": source, "main.py": main})
    after = found["agents.py"].after or ""
    assert "enabled=" in after.partition("def talk")[2] or [
        f for f in found["agents.py"].findings if f.code == "AMP531"
    ]


@pytest.mark.parametrize(
    "level",
    ['f"O{level}"', '"O%d" % level', '"O{}".format(level)', '"O" + str(level)', '"O%i" % (level,)'],
)
def test_a_level_made_of_a_number_that_is_asked_for(level: str) -> None:
    initialize = INITIALIZE.replace('"LEVEL"', level)
    assert not said(f"self.level = level\n        if level > 0:\n            {initialize}")


CHOSEN = """
import torch
from apex import amp


class Mixer:
    def __init__(self, kind):
        self.kind = kind

    def forward(self, model, x, y):
        return CHOICE(model, x, y)

    def mix_plain(self, model, x, y):
        return torch.nn.functional.cross_entropy(model(x), y)

    def mix_twice(self, model, x, y):
        return torch.nn.functional.cross_entropy(model(torch.cat([x, x])), torch.cat([y, y]))


def main(loader, kind):
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    mixer = Mixer(kind)
    for x, y in loader:
        loss = mixer.forward(model, x, y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""

AFTER = (
    ("from apex import amp\n", ""),
    ('model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', 'scaler = torch.amp.GradScaler("cuda")'),
    (
        "        loss = mixer.forward(model, x, y)\n",
        '        with torch.autocast("cuda", dtype=torch.float16):\n            loss = mixer.forward(model, x, y)\n',
    ),
    (
        "        with amp.scale_loss(loss, optimizer) as scaled_loss:\n            scaled_loss.backward()\n"
        "        optimizer.step()\n",
        "        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()\n",
    ),
)


@pytest.mark.parametrize(
    ("choice", "reached"),
    [
        ('getattr(self, "mix_" + self.kind)', True),
        ('getattr(self, f"mix_{self.kind}")', True),
        ('getattr(self, "mix_%s" % self.kind)', True),
        ('eval("self.{}".format(self.kind))', True),
        ('eval(f"self.{self.kind}")', True),
        ('getattr(self, "other_" + self.kind)', False),
        ('eval("len")', False),
    ],
)
def test_a_method_whose_name_is_put_together(choice: str, reached: bool) -> None:
    """It stands in the region around the call of what chooses it."""
    before = CHOSEN.replace("CHOICE", choice)
    after = before
    for old, new in AFTER:
        assert old in after
        after = after.replace(old, new)
    assert bool([d for d in doubts(before, after) if "is not seen" in d.message]) is not reached


def test_no_number_is_two() -> None:
    assert example(("and", ".level > 0", ".level == 0")) is None
    assert example(("and", ".level >= 0", ".level == 0")) is not None
    assert example(("and", ".level > 1", ".level < 2")) is not None  # 1.5
    assert example(("and", ".level > 2", ".level < 1")) is None
    assert example(("and", ".level > -1", ("not", ".level == 0"), ("not", ".level >= 1"))) is not None


def test_none_is_no_other_value() -> None:
    assert example(("and", ".level == O0", ".level is None")) is None
    assert example(("and", ("not", ".level == O0"), ".level is None")) is not None


MAKER = """
import torch
from apex import amp

class Trainer:
    def __init__(self, args, model, optimizer):
        self.model, self.optimizer = model, optimizer
        if args.drop and args.valid is None:
            raise RuntimeError("nothing to drop by")
        self.native = args.fp16 and args.level is None
        self.apex = args.fp16 and args.level is not None
        if self.apex:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=args.level)

    def step(self, args, x):
        if args.drop and args.valid is None:
            print("never")
        with torch.autocast("cuda", enabled=self.native):
            loss = self.model(x).sum()
        if self.apex:
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        self.optimizer.step()

def main(args):
    model = torch.nn.Linear(3, 3)
    trainer = Trainer(args, model, torch.optim.SGD(model.parameters(), 0.1))
    trainer.step(args, torch.ones(2, 3))

main(parse())
"""
NATIVE = """
        self.native = args.fp16 and args.level != "O0"

    def step(self, args, x):
        if args.drop and args.valid is None:
            print("never")
        with torch.autocast("cuda", enabled=self.native):
            loss = self.model(x).sum()
        loss.backward()
        self.optimizer.step()

def main(args):
"""


def test_no_method_runs_of_an_object_whose_making_raised() -> None:
    start, end = MAKER.index("        self.native"), MAKER.index("    model = torch.nn")
    after = (MAKER[:start] + NATIVE + MAKER[end:]).replace("from apex import amp\n", "")
    assert not told(doubts(MAKER, after), "AMP531")
    assert told(doubts(MAKER, after.replace(' and args.level != "O0"', "")), "AMP531") == [(18, "review")]


AVERAGED = """
import torch
from apex import amp
from data import loader

model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = torch.optim.swa_utils.AveragedModel(model)
model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update_parameters(model)
torch.optim.swa_utils.update_bn(loader, average)
"""


@pytest.mark.parametrize(("level", "said"), [("O1", 1), ("O2", 0)])
def test_a_function_of_torch_that_runs_a_model(level: str, said: int) -> None:
    found = rewrite_files({"train.py": AVERAGED.replace("LEVEL", level)})["train.py"]
    assert len([f for f in found.findings if f.code == "AMP531" and "update_bn" in f.message]) == said


TAKEN_BACK = """
import argparse
import torch
from apex import amp
from data import build, loader

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--cuda", action="store_true")
args = parser.parse_args()
if args.fp16:
    if not args.cuda:
        args.fp16 = False
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if SETUP:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    if args.fp16:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
with torch.no_grad():
    print([model(x) for x, _ in loader])
"""


@pytest.mark.parametrize(
    ("setup", "now", "said"),
    [
        ("args.fp16", "args.fp16 and args.cuda", False),
        ("args.cuda and args.fp16", "args.fp16", False),
        ("args.fp16", "args.fp16 and args.large", True),
    ],
)
def test_an_option_that_the_program_takes_back(setup: str, now: str, said: bool) -> None:
    """Where it is on, the other is."""
    before = TAKEN_BACK.replace("SETUP", setup)
    after = before.replace("from apex import amp\n", "").replace(
        f'if {setup}:\n    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n',
        f'scaler = torch.amp.GradScaler("cuda", enabled={now})\n',
    )
    region = '    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):\n        '
    after = after.replace("    loss = torch", f"{region}loss = torch").replace("    print(", f"{region}print(")
    start, end = after.index("    if args.fp16:\n        with"), after.index("    optimizer.zero_grad")
    steps = "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n"
    after = after[:start] + steps + after[end:]
    assert bool([d for d in doubts(before, after) if d.code == "AMP531"]) is said
