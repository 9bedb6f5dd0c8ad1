"""What a set-up reads off a local is read off the object's own field where a method needs it."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite_files

TRAINER = """
class Trainer:
    def __init__(self, model, optimizer, options):
        self.model, self.optimizer = model, optimizer
        self.options = options

    def train_epoch(self, loader):
        for x, y in loader:
            loss = self.model(x, y)
            if self.options.fp16:
                self.optimizer.backward(loss)
            else:
                loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
"""
MAIN = """
import argparse

import torch
from apex.optimizers import FP16_Optimizer, FusedAdam
from project import build, loader
from trainer import Trainer

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--loss_scale", type=float, default=0)
parser.add_argument("--limit", type=float, default=1.0)


def main(args):
    model = build()
    if args.fp16:
        model.half()
        optimizer = FusedAdam(model.parameters(), lr=0.1, max_grad_norm=args.limit)
        if args.loss_scale == 0:
            optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
        else:
            optimizer = FP16_Optimizer(optimizer, static_loss_scale=args.loss_scale)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = Trainer(model, optimizer, args)
    trainer.train_epoch(loader)


main(parser.parse_args())
"""


def test_the_step_reads_the_scale_and_the_limit_off_its_object() -> None:
    after = check_files({"main.py": MAIN, "trainer.py": TRAINER})["trainer.py"]
    assert "enabled=self.scaler.is_enabled()" in after
    assert "scaler.update(self.options.loss_scale or None)" in after
    assert "if self.scaler.is_enabled() and self.options.limit > 0:" in after
    assert '(group["params"], self.options.limit)' in after


@pytest.mark.parametrize(
    ("kept", "given"),
    [
        ("self.options = dict(options)", "args"),  # a copy: what it is cannot be told
        ("self.options = options", "argparse.Namespace(fp16=True)"),  # another object
    ],
)
def test_a_field_that_is_given_something_else_is_not_read(kept: str, given: str) -> None:
    files = {
        "main.py": MAIN.replace("optimizer, args)", f"optimizer, {given})"),
        "trainer.py": TRAINER.replace("self.options = options", kept),
    }
    results = rewrite_files(files)
    assert all(r.after is None for r in results.values())
    assert any(f.code in ("AMP114", "AMP704") for r in results.values() for f in r.findings)


def test_a_region_reads_the_switch_off_its_object() -> None:
    """Where no scaler is near: an evaluator that is handed the options needs none to ask it."""
    files = {
        "main.py": """
        import argparse

        import torch
        from apex import amp
        from evaluator import Evaluator
        from project import build, criterion, loader

        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")


        def main(args):
            model = build()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if args.fp16:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                loss = criterion(model(x), y)
                if args.fp16:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            Evaluator(model, args).run(loader)


        main(parser.parse_args())
        """,
        "evaluator.py": """
        import torch


        class Evaluator:
            def __init__(self, model, options):
                self.model = model
                self.options = options

            def run(self, loader):
                with torch.no_grad():
                    return [self.model(x).argmax(1) for x, _ in loader]
        """,
    }
    after = check_files(files)["evaluator.py"]
    assert "enabled=self.options.fp16" in after
    assert "scaler" not in after
