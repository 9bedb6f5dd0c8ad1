"""Evaluations by a function that is chosen elsewhere and given the model: they ran in half under Apex."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite_files

PARTS = """
    import torch


    def run_text(args, model, batch):
        out = model(batch[0])
        return out.sum(), out


    def run_image(args, model, batch):
        out = model(batch[1].to(args.device))
        return out.mean(), out
"""
TRAIN = """
    import argparse

    import torch
    from apex import amp

    from runs import run_image, run_text


    def chosen(task):
        return (run_text, run_text) if task == "text" else (run_text, run_image)


    def train(args, model, loader, run_train, run_eval):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for batch in loader:
            loss, _ = run_train(args, model, batch)
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return evaluate(args, model, loader, run_eval)


    DECORATED
    def evaluate(args, model, loader, run_fn):
        total = 0
        for batch in loader:
            GUARD
                CALL
        return total


    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        parser.add_argument("--task", default="text")
        args = parser.parse_args()
        net = torch.nn.Linear(4, 2).cuda()
        train(args, net, [], *chosen(args.task))
"""


def program(call: str, guard: str = "with torch.no_grad():", decorated: str = "") -> dict[str, str]:
    text = TRAIN.replace("CALL", call).replace("GUARD", guard).replace("DECORATED\n    ", decorated)
    return {"train.py": text, "runs.py": PARTS}


@pytest.mark.parametrize(
    "call",
    [
        "loss, scores = run_fn(args, model, batch)",
        "loss, scores = run_fn(args=args, model=model, batch=batch)",
        "total += run_fn(args, model, batch)[0].item()",
    ],
)
def test_an_evaluation_where_no_gradients_are_made_stands_in_a_region(call: str) -> None:
    text = check_files(program(call))["train.py"]
    region = 'with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):'
    assert f"{region}\n            {call}" in text


def test_a_function_that_is_decorated_so() -> None:
    files = program("loss, scores = run_fn(args, model, batch)", "if True:", "@torch.no_grad()\n    ")
    text = check_files(files)["train.py"]
    assert 'with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):\n                loss, scores' in text


@pytest.mark.parametrize(
    ("call", "guard"),
    [
        ("run_fn(args, model, batch)", "with torch.no_grad():"),  # what it gives is not taken
        ("size = run_fn(model)", "with torch.no_grad():"),  # and no batch is given
    ],
)
def test_what_only_does_something_with_the_model_stays_out(call: str, guard: str) -> None:
    result = rewrite_files(program(call, guard))["train.py"]
    assert result.after is not None
    assert f"{guard}\n            {call}" in result.after


def test_an_evaluation_with_gradients_is_told() -> None:
    result = rewrite_files(program("loss, scores = run_fn(args, model, batch)", "if True:"))["train.py"]
    told = [f for f in result.findings if f.code == "AMP531"]
    assert [f.message.split(":")[0] for f in told] == ["run_fn is given model and runs it"]
