"""A flag that could have one value only is none: what is run after one of several set-ups alone, or under its test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
    import argparse

    import torch
    from apex import amp


    def evaluate(model, loader):
        with torch.no_grad():
            return [model(x) for x in loader]


    def report(model, loader):
        print(evaluate(model, loader)[0].dtype)


    def main(loader):
        parser = argparse.ArgumentParser()
        parser.add_argument("--evaluate", action="store_true")
        parser.add_argument("--check", action="store_true")
        args = parser.parse_args()
        model = torch.nn.Linear(2, 2)
        BODY


    if __name__ == "__main__":
        main([torch.ones(1, 2)])
    """
ONE = """if args.evaluate:
            model = amp.initialize(model, opt_level="O1")
            report(model, loader)
            return"""
TWO = f"""{ONE}
        if args.check:
            model = amp.initialize(model, opt_level="O1")
            for x in loader:
                print(model(x).dtype)
            return"""
ASKED_AGAIN = TWO.replace("            report(model, loader)\n            return\n", "") + (
    "\n        if args.evaluate:\n            report(model, loader)"
)
ALWAYS = 'torch.autocast("cuda", dtype=torch.float16)'


@pytest.mark.parametrize("body", [ONE, TWO, ASKED_AGAIN])
def test_what_runs_after_a_set_up_alone_asks_nothing(body: str) -> None:
    after = rewrite(PROGRAM.replace("BODY", body)).after or ""
    assert after.count("torch.autocast(") == after.count(ALWAYS) == (1 if body == ONE else 2)
    assert "use_amp" not in after
    assert "def evaluate(model, loader):" in after


@pytest.mark.parametrize(
    ("body", "regions"),
    [
        (TWO + "\n        report(model, loader)", 1),
        (TWO.replace("if args.evaluate:", "report(model, loader)\n        if args.evaluate:"), 1),
        (ASKED_AGAIN.replace("        if args.check", "        args.evaluate = True\n        if args.check"), 1),
    ],
)
def test_what_runs_without_one_too_is_told(body: str, regions: int) -> None:
    after = rewrite(PROGRAM.replace("BODY", body)).after or ""
    assert "def evaluate(model, loader, use_amp=False):" in after
    assert after.count(ALWAYS) == regions  # where the second set-up stands right above


def test_a_variable_that_nothing_reads_below_is_not_written() -> None:
    body = TWO.replace("if args.evaluate:", "report(model, loader)\n        if args.evaluate:")
    after = rewrite(PROGRAM.replace("BODY", body)).after or ""
    assert after.count("use_amp = ") <= 1
    assert "use_amp = args.check" not in after


@pytest.mark.parametrize("option", ["--evaluate", "--check"])
@pytest.mark.parametrize("body", [ASKED_AGAIN, f"report(model, loader)\n        {TWO}"])
def test_what_was_half_is_half(tmp_path: Path, body: str, option: str) -> None:
    """On the CPU, whose half type is another."""
    after = rewrite(PROGRAM.replace("BODY", body)).after or ""
    script = tmp_path / "train.py"
    script.write_text(after.replace('"cuda", dtype=torch.float16', '"cpu", dtype=torch.bfloat16'))
    run = subprocess.run([sys.executable, str(script), option], capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout.split() == ["torch.float32"] * body.startswith("report") + ["torch.bfloat16"]


TRAINED = """
    import argparse

    import torch
    from apex import amp


    def main(loader):
        parser = argparse.ArgumentParser()
        parser.add_argument("--train", action="store_true")
        parser.add_argument("--fp16", action="store_true")
        args = parser.parse_args()
        model = torch.nn.Linear(2, 2)
        ABOVE
        optimizer = None
        if args.train:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if args.fp16:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        if args.train:
            for x in loader:
                loss = model(x).sum()
                if args.fp16:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
            print("trained")


    if __name__ == "__main__":
        main([torch.ones(1, 2)])
    """
RAISES = """if not args.train:
            raise ValueError("nothing else is done here")"""


@pytest.mark.parametrize(
    ("above", "enabled"),
    [
        (RAISES, "args.fp16"),
        ("assert args.train", "args.fp16"),
        ("assert args.train and loader", "args.fp16"),
        (RAISES.replace("not args.train", "not loader or not args.train"), "args.fp16"),
        ("args.train = bool(loader)\n        " + RAISES, "args.train and args.fp16"),
        (RAISES.replace("raise ValueError", "print"), "args.train and args.fp16"),
        ("if loader:\n            assert args.train", "args.train and args.fp16"),
        ("", "args.train and args.fp16"),
    ],
)
def test_what_a_run_was_ended_without_is_not_asked_again(above: str, enabled: str) -> None:
    after = rewrite(TRAINED.replace("ABOVE", above)).after or ""
    assert f'torch.amp.GradScaler("cuda", enabled={enabled})' in after


def test_what_asks_less_trains(tmp_path: Path) -> None:
    after = rewrite(TRAINED.replace("ABOVE", RAISES)).after or ""
    script = tmp_path / "train.py"
    script.write_text(after)
    run = subprocess.run(
        [sys.executable, str(script), "--train"], capture_output=True, text=True, timeout=120, check=True
    )
    assert run.stdout.strip() == "trained"
