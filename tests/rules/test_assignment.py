"""What is introduced is assigned on every path that reads it: other modes of a program, methods called first, functions
that other files import. What is emitted is run in each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files
from tests.rules.programs import found

# Prepared in two of the modes of a program; the third, and whoever comes by another way, did without Apex.
MODES = """
    import torch
    from apex import amp


    def validation(model, batches, results):
        for x, y in batches:
            with torch.no_grad():
                out = model(x)
            results.append(str(out.dtype))
        return results


    def main(mode, level="O1"):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = [(torch.randn(8, 4), torch.randn(8, 1))]
        results = []
        if mode == "train":
            model, optimizer = amp.initialize(model, optimizer, opt_level=LEVEL, loss_scale="dynamic")
            for x, y in batches:
                out = model(x)
                loss = (out - y).pow(2).mean()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
            validation(model, batches, results)
        REST
        return results
"""
ELIF = """elif mode == "validate":
            model = amp.initialize(model, opt_level=LEVEL)
            validation(model, batches, results)
        else:
            validation(model, batches, results)"""
APART = """if mode == "validate":
            model = amp.initialize(model, opt_level=LEVEL)
        if mode != "train":
            validation(model, batches, results)"""
HALF, FULL = ["torch.float16"], ["torch.float32"]


@pytest.mark.parametrize("rest", [ELIF, APART], ids=["elif", "apart"])
@pytest.mark.parametrize("level", ['"O1"', "level"])
def test_every_mode_of_a_program_finds_the_scaler_it_reads(tmp_path: Path, level: str, rest: str) -> None:
    texts = check_files({"train.py": MODES.replace("REST", rest).replace("LEVEL", level)}, device="cpu")
    texts["driver.py"] = """
import json
import train
print(json.dumps({m: train.main(m) for m in ("train", "validate", "neither")}))
"""
    assert run_files(tmp_path, texts, "driver.py") == {"train": HALF, "validate": HALF, "neither": FULL}


def test_a_mode_that_never_had_apex_goes_without(tmp_path: Path) -> None:
    texts = check_files(
        {
            "train.py": MODES.replace("REST", "else:\n            validation(model, batches, results)").replace(
                "LEVEL", "level"
            )
        },
        device="cpu",
    )
    texts["driver.py"] = (
        "import json, train\nprint(json.dumps([train.main('train'), train.main('test'), train.main('train', 'O0')]))\n"
    )
    assert run_files(tmp_path, texts, "driver.py") == [HALF, FULL, FULL]  # type: ignore[comparison-overlap]


def test_what_a_condition_assigned_is_there_under_the_same_condition() -> None:
    """Nothing is added where no path leads past the creation."""
    after = rewrite(
        """
        import torch
        from apex import amp


        def main(args):
            model, optimizer = build(args)
            if args.do_train:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            if not args.quiet:
                print(args)
            if args.do_train and args.epochs:
                for x, y in loader:
                    loss = criterion(model(x), y)
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                    optimizer.step()
        """
    ).after
    assert after is not None
    assert after.count("GradScaler(") == 1


TRAINER = """
    import torch
    from apex import amp


    class Trainer:
        def __init__(self, model):
            self.model = model
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def find_rate(self, batches):
            for x, y in batches:
                out = self.model(x)
                loss = (out - y).pow(2).mean()
                loss.backward()
                self.optimizer.step()
            return str(out.dtype)

        def train(self, batches, use_amp=False):
            if use_amp:
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
            for x, y in batches:
                out = self.model(x)
                loss = (out - y).pow(2).mean()
                if use_amp:
                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                self.optimizer.step()
            return str(out.dtype)
"""


def test_a_method_that_may_be_called_first_finds_a_disabled_scaler(tmp_path: Path) -> None:
    texts = check_files({"trainer.py": TRAINER}, device="cpu")
    texts["driver.py"] = """
import json
import torch
from trainer import Trainer
batches = [(torch.randn(8, 4), torch.randn(8, 1))]
trainer = Trainer(torch.nn.Linear(4, 1))
print(json.dumps([trainer.find_rate(batches), trainer.train(batches, True), trainer.find_rate(batches)]))
"""
    result = run_files(tmp_path, texts, "driver.py")
    assert result == [*FULL, *HALF, *HALF]  # type: ignore[comparison-overlap]
    (look,) = [f for f in found(rewrite(TRAINER), "AMP110") if "a disabled scaler until" in f.message]
    assert look.review == "look"
    line = next(n for n, text in enumerate(TRAINER.strip().splitlines(), 1) if "amp.initialize" in text)
    assert look.message == f"a disabled scaler until train runs (line {line})"


def test_a_scaler_that_is_made_before_anything_reads_it_is_made_once() -> None:
    source = TRAINER.replace("self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", "self.prepare()").replace(
        "def find_rate",
        """def prepare(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

        def find_rate""",
    )
    source = source.replace(
        """            if use_amp:
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
""",
        "",
    )
    after = rewrite(source).after
    assert after is not None
    assert after.count("GradScaler(") == 1


def test_a_name_that_only_the_script_has_is_not_read_in_functions_that_others_import(tmp_path: Path) -> None:
    files = {
        "train.py": """
        import argparse
        import torch
        from apex import amp


        def train(model, optimizer, batches, hparams):
            if hparams.fp16_run:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in batches:
                loss = (model(x) - y).pow(2).mean()
                if hparams.fp16_run:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
            return validate(model, batches)


        def validate(model, batches):
            with torch.no_grad():
                for x, y in batches:
                    out = model(x)
            return [str(out.dtype)]


        if __name__ == "__main__":
            hparams = argparse.Namespace(fp16_run=True)
            model = torch.nn.Linear(4, 1)
            train(model, torch.optim.SGD(model.parameters(), lr=0.1), [], hparams)
        """
    }
    texts = check_files(files, device="cpu")
    texts["driver.py"] = """
import argparse, json, torch
from train import train
batches = [(torch.randn(8, 4), torch.randn(8, 1))]
def run(on):
    model = torch.nn.Linear(4, 1)
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1), batches, argparse.Namespace(fp16_run=on))
print(json.dumps({"on": run(True), "off": run(False)}))
"""
    assert run_files(tmp_path, texts, "driver.py") == {"on": HALF, "off": FULL}
