"""An entry that was read under a test alone is not read in every run, unless every run is seen to have it."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, told

HEAD = """
import argparse
import json
import sys
from types import SimpleNamespace

import torch
from apex import amp


class Settings:
    loss_scale = 128.0


class Config(dict):
    def __getattr__(self, name):
        return self[name]


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--loss_scale", type=float, default=128.0)
    return parser.parse_args()

"""
BEFORE = """
def main(path, model, optimizer, x):
    args = MADE
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, loss_scale=READ)
    loss = model(x).sum()
    if args.fp16:
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
    else:
        loss.backward()
    optimizer.step()
"""
AFTER = """
def main(path, model, optimizer, x):
    args = MADE
    SCALER
    with torch.autocast("cuda", enabled=args.fp16):
        loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update(scale)
"""
HOISTED = "scale = float(READ)\n    scaler = torch.amp.GradScaler('cuda', init_scale=scale, enabled=args.fp16)"
ASKED = HOISTED.replace("float(READ)", "float(READ) if args.fp16 else None").replace("=scale,", "=scale or 1.0,")
INSIDE = """scale, scaler = None, torch.amp.GradScaler("cuda", enabled=False)
    if args.fp16:
        scale = float(READ)
        scaler = torch.amp.GradScaler("cuda", init_scale=scale)"""
LOADED = "SimpleNamespace(**json.load(open(path)))"


def refused(made: str, scaler: str, read: str = "args.loss_scale", edit: tuple[str, str] = ("", "")) -> bool:
    def written(text: str) -> str:
        text = text.replace("SCALER", scaler).replace("MADE", made).replace("READ", read)
        return HEAD + (text.replace(*edit) if edit[0] else text)

    found = doubts(written(BEFORE), written(AFTER).replace("from apex import amp\n", ""))
    return any("was read only where" in d.message for d in found if d.code == "AMP131")


@pytest.mark.parametrize(
    ("made", "read"),
    [
        (LOADED, "args.loss_scale"),
        ("Config(json.load(open(path)))", "args.loss_scale"),
        ("Config(json.load(open(path)))", 'args["loss_scale"]'),
        ("load(path)", "args.scaling.loss_scale"),
    ],
)
@pytest.mark.parametrize(("scaler", "wrong"), [(HOISTED, True), (ASKED, False), (INSIDE, False)])
def test_an_entry_of_what_is_loaded(made: str, read: str, scaler: str, wrong: bool) -> None:
    assert refused(made, scaler, read) is wrong


@pytest.mark.parametrize("made", ["parsed()", "Settings()"])
def test_what_every_run_has(made: str) -> None:
    assert not refused(made, HOISTED)


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        ("copy.copy(parsed())", False),
        ("EasyDict(vars(parsed()))", False),
        ("SimpleNamespace(**vars(parsed()))", False),
        ("SimpleNamespace(**parsed().__dict__)", False),
        (f"copy.copy({LOADED})", True),
        ("EasyDict(json.load(open(path)))", True),
    ],
)
def test_a_copy_has_what_is_copied(made: str, wrong: bool) -> None:
    assert refused(made, HOISTED) is wrong
    source = made.partition("(")[2].removesuffix(")")
    if made.startswith("copy"):
        assert (
            refused(source, HOISTED, edit=(f"args = {source}", f"args = {source}\n    args = copy.copy(args)")) is wrong
        )


@pytest.mark.parametrize(
    "line", ["print(args.loss_scale)", "args.loss_scale = path.count('x')", "if args.loss_scale > 1:\n        print()"]
)
def test_what_is_read_or_put_there_anyway(line: str) -> None:
    edit = (f"args = {LOADED}", f"args = {LOADED}\n    {line}")
    assert not refused(LOADED, HOISTED, edit=edit)


CALLED = {
    "main.py": """
        import json
        from setup import prepare

        def main(path, model, optimizer):
            with open(path) as f:
                config = json.load(f)
            if config["fp16"]:
                prepare(config, model, optimizer)
    """,
    "setup.py": """
        from apex import amp

        def prepare(config, model, optimizer):
            return amp.initialize(model, optimizer, loss_scale=config["loss_scale"])
    """,
}


BRANCHES = """
def start(config):
    if config["evaluates"]:
        infer(config)
    else:
        train(config)

def infer(config):
    print(config["fp16"])

def train(config):
    ASKED
"""


@pytest.mark.parametrize(("asked", "wrong"), [('print(config["fp16"])', False), ("pass", True)])
def test_functions_of_which_every_run_calls_one(asked: str, wrong: bool) -> None:
    """What each of them reads is read in every run."""
    head = "import json\nfrom apex import amp\n\nconfig = json.load(open(path))\n"
    text = head + BRANCHES.replace("ASKED", asked) + "\n\nstart(config)\n"
    after = text.replace("from apex import amp\n", "").replace(
        "start(config)\n", 'print(bool(config["fp16"]))\nstart(config)\n'
    )
    assert any("was read only where" in d.message for d in doubts(text, after) if d.code == "AMP131") is wrong


def test_a_function_that_is_called_under_a_test_alone() -> None:
    after = CALLED["main.py"].replace(
        'if config["fp16"]:', 'scale = config["loss_scale"]\n            if config["fp16"]:'
    )
    (told_at,) = told(doubts_of(CALLED, {"main.py": after}), "AMP131")
    assert told_at == (6, "refuse")
    unguarded = {
        **CALLED,
        "main.py": CALLED["main.py"].replace('if config["fp16"]:', "if True:").replace("if True:", "with x:"),
    }
    after = unguarded["main.py"].replace("with x:", 'scale = config["loss_scale"]\n            with x:')
    assert not told(doubts_of(unguarded, {"main.py": after}), "AMP131")


HANDED = """
    import json
    from apex import amp

    def prepare(model, optimizer, use, config):
        if use:
            amp.initialize(model, optimizer, loss_scale=config["loss_scale"])

    def main(path, model, optimizer):
        with open(path) as f:
            config = json.load(f)
        half = config["fp16"]
        prepare(model, optimizer, half, config)
"""


@pytest.mark.parametrize(("test", "wrong"), [("half", False), ("model", True)])
def test_a_flag_that_another_function_has_under_another_name(test: str, wrong: bool) -> None:
    call = "prepare(model, optimizer, half, config)"
    after = HANDED.replace(call, f'scale = config["loss_scale"] if {test} else None\n        {call}')
    assert bool(told(doubts(HANDED, after), "AMP131")) is wrong


UPDATE = """
import json
import torch

def train(path, model, optimizer, x):
    config = json.load(open(path))
    scaler = torch.amp.GradScaler("cuda")
    scale = GIVEN
    scaler.scale(model(x).sum()).backward()
    scaler.step(optimizer)
    scaler.update(scale)
"""


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ('config["loss_scale"]', True),
        ('config["loss_scale"] or None', True),
        ('config.get("loss_scale")', True),
        ('None if config["loss_scale"] == 0 else config["loss_scale"]', True),
        ('float(config["loss_scale"])', False),
        ('float(config["loss_scale"]) if config["loss_scale"] else None', False),
        ('config["loss_scale"]\n    scale = None if scale == "dynamic" else float(scale)', False),
    ],
)
def test_update_may_be_given_an_int_by_what_is_loaded(given: str, wrong: bool) -> None:
    before = UPDATE.replace("GIVEN", "1.0").replace("scaler.update(scale)", "scaler.update()")
    found = doubts(before, UPDATE.replace("GIVEN", given))
    assert bool([d for d in found if d.code == "AMP132" and "may be an int" in d.message]) is wrong


def test_a_scaler_that_is_off_until_another_is_made_may_be_off() -> None:
    before = """
        from apex.optimizers import FP16_Optimizer

        def train(args, model, optimizer, x):
            if args.fp16:
                optimizer = FP16_Optimizer(optimizer, static_loss_scale=float(args.scale))
            loss = model(x).sum()
            if args.fp16:
                optimizer.backward(loss)
            else:
                loss.backward()
            optimizer.step()
    """
    after = """
        import torch

        def train(args, model, optimizer, x):
            scaler = torch.amp.GradScaler("cuda", enabled=False)
            if args.fp16:
                scaler = torch.amp.GradScaler("cuda", init_scale=float(args.scale))
            with torch.autocast("cuda", enabled=scaler.is_enabled()):
                loss = model(x).sum()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            if scaler.is_enabled():
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update(float(args.scale) if args.fp16 else None)
    """
    assert not told(doubts(before, after), "AMP231")


INSTALLED = """
    import json
    import torch
    try:
        from apex import amp
        has_apex = True
    except ImportError:
        has_apex = False

    config = MADE
    if has_apex and config["fp16"]:
        model, optimizer = amp.initialize(model, optimizer)
    ELSEWHERE
"""


@pytest.mark.parametrize(
    ("made", "elsewhere", "wrong"),
    [
        ("json.load(open(path))", "pass", True),
        ("json.load(open(path))", 'print(config["fp16"])', False),
        ('{"fp16": False}', "pass", False),
    ],
)
def test_an_entry_that_was_asked_for_where_apex_is_there_alone(made: str, elsewhere: str, wrong: bool) -> None:
    before = INSTALLED.replace("MADE", made).replace("ELSEWHERE", elsewhere)
    start, end = before.index("    try:"), before.index("    config =")
    after = before[:start] + before[end:]
    after = after.replace(
        "if has_apex and config", "scaler = torch.amp.GradScaler('cuda', enabled=bool(config"
    ).replace('["fp16"]:\n        model, optimizer = amp.initialize(model, optimizer)', '["fp16"]))')
    found = [d.verdict for d in doubts(before, after) if "only where Apex was installed" in d.message]
    assert found == ["review"] * wrong


LET_ON = """
import json
import torch
from apex import amp


class Trainer:
    def __init__(self, config, model, optimizer):
        model, optimizer = prepare(model, optimizer, config["fp16"], config["level"])


def prepare(model, optimizer, half, level):
    if half:
        model, optimizer = amp.initialize(model, optimizer, opt_level=level)
    return model, optimizer


def main(path, model, optimizer):
    config = json.load(open(path))
    if config["steps"] < 1:
        LEAVES
    Trainer(config, model, optimizer)
"""


@pytest.mark.parametrize(
    ("leaves", "wrong"), [("raise ValueError(path)", False), ("sys.exit(1)", False), ("return", True)]
)
def test_what_stops_a_run_otherwise_only_lets_it_go_on(leaves: str, wrong: bool) -> None:
    before = LET_ON.replace("LEAVES", leaves)
    made = 'torch.amp.GradScaler("cuda", enabled=config["fp16"] and config["level"] != "O0")'
    after = before.replace(
        "        model, optimizer = prepare", f"        self.scaler = {made}\n        model, optimizer = prepare"
    )
    assert not any("was read only where" in d.message for d in doubts(before, after))  # it stands where the others did
    early = before.replace('    if config["steps"]', f'    scaler = {made}\n    if config["steps"]')
    assert any("was read only where" in d.message for d in doubts(before, early)) is wrong


IN_A_LOOP = """
import json
from apex import amp


def train(config, model, optimizer, batches):
    while True:
        READ
        step(model, optimizer, next(batches))


def main(path, model, optimizer, batches):
    config = json.load(open(path))
    if ASKED:
        train(config, model, optimizer, batches)
    if config["fp16"]:
        amp.initialize(model, optimizer, opt_level=config["level"])
"""


@pytest.mark.parametrize(("asked", "wrong"), [('config["fp16"]', False), ("batches", True)])
def test_the_tests_around_a_call_hold_inside_of_another_test(asked: str, wrong: bool) -> None:
    before = IN_A_LOOP.replace("ASKED", asked)
    after = before.replace("READ", 'half = config["level"] != "O0"')
    assert bool(told(doubts(before.replace("READ", "pass"), after), "AMP131")) is wrong
