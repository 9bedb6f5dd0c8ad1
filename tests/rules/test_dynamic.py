"""Apex imported by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, check_manual, check_untouched, rewrite, run_files


@pytest.mark.parametrize("name", ["apex", "apex.amp"])
def test_a_module_imported_by_name_is_reported(name: str) -> None:
    check_manual(f'import importlib\n\nbackend = importlib.import_module("{name}")\n', "AMP103")


def test_a_name_that_is_a_default_somewhere_is_reported_too() -> None:
    check_manual(
        """
        import importlib

        def load(name="apex.amp"):
            return importlib.import_module(name)
        """,
        "AMP103",
    )


def test_the_word_in_a_sentence_or_without_an_import_is_left_alone() -> None:
    check_untouched('import importlib\n\nprint("apex of the hill", importlib.import_module("json"))\n')
    check_untouched('mountain = "apex"\n')


@pytest.mark.parametrize(
    "program",
    [
        'import importlib\n\nfor name in ("apex", "torch"):\n    importlib.import_module(name)\n',
        'import importlib\n\nNAME = "apex"\nbackend = importlib.import_module(f"{NAME}.amp")\n',
        'def load(name):\n    return __import__(name)\n\nload("apex")\n',
    ],
)
def test_a_name_is_followed_to_the_import(program: str) -> None:
    check_manual(program, "AMP103")


def test_a_choice_called_apex_beside_other_imports_is_no_import() -> None:
    check_untouched(
        """
        import importlib

        def run(args):
            for module in args.modules:
                importlib.import_module(module)
            use_amp = None
            if args.amp_impl == "apex":
                use_amp = "apex"
            return use_amp
        """
    )


def test_what_apex_still_ships_is_a_note() -> None:
    result = rewrite(
        """
        from importlib import import_module

        def constructor(name):
            try:
                return getattr(import_module("torch.optim"), name)
            except AttributeError:
                return getattr(import_module("apex.optimizers"), name)
        """
    )
    (finding,) = result.findings
    assert (finding.code, finding.status, finding.line) == ("AMP103", "note", 7)
    assert result.after is None


TRAINED = """
import importlib
import json
import torch


class Trainer:
    def __init__(self, model, optimizer, fp16):
        self.model, self.optimizer, self.fp16 = model, optimizer, fp16
        if self.fp16:
            try:
                self.amp = importlib.import_module("apex.amp")
            except ImportError:
                raise ImportError("fp16 needs Apex")
            self.model, self.optimizer = self.amp.initialize(self.model, self.optimizer, opt_level="O1")

    def step(self, x):
        loss = self.model(x).float().mean() / 8
        self.optimizer.zero_grad()
        if self.fp16:
            with self.amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        self.optimizer.step()


def local(model, optimizer, x):
    IMPORT
    model, optimizer = AMP.initialize(model, optimizer, opt_level="O1")
    loss = model(x).float().mean() / 8
    optimizer.zero_grad()
    with AMP.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()


def main():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = model.weight.detach().clone()
    WHICH
    print(json.dumps((before - model.weight).tolist()))


main()
"""
RUNS = {
    "an attribute": (
        'amp = importlib.import_module("apex.amp")',
        "amp",
        "Trainer(model, optimizer, True).step(torch.ones(4, 2))",
    ),
    "a variable": ('amp = importlib.import_module("apex.amp")', "amp", "local(model, optimizer, torch.ones(4, 2))"),
    "a part": ('amp = importlib.import_module("apex").amp', "amp", "local(model, optimizer, torch.ones(4, 2))"),
    "at once": ("pass", 'importlib.import_module("apex.amp")', "local(model, optimizer, torch.ones(4, 2))"),
    "the builtin": ("pass", '__import__("apex").amp', "local(model, optimizer, torch.ones(4, 2))"),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_module_imported_by_its_written_name_is_migrated(kind: str, tmp_path: Path) -> None:
    brought, amp, which = RUNS[kind]
    program = TRAINED.replace("IMPORT", brought).replace("AMP", amp).replace("WHICH", which)
    texts = check_files({"train.py": program}, device="cpu")
    assert "apex" not in texts["train.py"].replace("fp16 needs Apex", "")
    assert "importlib" not in texts["train.py"]
    (moved,) = run_files(tmp_path, texts, "train.py")
    assert moved == pytest.approx([0.0625, 0.0625], abs=1e-6)


@pytest.mark.parametrize(
    "use",
    [
        'amp = importlib.import_module("apex.amp")\nhand(amp)\n',  # to code out of sight
        'amp = importlib.import_module("apex.amp")\nfor part in dir(amp):\n    print(part)\n',
        'print(importlib.import_module("apex.amp"))\n',
    ],
)
def test_a_module_that_goes_elsewhere_is_reported(use: str) -> None:
    check_manual(f"import importlib\n\n{use}", "AMP103")
