"""A function that is handed `amp` itself, whichever way it is called: the scaler takes its place."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import check_refused
from tests.rules.trained import check_trained

PROGRAM = """
from functools import partial

def train(model, optimizer, amp, x, y):
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    if amp is not None:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()
    seen.append(clip_grad_norm_(model.parameters(), 0.05).item())
    optimizer.step()

def main(model, optimizer, fp16=True):
    amp = None
    if fp16:
        from apex import amp
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    {prepare}
    for x, y in loader:
        {call}

main(model, optimizer)
"""
CALLS = {
    "by its name": ("", "train(model, optimizer, {}, x, y)"),
    "by another name": ("run = train", "run(model, optimizer, {}, x, y)"),
    "by its keyword": ("run = train", "run(model, optimizer, x=x, y=y, amp={})"),
    "out of a table": ('phases = {"train": train, "other": print}', 'phases["train"](model, optimizer, {}, x, y)'),
    "the first arguments bound": ("", "partial(train, model)(optimizer, {}, x, y)"),
    "bound itself": ("run = partial(train, model, optimizer, {})", "run(x, y)"),
    "in a tuple": ("", "given = (model, optimizer, {}, x, y)\n        train(*given)"),
    "a name for what is bound": (
        "run = partial(train, model)",
        "run(optimizer, {}, x, y)\n        run(optimizer, {}, x, y)",
    ),
}


@pytest.mark.parametrize(("prepare", "call"), CALLS.values(), ids=CALLS)
def test_the_scaler_is_handed_on_in_its_place(prepare: str, call: str) -> None:
    given = (prepare.replace("{}", "amp"), call.replace("{}", "amp"))
    text = check_trained(PROGRAM.format(prepare=given[0], call=given[1]))
    after = [line.replace("{}", "scaler").replace("amp=", "scaler=") for line in (prepare, *call.split("\n"))]
    assert all(line.strip() in text for line in after)


@pytest.mark.parametrize("use", ["print(run)", "run = print", "elsewhere(phases)"])
def test_a_function_that_is_kept_for_more_than_calls_is_still_a_value(use: str) -> None:
    prepare = f"run = train\n    phases = {{'train': train}}\n    {use}"
    source = "import torch\nfrom elsewhere import elsewhere, criterion, loader, model, optimizer\n"
    source += PROGRAM.format(prepare=prepare, call="run(model, optimizer, amp, x, y)").replace(
        "clip_grad_norm_", "torch.clip"
    )
    assert rewrite(source).after is None
    check_refused(source, "AMP102")
