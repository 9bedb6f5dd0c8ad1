"""A script that trains in float32 first, and with Apex below, by the same functions: the first run stays in float32."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

FUNCTIONS = """
    import json

    import torch
    from apex import amp

    seen = []


    def forward(model, x):
        outputs = model(x)
        seen.append(str(outputs.dtype))
        return outputs


    {train}


    def test(model, x):
        with torch.no_grad():
            seen.append(str(model(x).dtype))


    def make():
        model = torch.nn.Linear(2, 2)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)


"""
ASKS = """
    def train(model, optimizer, x, {parameter}):
        optimizer.zero_grad()
        loss = forward(model, x).float().pow(2).mean()
        if {asked}:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
"""
APART = """
    def train(model, optimizer, x):
        optimizer.zero_grad()
        forward(model, x).float().pow(2).mean().backward()
        optimizer.step()


    def train_mixed(model, optimizer, x):
        optimizer.zero_grad()
        loss = forward(model, x).float().pow(2).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
RUNS = """
x = torch.ones(1, 2)
{first}
model, optimizer = make()
train(model, optimizer, x)
test(model, x)
{second}
model, optimizer = make()
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
{train}
test(model, x)
"""
TOLD = "\nprint(json.dumps(seen))\n"
FLOAT, HALF = ["torch.float32"] * 2, ["torch.float16"] * 2


def program(train: str, runs: str, inside: bool) -> str:
    functions = dedent(FUNCTIONS).replace("{train}", dedent(train).strip())
    if inside:
        return functions + "def main():\n" + indent(runs.strip() + "\n", "    ") + "\n\nmain()\n" + TOLD
    return functions + runs.lstrip() + TOLD


SHAPES = {
    "a parameter": (
        ASKS.format(parameter="use_amp=False", asked="use_amp"),
        RUNS.format(first="", second="", train="train(model, optimizer, x, use_amp=True)"),
    ),
    "a variable of the script": (
        ASKS.format(parameter="*, lr=0.1", asked="USE_APEX"),
        RUNS.format(first="USE_APEX = False", second="USE_APEX = True", train="train(model, optimizer, x)"),
    ),
    "functions of their own": (APART, RUNS.format(first="", second="", train="train_mixed(model, optimizer, x)")),
}


@pytest.mark.parametrize(
    ("shape", "inside"),
    [*((shape, False) for shape in SHAPES), ("a parameter", True), ("functions of their own", True)],
)
def test_the_baseline_stays_in_float32(shape: str, inside: bool, tmp_path: Path) -> None:
    texts = check_files({"bench.py": program(*SHAPES[shape], inside)}, device="cpu")
    assert run_files(tmp_path, texts, "bench.py") == FLOAT + HALF


def test_a_run_below_is_in_mixed_precision_as_it_was_under_apex(tmp_path: Path) -> None:
    train, runs = SHAPES["functions of their own"]
    again = runs + "model, optimizer = make()\ntrain(model, optimizer, x)\ntest(model, x)\n"
    texts = check_files({"bench.py": program(train, again, False)}, device="cpu")
    assert run_files(tmp_path, texts, "bench.py") == FLOAT + HALF + HALF


def test_a_script_that_sets_apex_up_first_hands_nothing_along() -> None:
    train, runs = SHAPES["a parameter"]
    only = runs[runs.rindex("model, optimizer = make()") :]
    result = rewrite_files({"bench.py": program(train, "x = torch.ones(1, 2)\n" + only, False)})["bench.py"]
    assert result.after is not None
    assert "enabled=" not in result.after
