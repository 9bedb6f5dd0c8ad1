"""A function that is taken from a table, or handed on, and given the model runs it: in training, and where that evaluates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.helpers import doubts_of
from tests.rules.helpers import check_files, rewrite_files, run_files

TASKS = """
    import torch

    def run_words(model, batch, device="cpu"):
        out = model(batch.to(device))
        return out.float().pow(2).mean(), [str(out.dtype)]

    def run_texts(model, batch, device="cpu"):
        out = model(batch.to(device))
        return out.float().abs().mean(), [str(out.dtype)]

    def with_task(args):
        args["forward_fn"] = run_words if args["task"] == "words" else run_texts
        return args
"""
HEAD = """
    import json
    import torch
    from tasks import run_words, with_task

    def evaluate(model, loader, forward_fn):
        model.eval()
        seen = []
        for batch in loader:
            loss, kinds = forward_fn(model, batch, device=args["device"])
            seen += kinds
        return seen
"""
TRAIN = """
    def train(model, loader, optimizer, forward_fn):
        model.train()
        for batch in loader:
            loss, kinds = forward_fn(model, batch, device=args["device"])
            optimizer.zero_grad()
            if args["level"]:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()
            evaluate(model, loader, forward_fn)
"""
MAIN = """
    if __name__ == "__main__":
        args = with_task({"task": "words", "device": "cpu", "level": "O1"})
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args["level"]:
            from apex import amp
            model, optimizer = amp.initialize(model, optimizer, opt_level=args["level"])
        loader = [torch.ones(2, 4)]
"""
TRAINS = "        train(model, loader, optimizer, {given})\n"
EVALUATES = "        print(json.dumps(evaluate(model, loader, {given})))\n"
CALL = "loss, kinds = forward_fn(model, batch"


def _program(given: str, train: bool) -> dict[str, str]:
    parts = [HEAD, TRAIN * train, MAIN, TRAINS.format(given=given) * train, EVALUATES.format(given=given)]
    return {"tasks.py": TASKS, "main.py": "".join(parts)}


@pytest.mark.parametrize("given", ['args["forward_fn"]', 'forward_fn=args["forward_fn"]', "run_words"])
@pytest.mark.parametrize("train", [True, False])
def test_a_forward_function_runs_in_half_wherever_it_is_given_the_model(
    given: str, train: bool, tmp_path: Path
) -> None:
    after = check_files(_program(given, train), device="cpu")
    main = after["main.py"]
    assert main.count("torch.autocast") == main.count(CALL) == 1 + train
    assert ".forward" not in main
    assert "torch.autocast" not in after["tasks.py"]
    assert run_files(tmp_path, after, "main.py") == ["torch.float16"]


def test_one_that_is_taken_from_the_table_where_it_is_called(tmp_path: Path) -> None:
    files = _program("None", train=True)
    files["main.py"] = files["main.py"].replace("= forward_fn(model", '= args["forward_fn"](model')
    after = check_files(files, device="cpu")
    assert after["main.py"].count("torch.autocast") == 2
    assert run_files(tmp_path, after, "main.py") == ["torch.float16"]


@pytest.mark.parametrize("given", ['args["forward_fn"]', "run_words"])
def test_the_audit_tells_of_an_evaluation_that_lost_its_region(given: str) -> None:
    before = _program(given, train=True)
    after = check_files(before, device="cpu")["main.py"]
    region = '        with torch.autocast("cpu", dtype=torch.float16, enabled=scaler.is_enabled()):\n'
    assert after.count(region) == 2
    bare = after.replace(f"{region}            {CALL}", f"        {CALL}", 1)
    (doubt,) = [d for d in doubts_of(before, {"main.py": bare}) if d.code == "AMP531"]
    assert doubt.verdict == "review"
    assert "forward_fn is given model" in doubt.message
    assert not [d for d in doubts_of(before, {"main.py": after}) if d.code == "AMP531"]


@pytest.mark.parametrize(
    "helper",
    [
        "optimizer = args['make'](model, 0.1)",  # in training mode: what makes an optimizer
        "model.eval()\n        args['watch'](model, optimizer)",  # nothing is taken from it
        "model.eval()\n        args['count'] = args['counter'](model)",  # no batch
    ],
)
def test_what_is_given_the_model_and_computes_nothing_is_no_forward(helper: str) -> None:
    program = _program('args["forward_fn"]', train=True)
    program["main.py"] = program["main.py"].replace("        loader = [", f"        {helper}\n        loader = [")
    main = rewrite_files(program, device="cpu")["main.py"].after
    assert main is not None
    assert main.count("torch.autocast") == 2


def test_what_trains_elsewhere_and_evaluates_is_no_evaluation() -> None:
    """A function that runs a backward beside an evaluation: what another function is handed there may train, too."""
    program = _program('args["forward_fn"]', train=True)
    program["main.py"] = program["main.py"].replace(
        "            optimizer.step()\n",
        "            optimizer.step()\n            model.eval()\n            score = args['fit'](model, batch)\n",
    )
    main = rewrite_files(program, device="cpu")["main.py"].after
    assert main is not None
    assert main.count("torch.autocast") == 2
