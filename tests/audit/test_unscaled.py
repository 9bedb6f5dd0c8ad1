"""Runs that set Apex up and did not scale the loss (AMP532)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import Doubt, doubts

BEFORE = """
import argparse
import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--level", choices=["O1", "O2"], default="O1")
args = parser.parse_args()


def train(model, loader, optimizer, fp16=False):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()


model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
if ASKED:
    model, optimizer = amp.initialize(MODELS)
train(model, loader, optimizer, fp16=GIVEN)
"""
AFTER = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--level", choices=["O1", "O2"], default="O1")
args = parser.parse_args()


def train(model, loader, optimizer, scaler, fp16=False):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=ASKED)
train(model, loader, optimizer, scaler, fp16=GIVEN)
"""
NOTHING, BARE = "left all half weights as they were", "it trained without loss scaling"


def told(given: str, asked: str, level: str, *swaps: tuple[str, str], word: str = "fp16") -> list[Doubt]:
    before, after = BEFORE, AFTER
    for old, new in (*swaps, ("MODELS", f"model, optimizer, opt_level={level}"), ("ASKED", asked), ("GIVEN", given)):
        before, after = before.replace(old, new), after.replace(old, new)
    return [d for d in doubts(before, after) if d.code == "AMP532" and word in d.message]


CUDA = "torch.cuda.is_available()"


@pytest.mark.parametrize(
    ("level", "said"),
    [
        ('"O2"', [f"under O2 the step then {NOTHING}"]),
        ('"O3", master_weights=True', [f"under O3 the step then {NOTHING}"]),
        ('"O2", master_weights=False', [f"under O2 {BARE}"]),
        ('"O1"', [f"under O1 {BARE}"]),
        ("args.level", [f"under O2 the step then {NOTHING}", f"under O1 {BARE}"]),
    ],
)
def test_what_a_run_without_scale_was(level: str, said: list[str]) -> None:
    found = told("args.fp16", CUDA, level)
    assert [d.verdict for d in found] == ["review"]
    assert all(part in found[0].message for part in ["where not fp16", *said])
    assert (NOTHING in found[0].message, BARE in found[0].message) == (
        any(NOTHING in s for s in said),
        any(BARE in s for s in said),
    )


@pytest.mark.parametrize("level", ['"O3"', '"O1", loss_scale=1.0'])
def test_where_nothing_was_scaled_anyway(level: str) -> None:
    assert [d.verdict for d in told("args.fp16", CUDA, level)] == ["look"]  # the parameter is read no more


def test_only_what_the_function_asks_is_named() -> None:
    (found,) = told("args.fp16", CUDA, '"O2"', ("\ntrain(model", "\nif args.training:\n    train(model"))
    assert "not scaled here where not fp16: under O2" in found.message


def test_the_same_flag() -> None:
    assert [d.verdict for d in told("args.fp16", "args.fp16", '"O2"')] == ["look"]


@pytest.mark.parametrize(
    "region",
    [
        'torch.autocast("cuda")',
        'torch.autocast("cuda", enabled=args.native)',
        'torch.autocast("cuda") if args.native else contextlib.nullcontext()',
    ],
)
def test_a_region_of_the_programs_own_sets_nothing_up(region: str) -> None:
    swap = ("\ntrain(model", f"\nwith {region}:\n    train(model")
    assert [d.verdict for d in told("args.fp16", "args.fp16", '"O2"', swap)] == ["look"]
    assert [d.verdict for d in told("args.fp16", CUDA, '"O2"', swap)] == ["review"]


@pytest.mark.parametrize("test", ["fp16 is True", "fp16 is not False", "True is fp16 or fp16 is True"])
def test_a_constant_that_every_call_gives_is_compared_as_what_it_is(test: str) -> None:
    arm = ("        if fp16:", f"        if {test}:")
    assert [d.verdict for d in told("True", CUDA, '"O2"', arm)] == ["look"]  # no run comes by the plain backward
    (found,) = told("False", CUDA, '"O2"', arm, word="scaled here")
    assert "not scaled here: under O2" in found.message


@pytest.mark.parametrize(
    ("arm", "given", "reason"),
    [
        ("if many and fp16:", "args.fp16", " where (not many or not fp16)"),
        ("if many and args.on:", "args.fp16", " where not many"),
        ("if loss.sum() > 0:\n          if fp16:", "args.fp16", " where not fp16"),
        ("if loss.sum() > 0:\n          if fp16 == True:", "False", ""),
        ("if args.options.half:", "args.fp16", " where not args.options.half"),
    ],
)
def test_the_reason_is_what_sets_the_two_backwards_apart_as_it_is_written(arm: str, given: str, reason: str) -> None:
    import_ = "import argparse\n"
    known = 'import os\nmany = int(os.environ["WORLD_SIZE"]) > 1 if "WORLD_SIZE" in os.environ else False\n'
    option = 'parser.add_argument("--on", action="store_true")\nargs = '
    nested = "\n          " in arm
    swaps = [("        if fp16:", f"        {arm}"), (import_, import_ + known), ("args = ", option)]
    if nested:
        swaps += [("        else:\n            loss.b", "          else:\n            loss.b")]
    (found,) = told(given, "args.on", '"O2"', *swaps, word="scaled here")
    assert f"not scaled here{reason}: under O2" in found.message


def test_a_level_that_the_arm_leaves_out() -> None:
    swap = ("if fp16:", 'if fp16 or args.level == "O2":')
    (found,) = told("args.fp16", CUDA, "args.level", swap)
    assert NOTHING not in found.message
    assert f"under O1 {BARE}" in found.message


@pytest.mark.parametrize(
    "arms",
    [
        ("        if fp16:", "        if args.fp16:"),
        ("        else:\n            loss.b", "        if not fp16:\n            loss.b"),
        ("        if fp16:", "        half = fp16\n        if half:"),
    ],
)
def test_however_the_arm_is_chosen(arms: tuple[str, str]) -> None:
    assert [d.verdict for d in told("args.fp16", CUDA, '"O2"', arms)] == ["review"]


FIELD_BEFORE = """
import torch
from apex import amp


class Trainer:
    def __init__(self, args):
        self.fp16 = args.fp16
        self.model = torch.nn.Linear(4, 4).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O2")

    def train(self, loader):
        for x in loader:
            loss = self.model(x).mean()
            if self.fp16:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()


Trainer(parse()).train(data)
"""
FIELD_AFTER = """
import torch


class Trainer:
    def __init__(self, args):
        self.fp16 = args.fp16
        self.model = torch.nn.Linear(4, 4).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda")

    def train(self, loader):
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = self.model(x).mean()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()


Trainer(parse()).train(data)
"""


def test_an_attribute() -> None:
    found = [d for d in doubts(FIELD_BEFORE, FIELD_AFTER) if d.code == "AMP532"]
    assert [d.verdict for d in found] == ["review"]
    assert NOTHING in found[0].message


CLOSURE_BEFORE = """
import torch
from apex import amp


def get_step(model, optimizer, half):
    def step(x):
        loss = model(x).mean()
        if half:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()

    return step


def main(args):
    model = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    step = get_step(model, optimizer, args.fp16)
    for x in data:
        step(x)


main(parse())
"""
CLOSURE_AFTER = """
import torch


def get_step(model, optimizer, scaler, half):
    def step(x):
        with torch.autocast("cuda", dtype=torch.float16, enabled=half):
            loss = model(x).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def main(args):
    model = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
    step = get_step(model, optimizer, scaler, args.fp16)
    for x in data:
        step(x)


main(parse())
"""


def test_a_variable_whose_value_is_not_seen() -> None:
    assert not [d for d in doubts(CLOSURE_BEFORE, CLOSURE_AFTER) if d.code == "AMP532"]


def test_a_field_that_keeps_what_the_set_up_is_given() -> None:
    swaps = [
        ("def __init__(self, args):", "def __init__(self, model, optimizer, fp16=None):"),
        ("self.fp16 = args.fp16", "self.fp16 = fp16"),
        ("self.model = torch.nn.Linear(4, 4).cuda()", "self.model = model"),
        ("self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)", "self.optimizer = optimizer"),
        ('self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O2")', "pass"),
    ]
    start = """half = "O2"
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
SET_UP
Trainer(model, optimizer, fp16=half).train(data)
"""
    set_up = "if half:\n    model, optimizer = amp.initialize(model, optimizer, opt_level=half)"
    before, after = FIELD_BEFORE, FIELD_AFTER
    for old, new in [*swaps, ("Trainer(parse()).train(data)\n", start)]:
        before, after = before.replace(old, new), after.replace(old, new)
    found = doubts(before.replace("SET_UP", set_up), after.replace("SET_UP", ""))
    assert not [d for d in found if d.code == "AMP532"]


def test_a_field_that_keeps_an_option_which_another_class_sets() -> None:
    """What another class gives a field of that name is not all that the option may be."""
    other = "class Data:\n    def __init__(self, args):\n        args.where = 'here'\n\n\nclass Trainer:"
    before, after = (
        t.replace("class Trainer:", other).replace("self.fp16 = args.fp16", "self.where = args.where")
        for t in (FIELD_BEFORE, FIELD_AFTER)
    )
    before = before.replace("if self.fp16:", "if self.where == 'server':")
    old = "self.model, self.optimizer = amp.initialize"
    before = before.replace(old, f"if args.where == 'server':\n            {old}")
    after = after.replace('GradScaler("cuda")', """GradScaler("cuda", enabled=args.where == 'server')""")
    after = after.replace("dtype=torch.float16)", "dtype=torch.float16, enabled=self.scaler.is_enabled())")
    assert not [d for d in doubts(before, after) if d.code == "AMP532"]


PARAMETER = """
import sys
import torch


def build(amp=None):
    model = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    if {asked}:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    return model, optimizer


def train(fp16, loader):
    {imported}
    model, optimizer = build({given})
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()


train("--fp16" in sys.argv, loader)
"""
SWITCHED = "if fp16:\n        from apex import amp\n    else:\n        amp = None"


@pytest.mark.parametrize("asked", ["amp is not None", "amp"])
@pytest.mark.parametrize(
    ("imported", "given", "codes"),
    [
        (SWITCHED, "amp", set()),
        ("amp = None\n    if fp16:\n        from apex import amp", "amp=amp", set()),
        ("from apex import amp", "amp", {"AMP531", "AMP532"}),
        (SWITCHED, "", set()),  # never
    ],
)
def test_a_parameter_that_is_given_amp(asked: str, imported: str, given: str, codes: set[str]) -> None:
    """Whether it is None is what the import of its caller stands under."""
    before = PARAMETER.format(asked=asked, imported=imported, given=given)
    loop = before[before.index("    for x, y") : before.index("\n\ntrain(")]
    after = before.replace(
        loop,
        """\
    scaler = torch.amp.GradScaler("cuda", enabled=fp16)
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16, enabled=fp16):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
""",
    )
    after = after.replace(
        f'    if {asked}:\n        model, optimizer = amp.initialize(model, optimizer, opt_level="O2")\n', ""
    )
    after = after.replace(imported, "pass").replace(f"build({given})", "build()")
    assert {d.code for d in doubts(before, after) if d.code in ("AMP531", "AMP532")} == codes


def test_a_parameter_that_is_compared_with_what_it_always_is() -> None:
    """`if fp16 is True:` of a parameter that no call gives another value."""
    for asked in ("fp16 is True", "fp16 == True", "fp16 is not False"):
        before = BEFORE.replace("ASKED", "args.fp16").replace("MODELS", 'model, optimizer, opt_level="O2"')
        before = (
            before.replace("if fp16:", f"if {asked}:").replace("fp16=False", "fp16=True").replace(", fp16=GIVEN", "")
        )
        after = AFTER.replace("ASKED", "args.fp16").replace("fp16=False", "fp16=True").replace(", fp16=GIVEN", "")
        assert not [d for d in doubts(before, after) if d.code == "AMP532" and "Apex was set up" in d.message]
