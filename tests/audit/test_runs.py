"""What a run was without Apex, with two set-ups, and at O0 with a loss scale: AMP133, AMP135, AMP532."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt, audit
from tests.audit.helpers import doubts

FLAG = """
import torch
mixed = True
try:
    from apex import amp
except ImportError:
    print("Apex would be faster")
    mixed = False

def train(model, optimizer, args):
    if TEST:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    loss = model(x).sum()
    if mixed:
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
    else:
        loss.backward()
    optimizer.step()
"""
FLAG_NOW = """
import torch

def train(model, optimizer, args):
    scaler = torch.amp.GradScaler(SWITCH)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def flagged(test: str, switch: str = "") -> list[Doubt]:
    found = doubts(FLAG.replace("TEST", test), FLAG_NOW.replace("SWITCH", switch))
    return [d for d in found if d.code == "AMP133" and "machine without Apex" in d.message]


def test_where_apex_was_missing_it_trained_in_float32() -> None:
    (doubt,) = flagged("mixed")
    assert (doubt.line, doubt.verdict) == (10, "look")
    (doubt,) = flagged("mixed and args.amp", "enabled=args.amp")  # also one who asked for it
    assert (doubt.line, doubt.verdict) == (10, "look")


def test_a_switch_of_the_users_is_asked_for_still() -> None:
    assert not flagged("args.amp", "enabled=args.amp")


TWO = """
import torch
from apex import amp

def warm_up(model, optimizer):
    model, optimizer = amp.initialize(model, optimizer, opt_level="WARM")
    with amp.scale_loss(model(x).sum(), optimizer) as scaled:
        scaled.backward()
    optimizer.step()

def train(model, optimizer):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    loss = model(x).sum()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()

def main(args):
    MAIN

main(args)
"""
TWO_NOW = TWO.replace(
    """    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    loss = model(x).sum()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
""",
    """    scaler = torch.amp.GradScaler()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
)


@pytest.mark.parametrize(
    ("main", "warm", "refused"),
    [
        ("if args.warm:\n        warm_up(model, optimizer)\n    train(model, optimizer)", "O1", True),
        ("if args.warm:\n        warm_up(model, optimizer)\n    train(model, optimizer)", "O2", False),
        ("if args.warm:\n        warm_up(model, optimizer)\n    else:\n        train(model, optimizer)", "O1", False),
        (  # in different turns of a loop of one run
            "for stage in range(2):\n        if stage == 0:\n            warm_up(model, optimizer)\n"
            "        else:\n            train(model, optimizer)",
            "O1",
            True,
        ),
    ],
)
def test_a_set_up_that_patches_the_run_of_a_migrated_one(main: str, warm: str, refused: bool) -> None:
    before, after = (t.replace("MAIN", main).replace("WARM", warm) for t in (TWO, TWO_NOW))
    found = [d for d in doubts(before, after) if d.code == "AMP135" and "same run" in d.message]
    assert [(d.line, d.verdict) for d in found] == ([(11, "refuse")] if refused else [])


FLOAT = """
import torch
from apex import amp

model, optimizer = amp.initialize(model, optimizer, opt_level="O0"SCALE)
with amp.scale_loss(model(x).sum(), optimizer) as scaled:
    scaled.backward()
optimizer.step()
"""
FLOAT_NOW = """
import torch

scaler = torch.amp.GradScaler("cuda"SWITCH)
scaler.scale(model(x).sum()).backward()
scaler.step(optimizer)
scaler.update()
"""


@pytest.mark.parametrize(
    ("scale", "switch", "count"),
    [
        (', loss_scale="dynamic"', ", enabled=False", 1),
        (", loss_scale=128.0", ", enabled=False", 0),  # which left out no step
        (', loss_scale="dynamic"', "", 0),
        (", loss_scale=1.0", ", enabled=False", 0),
        ("", ", enabled=False", 0),
    ],
)
def test_o0_with_a_loss_scale_scales(scale: str, switch: str, count: int) -> None:
    found = doubts(FLOAT.replace("SCALE", scale), FLOAT_NOW.replace("SWITCH", switch))
    assert len([d for d in found if d.code == "AMP532" and "O0" in d.message]) == count


CHOSEN = """
import torch
from apex import amp

def train(mode, model, optimizer):
    if mode == "half":
        model = halved(model)
    elif mode == "amp":
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    with amp.scale_loss(model(x).sum(), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
"""
CHOSEN_NOW = """
import torch

def train(mode, model, optimizer):
    scaler = torch.amp.GradScaler("cuda", enabled=mode == "amp")
    ANOTHER
    scaler.scale(model(x).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
"""
STATIC = 'torch.amp.GradScaler("cuda", init_scale=128.0, enabled=mode == "half")'


@pytest.mark.parametrize(
    ("another", "refused"),
    [
        (f"scaler = {STATIC}", True),
        (f"print(mode)\n    scaler = {STATIC}", True),
        (f"second = {STATIC}", False),
        (f"keep(scaler)\n    scaler = {STATIC}", False),  # what it is kept for is not in sight
        (f"scaler = scaler if scaler.is_enabled() else {STATIC}", False),
        (f'if mode == "half":\n        scaler = {STATIC}', False),
        (f'if mode == "amp":\n        return run(model)\n    scaler = {STATIC}', False),
    ],
)
def test_a_scaler_that_another_replaces_scales_nothing(another: str, refused: bool) -> None:
    found = doubts(CHOSEN, CHOSEN_NOW.replace("ANOTHER", another))
    said = [
        d for d in found if d.code == "AMP532" and "where mode == 'amp', and the scaler made in its place" in d.message
    ]
    assert [d.verdict for d in said] == ["refuse"] * refused


def test_what_refuses_and_what_tells_are_asked_apart_and_say_the_same() -> None:
    """Of a migration that is refused nobody hears what else is to be told of it."""
    old = """
import torch
from apex import amp

def main(loader):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
    print(model(x))

main([])
"""
    new = """
import torch

def main(loader):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).sum()
        scaler.scale(loss).backward()
        optimizer.step()
    print(model(x))

main([])
"""
    refusing, telling = (audit({"train.py": old}, {"train.py": new}, part=part) for part in ("refusing", "telling"))
    assert sorted([*refusing, *telling]) == audit({"train.py": old}, {"train.py": new})
    assert "refuse" in {d.verdict for d in refusing}
    assert {d.verdict for d in telling} == {"review"}


def test_the_scaler_of_a_native_path_beside_apex_is_not_made_in_its_place() -> None:
    """Whoever asks for Apex gets no mixed precision then: that is told forward by forward, and by the rule (AMP120)."""
    choice = (
        "def train(native, level, model, optimizer):\n    scaler = None\n"
        "    if native:\n        scaler = torch.cuda.amp.GradScaler()\n"
    )
    apex = (
        '    elif level != "O0":\n        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
        "    with amp.scale_loss(model(x).sum(), optimizer) as scaled:\n        scaled.backward()\n"
    )
    found = doubts(
        f"import torch\nfrom apex import amp\n\n{choice}{apex}",
        f"import torch\n\n{choice.replace('.cuda', '')}    model(x).sum().backward()\n",
    )
    assert not [d for d in found if d.code == "AMP532"]


ALWAYS_OFF = """
import torch
from apex import amp
from options import args

def train(teacher, model, optimizer):
    TEACHER
    model, optimizer = amp.initialize(model, optimizer, opt_level=LEVEL, loss_scale=SCALE)
    with amp.scale_loss(model(teacher).sum(), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
"""
ALWAYS_OFF_NOW = """
import torch
from options import args

def train(teacher, model, optimizer):
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(teacher).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.mark.parametrize("teacher", ["pass", 'teacher = amp.initialize(teacher, opt_level="O3")'])
@pytest.mark.parametrize(
    ("level", "scale", "refused"),
    [
        ('"O1"', "None", True),
        ('"O2"', "args.scale", True),
        ("args.level", "128.0", True),
        ('"O3"', "64.0", True),
        ('"O3"', "None", False),
        ('"O0"', "None", False),
        ('"O2"', "1.0", False),
    ],
)
def test_a_scaler_that_is_off_in_every_run(teacher: str, level: str, scale: str, refused: bool) -> None:
    before = ALWAYS_OFF.replace("TEACHER", teacher).replace("LEVEL", level).replace("SCALE", scale)
    found = [d for d in doubts(before, ALWAYS_OFF_NOW) if "off in every run: the loss is not scaled" in d.message]
    assert [d.verdict for d in found] == ["refuse"] * refused


TWICE = """
import torch
from apex import amp
from apex.fp16_utils import FP16_Optimizer
from project import args, build, loader

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.old:
    optimizer = FP16_Optimizer(optimizer)
if args.new:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x in loader:
    if args.old:
        optimizer.backward(model(x).sum())
    else:
        with amp.scale_loss(model(x).sum(), optimizer) as scaled:
            scaled.backward()
    optimizer.step()
"""
TWICE_NOW = """
import torch
from project import args, build, loader

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", FIRST)
BETWEEN
scaler = torch.amp.GradScaler("cuda", enabled=args.new)
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
        loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.mark.parametrize(
    ("first", "between", "refused"),
    [
        ("enabled=args.old", "pass", True),
        ("init_scale=128.0", "pass", True),
        ("enabled=args.old", "first = scaler", False),
        ("enabled=False", "pass", False),
        ("enabled=args.new", "pass", False),
    ],
)
def test_a_scaler_of_one_set_up_that_another_replaces(first: str, between: str, refused: bool) -> None:
    after = TWICE_NOW.replace("FIRST", first).replace("BETWEEN", between)
    found = [d for d in doubts(TWICE, after) if "set up twice for one step" in d.message]
    assert [d.verdict for d in found] == ["refuse"] * refused
