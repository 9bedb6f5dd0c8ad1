"""Conditions that a program asks again and again, most of which decide on no gradient: those that do are followed."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.trained import check_trained

# More conditions are asked twice than are followed at a time; three of them decide on the backward and the step.
MODES = """
import types

args = types.SimpleNamespace(method="apex", masked=False, weighted=True, quiet=True, max_norm=0.05)
if args.method == "engine":
    model = wrapped(model)
elif args.method == "sharded":
    scaler = Sharded()
else:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for i, (x, y) in enumerate(loader):
    if args.masked:
        x = x * (x > 0)
    if args.weighted:
        weight = 0.5
    if not args.quiet:
        print("batch", i)
    loss = criterion(model(x), y)
    if args.weighted:
        loss = loss * weight
    if args.masked:
        y = y * 1
    if args.method == "engine":
        model.backward(loss)
    elif args.method == "sharded":
        scaler.scale(loss).backward()
    else:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    if not args.quiet:
        print("loss", float(loss))
    due = i % 2 == 1
    if due:
        if args.max_norm != -1:
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), args.max_norm)
        if args.method == "engine":
            model.step()
        elif args.method == "sharded":
            scaler.step(optimizer)
            scaler.update()
            model.zero_grad()
        else:
            optimizer.step()
            optimizer.zero_grad()
"""


def test_conditions_that_decide_on_no_gradient_use_up_none_of_those_that_are_followed() -> None:
    after = check_trained(MODES)
    assert after.count(".unscale_(") == 1


def test_an_equality_within_a_condition_is_not_the_condition() -> None:
    asked = "    if not (any(n == 0 for n in (i,)) and args.quiet):\n        print(i)\n"
    after = check_trained(
        MODES.replace("    loss = criterion", asked + "    loss = criterion").replace("    due =", asked + "    due =")
    )
    assert after.count("any(n == 0 for n in (i,))") == 2


FOUND = """
    import os
    import sys
    import torch
    from apex import amp

    args = {"fp16": len(sys.argv) > 1}


    def predict(model, batches):
        model.eval()
        for x in batches:
            print(model(x).argmax())


    if __name__ == "__main__":
        path = "model.pt"
        model = torch.nn.Linear(4, 2).cuda()
        if os.path.exists(path):
            model.load_state_dict(torch.load(path))
            if args["fp16"]:
                model = amp.initialize(model, opt_level="O1")
            predict(model, [])
        MORE
"""


@pytest.mark.parametrize(("more", "asked"), [("pass", False), ("predict(model, [])", True)])
def test_what_stands_around_all_calls_of_a_function_is_not_asked_in_it_again(more: str, asked: bool) -> None:
    after = rewrite(FOUND.replace("MORE", more)).after
    assert after is not None
    (region,) = [line for line in after.splitlines() if "autocast" in line]
    assert 'args["fp16"]' in region
    assert ("os.path.exists" in region) is asked


def test_what_is_given_again_between_the_set_up_and_the_call_is_asked() -> None:
    source = FOUND.replace("os.path.exists(path)", "found").replace('path = "model.pt"', "found = False")
    source = source.replace("            predict(model, [])\n", "").replace(
        "MORE", "found = len(sys.argv) > 2\n        if found:\n            predict(model, [])"
    )
    after = rewrite(source).after
    assert after is not None
    (region,) = [line for line in after.splitlines() if "autocast" in line]
    assert "found" in region or "use_amp" in region
