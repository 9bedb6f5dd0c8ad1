"""`fixtures/frameworks/`: programs and settings whose framework chooses Apex, before and after `rewrite`.

The frameworks are not installed here: stand-ins take the arguments that the current versions document, and no others.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.cli_testing import run, run_json

FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "frameworks"
PRECISIONS = {32, "32-true", "16-mixed", "bf16-mixed"}


def files(tree: Path) -> dict[str, bytes]:
    return {p.relative_to(tree).as_posix(): p.read_bytes() for p in sorted(tree.rglob("*")) if p.is_file()}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(FIXTURE / "before", tmp_path / "tree")
    monkeypatch.chdir(tmp_path / "tree")
    return tmp_path / "tree"


def test_rewrite(tree: Path) -> None:
    assert run("rewrite", ".").exit_code == 0
    assert files(tree) == files(FIXTURE / "after")
    assert run("rewrite", "--check", ".").exit_code == 0


def test_what_is_left_for_people(tree: Path) -> None:
    code, report = run_json("check", ".")
    assert code == 1
    found = {
        (f["path"], x["line"], x["code"]) for f in report["files"] for x in f["findings"] if x["status"] == "manual"
    }
    assert found == {("requirements.txt", 2, "AMP851"), ("run.sh", 2, "AMP852"), ("run.sh", 4, "AMP855")}


def test_nothing_of_apex_is_left_in_code_and_settings() -> None:
    for path, data in files(FIXTURE / "after").items():
        if not path.endswith((".sh", ".txt")):
            words = data.decode().replace("with Apex", "").replace("through Apex", "")
            assert "apex" not in words.lower(), path


def load(name: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": name}
    path = FIXTURE / "after" / name
    exec(compile(path.read_text(), os.fspath(path), "exec"), names)
    return names


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: object) -> None:
    module = ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)


def test_lightning_takes_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    given = []

    class Trainer:
        def __init__(self, *, max_epochs: int, precision: object = 32, gradient_clip_val: float | None = None) -> None:
            assert precision in PRECISIONS
            given.append(precision)

        def fit(self, module: torch.nn.Module) -> None:
            loss = module.training_step((torch.randn(8, 16), torch.zeros(8, dtype=torch.long)), 0)
            loss.backward()
            module.configure_optimizers().step()

    stand_in(monkeypatch, "pytorch_lightning", Trainer=Trainer, LightningModule=torch.nn.Module)
    main = load("lightning_train.py")["main"]
    for options in ([], ["--fp16", "--amp_level", "O1"], ["--plugin"]):
        main(options)
    assert given == [32, "16-mixed", "16-mixed"]


def test_transformers_takes_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    class Arguments:
        def __init__(
            self,
            output_dir: str,
            per_device_train_batch_size: int = 8,
            fp16: bool = False,
            seed: int = 42,
            predict_with_generate: bool = False,
        ) -> None:
            self.fp16 = fp16

    stand_in(monkeypatch, "transformers", TrainingArguments=Arguments, Seq2SeqTrainingArguments=Arguments)
    arguments = load("finetune.py")["arguments"]
    assert arguments("out").fp16
    assert arguments("out", generate=True).fp16
    assert not arguments("out", fp16=False).fp16


def test_deepspeed_is_given_one_kind_of_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "deepspeed")
    inline = load("ds_train.py")["CONFIG"]
    filed = json.loads((FIXTURE / "after" / "conf" / "deepspeed.json").read_text())
    kinds = {"amp", "fp16", "bf16", "torch_autocast"}
    assert [kinds & set(config) for config in (inline, filed)] == [{"torch_autocast"}, {"fp16"}]
    assert inline["torch_autocast"] == {"enabled": True, "dtype": "float16"}
