"""A function with a parameter that says already whether mixed precision is on asks that: no second one is handed along."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.rules.helpers import check_files, run_files

EVALUATE = """
    import torch


    def evaluate(model, batches{parameter}):
        if fp16:
            print("in half precision")
        found = []
        with torch.no_grad():
            for x in batches:
                found.append(str(model(x).dtype))
        return found
"""
TRAIN = """
    import argparse
    import json

    import torch
    from apex import amp

    from evaluate import evaluate

    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    args = parser.parse_args({asked})


    def main():
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer)
        for x in torch.ones(2, 1, 2):
            optimizer.zero_grad()
            loss = model(x).float().sum()
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
        print(json.dumps({call}))


    if __name__ == "__main__":
        main()
"""
SCRIPT = """
    import json

    import torch

    from evaluate import evaluate

    print(json.dumps(evaluate(torch.nn.Linear(2, 2), torch.ones(1, 1, 2))))
"""
CALL = "evaluate(model, torch.ones(1, 1, 2), fp16=args.fp16)"


def migrated(call: str = CALL, parameter: str = ", fp16=False", asked: str = "[]") -> dict[str, str]:
    texts = {
        "evaluate.py": EVALUATE.format(parameter=parameter),
        "train.py": TRAIN.replace("{call}", call).replace("{asked}", asked),
        "score.py": SCRIPT,
    }
    return check_files({name: dedent(text) for name, text in texts.items()}, device="cpu", dtype="bfloat16")


@pytest.mark.parametrize(("asked", "dtype"), [("['--fp16']", "bfloat16"), ("[]", "float32")])
def test_it_is_asked_and_nothing_is_handed_beside_it(asked: str, dtype: str, tmp_path: Path) -> None:
    texts = migrated(asked=asked)
    assert "def evaluate(model, batches, fp16=False):" in texts["evaluate.py"]
    assert "enabled=fp16" in texts["evaluate.py"]
    assert CALL in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py") == [f"torch.{dtype}"]
    assert run_files(tmp_path, texts, "score.py") == ["torch.float32"]


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        ("evaluate(model, torch.ones(1, 1, 2), fp16=True)", ", fp16=False"),
        ("evaluate(model, torch.ones(1, 1, 2))", ", fp16=False"),
        (CALL, ", fp16=True"),
        (CALL, ", fp16=None"),
        (f"{CALL} or evaluate(model, torch.ones(1, 1, 2), fp16=not args.fp16)", ", fp16=False"),
        ("evaluate(model, torch.ones(1, 1, 2), **vars(args))", ", fp16=False"),
    ],
    ids=["a constant", "left out", "on by default", "no bool", "another value", "unpacked"],
)
def test_one_that_may_say_something_else_is_not_asked(call: str, parameter: str) -> None:
    assert "enabled=use_amp" in migrated(call, parameter)["evaluate.py"]
