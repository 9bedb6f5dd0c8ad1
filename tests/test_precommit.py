"""The pre-commit hooks: their manifest, the files they ask for, and their commands on a scratch repository."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from identify.identify import tags_from_path
from pre_commit.clientlib import load_manifest

ROOT = Path(__file__).parent.parent
HOOKS: dict[str, dict[str, Any]] = {hook["id"]: hook for hook in load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))}

APEX = (
    "import torch\nfrom apex import amp\n\nmodel = torch.nn.Linear(2, 2).cuda()\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
    "for x in [torch.ones(1, 2).cuda()] * 3:\n    loss = model(x).sum()\n"
    "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
    "    optimizer.step()\n    optimizer.zero_grad()\n"
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(APEX)
    (tmp_path / "plain.py").write_text("x = 1\n")
    (tmp_path / "requirements.txt").write_text("torch\napex\n")
    (tmp_path / "notes.txt").write_text("pip install apex\n")
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    return tmp_path


def run_hook(name: str, repository: Path) -> subprocess.CompletedProcess[str]:
    """What pre-commit does: the entry with every file of the repository that the hook asks for."""
    hook = HOOKS[name]
    listed = subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=True)
    files = []
    for path in listed.stdout.splitlines():
        tags = tags_from_path(str(repository / path))
        wanted = set(hook["types"]) <= tags and (not hook["types_or"] or set(hook["types_or"]) & tags)
        if wanted and re.search(hook["files"], path):
            files.append(path)
    program, *arguments = shlex.split(hook["entry"])
    assert program == "amp-migrate"
    command = [sys.executable, "-m", "amp_migrate", *arguments, *hook["args"], *files]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)


def test_both_hooks_are_there_and_see_all_files_in_one_run() -> None:
    assert set(HOOKS) == {"amp-migrate", "amp-migrate-check"}
    for hook in HOOKS.values():
        assert hook["language"] == "python"
        assert hook["require_serial"]
        assert hook["pass_filenames"]


def test_rewriting_hook_rewrites_and_is_then_content(repository: Path) -> None:
    run_hook("amp-migrate", repository)
    text = (repository / "train.py").read_text()
    assert "apex" not in text
    assert "scaler.scale(loss).backward()" in text
    assert (repository / "plain.py").read_text() == "x = 1\n"
    again = run_hook("amp-migrate", repository)
    assert again.returncode == 0
    assert (repository / "train.py").read_text() == text


def test_checking_hook_only_reports(repository: Path) -> None:
    done = run_hook("amp-migrate-check", repository)
    assert done.returncode == 1
    assert "train.py:" in done.stdout
    assert "requirements.txt:2:1 AMP851" in done.stdout
    assert "notes.txt" not in done.stdout
    assert (repository / "train.py").read_text() == APEX


def test_a_clean_repository_passes(repository: Path) -> None:
    (repository / "train.py").write_text("x = 1\n")
    (repository / "requirements.txt").write_text("torch\n")
    for name in HOOKS:
        assert run_hook(name, repository).returncode == 0


@pytest.mark.parametrize(
    "path",
    [
        *(
            "a/train.py",
            "nb.ipynb",
            "requirements-dev.txt",
            "requirements/gpu.txt",
            "Dockerfile.gpu",
            "run.sh",
            "README",
        ),
        *("docs/x.rst", ".github/workflows/ci.yml", ".gitmodules", "setup.cfg", "Makefile", "environment.yaml"),
    ],
)
def test_checking_hook_asks_for_what_check_reads(path: str) -> None:
    assert re.search(HOOKS["amp-migrate-check"]["files"], path)


def test_the_hook_environment_needs_no_torch() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    dependencies = re.search(r"^dependencies = \[(.*?)\]", text, re.M | re.S)
    assert dependencies is not None
    assert "torch" not in dependencies[1]
