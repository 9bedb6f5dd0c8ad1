"""The same input gives the same bytes and findings, whatever the hash seed, the order of the paths and the processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent.parent / "fixtures"
SINGLE = (
    "amp_handle",
    "amp_on_args",
    "cast_functions",
    "checkpoint_resume",
    "fp16_optimizer",
    "fused_optimizers",
    "gan_num_losses",
    "kfold",
    "native_and_apex",
    "nnunet_trainer",
    "run_glue",
    "trainer_class",
)
# Two classes of one name, and objects that may be of either.
PROJECT = {
    "one.py": "class Trainer:\n    def __init__(self, net, opt):\n        self.net, self.opt = net, opt\n{}",
    "two.py": "class Trainer:\n    def __init__(self, net, opt):\n        self.opt = opt\n        self.net = net\n{}",
    "choose.py": "import one\nimport two\n\n\ndef make(kind, net, opt):\n    return (one if kind else two).Trainer(net, opt)\n",
    "first.py": "import torch\nimport one\nimport two\nfrom apex import amp\n\n\ndef main(net, opt, kind, loader):\n"
    '    net, opt = amp.initialize(net, opt, opt_level="O1")\n'
    "    trainer = one.Trainer(net, opt) if kind else two.Trainer(net, opt)\n    trainer.fit(loader)\n",
    "third.py": "from choose import make\n\n\ndef main(net, opt, loader):\n    make(1, net, opt).fit(loader)\n",
}
FIT = """
    def fit(self, loader):
        for x, y in loader:
            loss = self.loss(self.net(x), y)
            with amp.scale_loss(loss, self.opt) as scaled:
                scaled.backward()
            self.opt.step()

    def loss(self, output, y):
        return (output - y).pow(2).mean()
"""


def _lay_out(folder: Path) -> list[str]:
    for name in SINGLE:
        (folder / name).mkdir()
        shutil.copy(FIXTURES / name / "before.py", folder / name / "train.py")
    shutil.copytree(FIXTURES / "projects" / "tagger" / "before", folder / "tagger")
    (folder / "several").mkdir()
    for name, text in PROJECT.items():
        body = text.replace("{}", FIT)
        (folder / "several" / name).write_text(f"from apex import amp\n\n\n{body}" if "{}" in text else body)
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*.py"))


def _rewrite(folder: Path, seed: str, jobs: str, *, backwards: bool) -> dict[str, Any]:
    folder.mkdir()
    paths = _lay_out(folder)
    for project in folder.iterdir():
        (project / "pyproject.toml").write_text("")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "amp_migrate",
            "rewrite",
            "--format",
            "json",
            "-j",
            jobs,
            *paths[:: -1 if backwards else 1],
        ],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(FIXTURES.parent)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    told = sorted(json.loads(done.stdout)["files"], key=lambda file: str(file["path"]))
    return {"texts": {path: (folder / path).read_bytes() for path in paths}, "findings": told, "rc": done.returncode}


def test_seeds_orders_and_processes_decide_nothing(tmp_path: Path) -> None:
    first = _rewrite(tmp_path / "0", "0", "1", backwards=False)
    assert b"GradScaler" in first["texts"]["several/first.py"]
    for number, (seed, jobs, backwards) in enumerate((("1", "2", True), ("2", "1", False), ("31", "1", True)), start=1):
        other = _rewrite(tmp_path / str(number), seed, jobs, backwards=backwards)
        for path, text in first["texts"].items():
            assert other["texts"][path] == text, path
        assert other == first


def test_what_is_told_of_many_ways_does_not_hang_on_the_seed() -> None:
    code = (
        "from amp_migrate.audit.ways.formulas import apart, disjunction\n"
        "print(apart(True, disjunction(list('abcdefgh')), 'off'))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(FIXTURES.parent)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("0", "1", "2", "3")
    }
    assert told == {"{'h': True, 'off': False}\n"}
