"""Whoever asked for Apex gets the native side, also where the loss is scaled by whether there is a scaler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import rewrite, run_alone
from tests.rules.programs import found

PROGRAM = """
import argparse
from contextlib import suppress

import torch

try:
    from apex import amp
    has_apex = True
except ImportError:
    has_apex = False

parser = argparse.ArgumentParser()
for option in ["--amp", "--apex-amp", "--native-amp"]:
    pass
parser.add_argument("--amp", action="store_true")
parser.add_argument("--apex-amp", action="store_true")
parser.add_argument("--native-amp", action="store_true")


def train(model, optimizer, KIND, region=suppress, scaler=None):
    for x in [torch.ones(2, 4)]:
        with region():
            loss = model(x).mean()
        optimizer.zero_grad()
        if ASKED:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        elif SCALED:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
    print(scaler is not None)


def main():
    args = parser.parse_args(ARGV)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    CHOICE
    region, scaler = suppress, None
    if APEX:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    elif NATIVE:
        region = torch.cuda.amp.autocast
        scaler = torch.cuda.amp.GradScaler()
    train(model, optimizer, KIND, region, scaler)


main()
"""
CHOSEN = '''use_amp = None
    if args.apex_amp and has_apex:
        use_amp = "apex"
    elif args.native_amp:
        use_amp = "native"'''
SWITCHED = """if args.amp:
        if has_apex:
            args.apex_amp = True
        else:
            args.native_amp = True
    """
TEXT = {
    "KIND": "use_amp",
    "ASKED": 'use_amp == "apex"',
    "APEX": 'use_amp == "apex"',
    "NATIVE": 'use_amp == "native"',
    "CHOICE": CHOSEN,
}
FLAGS = {
    "KIND": "args",
    "ASKED": "args.apex_amp",
    "APEX": "args.apex_amp",
    "NATIVE": "args.native_amp",
    "CHOICE": "pass",
}
NUMBERS = {k: v.replace('"apex"', "1").replace('"native"', "2") for k, v in TEXT.items()}


def program(kinds: dict[str, str], scaled: str, argv: str) -> str:
    text = PROGRAM
    for word, written in {**kinds, "SCALED": scaled, "ARGV": argv}.items():
        text = text.replace(word, written)
    return text


@pytest.mark.parametrize(
    ("kinds", "argv", "on"),
    [
        (TEXT, '["--apex-amp"]', True),
        (TEXT, '["--native-amp"]', True),
        (TEXT, "[]", False),
        ({**TEXT, "CHOICE": SWITCHED + CHOSEN}, '["--amp"]', True),
        ({**TEXT, "CHOICE": SWITCHED + CHOSEN}, '["--apex-amp"]', True),
        ({**TEXT, "CHOICE": SWITCHED + CHOSEN}, "[]", False),
        (NUMBERS, '["--apex-amp"]', True),
        (FLAGS, '["--apex-amp"]', True),
        (FLAGS, '["--native-amp"]', True),
        (FLAGS, "[]", False),
    ],
)
@pytest.mark.parametrize("scaled", ["scaler is not None", "scaler", "not scaler is None"])
def test_every_switch_that_led_to_apex_leads_to_the_native_side(
    tmp_path: Path, kinds: dict[str, str], argv: str, on: bool, scaled: str
) -> None:
    result = rewrite(program(kinds, scaled, argv))
    assert result.after is not None
    assert "apex.amp" not in result.after
    assert "scale_loss" not in result.after
    assert not found(result, "AMP531")
    printed, errors = run_alone(tmp_path, result.after)
    assert printed == str(on), errors


def test_an_option_of_another_program_that_has_no_apex_is_not_asked_for() -> None:
    """What the two options are called is read elsewhere, of settings that need not have both: that a run is lost is told."""
    text = program(FLAGS, "scaler is not None", "[]") + "\n\ndef show(held):\n    print(held.run.native_amp)\n"
    result = rewrite(text)
    assert "args.apex_amp or args.native_amp" not in (result.after or "")
    assert [f.review for f in found(result, "AMP531")] == ["review"]


BY_FLAGS = """use_apex = args.amp and has_apex
    use_native = args.amp and not has_apex"""


def test_two_flags_that_ask_for_the_same_but_for_apex_are_one() -> None:
    kinds = {"KIND": "use_apex", "ASKED": "use_apex", "APEX": "use_apex", "NATIVE": "use_native", "CHOICE": BY_FLAGS}
    result = rewrite(program(kinds, "scaler is not None", '["--amp"]'))
    assert "use_native = args.amp\n" in (result.after or "")
    assert {f.review for f in found(result, "AMP120")} == {"look"}
    assert not found(result, "AMP133")
