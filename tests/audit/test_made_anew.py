"""A function that evaluates both the initialized model and what is made anew: all of its callers are told apart."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts

PROGRAM = """
import torch
{imports}
from net import Net, load, args

def evaluate(model):
    model.eval()
    with {region}:
        return [model(x) for x in load()]

def predict(model):
    with {region}:
        return [model(x) for x in load()]

def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {set_up}
    for x, y in load():
        with {region}:
            loss = torch.nn.functional.cross_entropy(model(x), y)
        {step}
    {trained}
    return model

def main():
    model = Net().cuda()
    model = train(model)
{then}

if __name__ == "__main__":
    main()
"""
LOADED = "    model = Net.from_pretrained(args.best).cuda()\n"
SWITCH = ', enabled=args.level != "O0"'


def _found(then: str, trained: str = "pass", level: str = "args.level", switch: str = SWITCH) -> list[Doubt]:
    before = PROGRAM.format(
        imports="from apex import amp",
        region="nothing()",
        set_up=f"model, optimizer = amp.initialize(model, optimizer, opt_level={level})",
        step="with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()\n        optimizer.step()",
        trained=trained,
        then=then,
    )
    after = PROGRAM.format(
        imports="",
        region=f'nothing(), torch.autocast("cuda", dtype=torch.float16{switch})',
        set_up='scaler = torch.amp.GradScaler("cuda")',
        step="scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()",
        trained=trained,
        then=then,
    )
    return [d for d in doubts(before, after) if d.code == "AMP531"]


def _said(then: str, **options: str) -> list[tuple[int, str]]:
    return [(d.line, d.message) for d in _found(then, **options)]


def test_all_callers_that_make_it_anew_are_named_once() -> None:
    then = LOADED + "    evaluate(model)\n" + LOADED + "    evaluate(model)"
    ((line, message),) = _said(then)
    assert line == 8
    assert "(called from lines 29 and 31)" in message
    assert message.endswith("Switch the region off there (enabled=) to keep it")


def test_where_others_run_the_initialized_model_the_callers_have_to_switch() -> None:
    ((line, message),) = _said(LOADED + "    evaluate(model)", trained="evaluate(model)")
    assert line == 8
    assert "(called from line 29)" in message
    assert "The same call runs the initialized model (called from line 22): let the callers hand over" in message
    assert "Switch the region off there" not in message


def test_callers_are_told_apart_further_up() -> None:
    """`check(model)` calls `evaluate(model)` for both: who calls that tells them apart."""
    program = LOADED + "    check(model)\n\ndef check(model):\n    evaluate(model)"
    ((_, message),) = _said(program, trained="check(model)")
    assert "(called from line 29)" in message
    assert "runs the initialized model (called from line 22)" in message


def test_one_finding_for_the_functions_of_a_file_that_say_the_same() -> None:
    ((line, message),) = _said(LOADED + "    evaluate(model)\n    predict(model)")
    assert line == 8
    assert "(called from lines 29 and 30)" in message
    assert message.endswith("(see line 12, too)")


def test_it_is_not_told_where_the_process_was_patched() -> None:
    found = _said(LOADED + "    evaluate(model)\n    predict(model)", level='"O1"', switch="")
    assert not found


def test_what_is_said_of_other_files_as_well_names_no_lines() -> None:
    """So that a report gathers programs which are written alike."""
    (one,) = _found(LOADED + "    evaluate(model)", trained="evaluate(model)")
    (other,) = _found(LOADED + "    pass\n    evaluate(model)", trained="evaluate(model)")
    assert one.message != other.message
    assert one.alike == other.alike


def test_callers_that_hand_the_switch_over_already_are_told_which_to_hand() -> None:
    """And one line is named once, whatever is called in it."""
    then = LOADED + "    print(evaluate(model) if args.all else evaluate(model))"
    (found,) = _found(then, trained="evaluate(model)", switch=", enabled=on")
    assert "let the callers hand over whether" in found.message
    before, after = (
        PROGRAM.format(
            imports="from apex import amp" if apex else "",
            region="nothing()" if apex else 'nothing(), torch.autocast("cuda", dtype=torch.float16, enabled=on)',
            set_up="model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)"
            if apex
            else 'on = args.level != "O0"\n    scaler = torch.amp.GradScaler("cuda")',
            step="with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()\n        optimizer.step()"
            if apex
            else "scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()",
            trained="evaluate(model)" if apex else 'evaluate(model, on=args.level != "O0")',
            then=then if apex else then.replace("evaluate(model)", 'evaluate(model, on=args.level != "O0")'),
        )
        for apex in (True, False)
    )
    after = after.replace("def evaluate(model)", "def evaluate(model, on=False)")
    (message,) = [d.message for d in doubts(before, after) if d.code == "AMP531" and d.line == 8]
    assert "Hand over on=False there" in message or "let the first hand over that it is off (on=False)" in message
    assert " and 29" not in message
    assert "(see line 8, too)" not in message


OUTSIDE = """
import argparse
import torch
IMPORT

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
args = parser.parse_args()

model = torch.nn.Linear(4, 1)
HALF
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
OPTIMIZER

def evaluate():
    REGION
        return [model(x) for x in loader]

def fit():
    for x in loader:
        REGION
            loss = model(x).sum()
        STEP
    evaluate()

fit()
RENEWED
evaluate()
"""


def _outside(renewed: str) -> list[Doubt]:
    """Those of a program whose functions run a variable of the file, which is `renewed` at last."""
    before = {
        "IMPORT": "from apex.fp16_utils import FP16_Optimizer",
        "HALF": "if args.fp16:\n    model.half()",
        "OPTIMIZER": "if args.fp16:\n    optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)",
        "REGION": "if True:",
        "STEP": "optimizer.backward(loss) if args.fp16 else loss.backward()\n        optimizer.step()",
    }
    after = {
        "IMPORT": "",
        "HALF": "",
        "OPTIMIZER": 'scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)',
        "REGION": 'with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):',
        "STEP": "scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()",
    }
    texts = []
    for words in (before, after):
        text = OUTSIDE.replace("RENEWED", renewed)
        for name, value in words.items():
            text = text.replace(name, value)
        texts.append(text)
    return [d for d in doubts(*texts) if d.code == "AMP531"]


def test_a_variable_from_around_a_function_that_holds_a_new_network_by_then() -> None:
    (doubt,) = _outside("model = Net.from_pretrained(path)\nmodel.cuda()")
    assert (doubt.verdict, "it ran in float32" in doubt.message) == ("review", True)
    assert not _outside("model.eval()")  # the same
    (doubt,) = _outside("if path:\n    model = Net.from_pretrained(path)")  # or another
    assert (doubt.verdict, "may run what is made anew" in doubt.message) == ("look", True)
    renew = "def renew():\n    global model\n    model = Net.from_pretrained(path)\nrenew()"
    assert not _outside(renew)


@pytest.mark.parametrize("taken", ["model", "model.cuda()", "model.to(args.device).eval()"])
def test_what_wraps_the_moved_model_runs_the_same(taken: str) -> None:
    assert not _said(f"    model = torch.nn.DataParallel({taken})\n    evaluate(model)")


def test_the_set_up_that_is_named_is_the_one_that_was_there() -> None:
    then = "    if args.best:\n        model = Net.from_pretrained(args.best).cuda()\n    evaluate(model)"
    ((_, message),) = _said(then)
    assert "what is made anew after amp.initialize (called" in message
    parts = {
        "imports": "from apex.fp16_utils import FP16_Optimizer",
        "region": "nothing()",
        "set_up": "model = model.half()\n    optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)",
        "step": "optimizer.backward(loss)\n        optimizer.step()",
        "trained": "pass",
        "then": then,
    }
    after = {**parts, "imports": "", "region": 'nothing(), torch.autocast("cuda", dtype=torch.float16)'}
    after |= {
        "set_up": 'scaler = torch.amp.GradScaler("cuda")',
        "step": "scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()",
    }
    messages = [d.message for d in doubts(PROGRAM.format(**parts), PROGRAM.format(**after)) if d.code == "AMP531"]
    assert messages
    assert all("amp.initialize" not in m and "made anew after it was made half" in m for m in messages)
