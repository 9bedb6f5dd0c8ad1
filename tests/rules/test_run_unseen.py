"""Inference that a function out of sight runs: its call stands in the region."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import rewrite_files, run_files

MAIN = """
    import json
    import torch
    from apex import amp
    from engine import CALLED
    from models import Net


    def main(half):
        model = Net()
        model = amp.initialize(model, opt_level="O1", enabled=half)
        MORE
        STATEMENT


    main(GIVEN)
    """
OLDER = MAIN.replace('model = amp.initialize(model, opt_level="O1", enabled=half)', "amp.init(enabled=half)")
ENGINE = """
import json
import torch


def inference(settings, model, loader):
    with torch.no_grad():
        found = [str(model(x).dtype) for x in loader]
    print(json.dumps(found))
    return found


infer = predict_all = run_test = inference
"""
MODELS = """
import torch


class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 1)
"""


def migrated(source: str, called: str, statement: str, more: str = "pass") -> tuple[str | None, list[tuple[str, str]]]:
    text = source.replace("STATEMENT", statement).replace("CALLED", called).replace("MORE", more)
    (result,) = rewrite_files({"main.py": text}, device="cpu").values()
    return result.after, [(f.code, f.review) for f in result.findings if f.status != "done"]


@pytest.mark.parametrize("source", [MAIN, OLDER], ids=["initialize", "init"])
@pytest.mark.parametrize(
    ("called", "statement"),
    [
        ("inference", "inference(None, model, [torch.ones(2, 3)])"),
        ("infer", "found = infer(None, model, loader=[torch.ones(2, 3)])"),
        ("predict_all as run_it", "return run_it(None, model, [torch.ones(2, 3)])"),
        ("run_test", "run_test(None, model=model, loader=[torch.ones(2, 3)])"),
    ],
)
def test_it_runs_in_half_where_it_did(tmp_path: Path, source: str, called: str, statement: str) -> None:
    after, told = migrated(source, called, statement)
    assert after is not None
    assert ("AMP502", "look") in told
    files = {"engine.py": ENGINE, "models.py": MODELS}
    for given, dtype in (("True", "torch.float16"), ("False", "torch.float32")):
        assert run_files(tmp_path, {**files, "main.py": after.replace("GIVEN", given)}, "main.py") == [dtype]


@pytest.mark.parametrize(
    ("called", "statement", "more"),
    [
        ("inference, train_epoch", "inference(None, model, [])", "train_epoch(model, [])"),
        ("inference, fit as go", "inference(None, model, [])", "go(model, [])"),
        ("inference, Trainer", "inference(None, model, [])", "Trainer(model).run()"),
        ("show", "show(None, model, [])", "pass"),
        ("inference", "inference(model)", "pass"),
    ],
)
def test_what_may_train_or_is_named_otherwise_stays(called: str, statement: str, more: str) -> None:
    after, told = migrated(MAIN, called, statement, more)
    assert after is None
    assert ("AMP502", "review") in told


def test_a_program_that_trains_elsewhere_stays() -> None:
    optimizer = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    text = MAIN.replace(
        "model = amp.initialize(model,", f"{optimizer}\n        model, optimizer = amp.initialize(model, optimizer,"
    )
    assert migrated(text, "inference", "inference(optimizer, model, [])")[0] is None


TRAINS = """
    import torch
    from apex import amp
    from engine import evaluate, load_weights


    def fit(model, optimizer, loader):
        SET_UP
        load_weights(model, "weights.pt")
        for x, y in loader:
            loss = (model(x) - y).pow(2).mean()
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        return evaluate(model, loader)
    """


@pytest.mark.parametrize(
    ("set_up", "casts"),
    [('model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', True), ("pass", False)],
)
def test_what_is_given_the_model_after_training_runs_in_half_or_is_told(set_up: str, casts: bool) -> None:
    (result,) = rewrite_files({"main.py": TRAINS.replace("SET_UP", set_up)}).values()
    assert ("float16):\n        return evaluate(" in (result.after or "")) is casts
    told = [f.message for f in result.findings if f.code == "AMP502"]
    assert [("runs in float32 now" in message) for message in told] == [True] * (not casts)
