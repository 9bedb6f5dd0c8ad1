"""A project whose top folder is itself a package: its files call it by a name that the folder need not have."""

from __future__ import annotations

from pathlib import Path

from amp_migrate.sources.files import SourceFile
from amp_migrate.sources.related import dotted_names, own_name, related
from tests.rules.helpers import check_files, rewrite_files, run_files

PREPARE = """
from apex import amp


def prepare(model, optimizer, half):
    if half:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    return model, optimizer
"""
TRAINER = """
from apex import amp


class Trainer:
    def __init__(self, model, optimizer, half=False):
        self.model = model
        self.optimizer = optimizer
        self.half = half

    @classmethod
    def create(cls, model, optimizer, **kwargs):
        return cls(model, optimizer, **kwargs)

    def train(self, batches):
        for x, y in batches:
            self.optimizer.zero_grad()
            loss = (self.model(x) - y).pow(2).mean()
            if self.half:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()
"""
RUN = """
import torch
from lib.core.prepare import prepare
from lib.core.trainer import Trainer


def run(batches, half):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = prepare(model, optimizer, half=half)
    trainer = Trainer.create(model, optimizer, half=half)
    trainer.train(batches)
    return trainer
"""
FILES = {
    "__init__.py": "",
    "core/__init__.py": "",
    "core/prepare.py": PREPARE,
    "core/trainer.py": TRAINER,
    "run.py": RUN,
}
USE = """
import json
import warnings

import torch

warnings.simplefilter("ignore")  # no GPU
from lib.run import run

trainer = run([(torch.ones(4, 2), torch.ones(4, 1))] * 2, True)
print(json.dumps(type(trainer.scaler).__name__))
"""


def test_the_scaler_reaches_what_is_imported_by_the_name_of_the_package(tmp_path: Path) -> None:
    texts = check_files(FILES)
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=' in texts["run.py"]
    assert "Trainer.create(model, optimizer, scaler, half=half)" in texts["run.py"]
    program = {f"lib/{name}": text for name, text in texts.items()}
    assert run_files(tmp_path, {**program, "use.py": USE}, "use.py") == "GradScaler"


def test_a_name_of_others_is_none_of_the_project() -> None:
    """`lib.core` may be anything where most of what is imported from `lib` is not in the project."""
    more = "".join(f"import lib.part{i}\n" for i in range(2))
    found = rewrite_files({**FILES, "other.py": more})
    assert [f for r in found.values() for f in r.findings if f.status == "manual"]


def test_the_name_under_which_files_import_each_other() -> None:
    known = dotted_names(["core.a", "core.b", "util"])
    assert known == {"core", "core.a", "core.b", "util"}
    assert own_name(["from lib.core.a import x\nimport lib.core.b, os.path\n"], known) == "lib"
    assert own_name(["from lib.core.a import x\n"], known) == ""  # one may be a namesake
    assert own_name(["from lib.core.a import x\nimport lib.core.b\nimport lib.core.c\n"], known) == ""
    assert own_name(["from util.core.a import x\nfrom util.core.b import y\n"], known) == ""


def test_files_are_tied_by_the_name_of_the_package() -> None:
    files = [SourceFile(Path("/p") / name, name, text) for name, text in FILES.items()]
    assert {"/p/run.py", "/p/__init__.py"} <= related(files, lambda file: "apex" in file.text)
