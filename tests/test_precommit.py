"""The pre-commit hooks: their manifest, the files they ask for, and their commands on a scratch repository."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from identify.identify import tags_from_path
from pre_commit.clientlib import load_manifest

from amp_migrate.cli.outside import wanted
from tests.cli_testing import write_tree

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


DEEPSPEED = '{\n  "train_batch_size": 8,\n  "amp": {"enabled": true, "opt_level": "O1"}\n}\n'


def commit(repository: Path, files: dict[str, str]) -> None:
    """Only these files, tracked."""
    for path in repository.iterdir():
        if path.is_file():
            path.unlink()
    write_tree(repository, dict(files))
    subprocess.run(["git", "add", "-A"], cwd=repository, check=True)


def test_a_project_whose_only_apex_is_in_a_deepspeed_file(repository: Path) -> None:
    commit(repository, {"ds_config.json": DEEPSPEED, "train.py": "import deepspeed\n", "README.md": "Train.\n"})
    done = run_hook("amp-migrate-check", repository)
    assert done.returncode == 1
    assert "ds_config.json:3:3 AMP804" in done.stdout
    assert run_hook("amp-migrate", repository).returncode == 0
    assert '"torch_autocast": {"enabled": true, "dtype": "float16"}' in (repository / "ds_config.json").read_text()
    assert run_hook("amp-migrate-check", repository).returncode == 0


def test_notebooks_and_yaml(repository: Path) -> None:
    cell = {"cell_type": "code", "source": APEX.splitlines(keepends=True), "metadata": {}, "outputs": []}
    notebook = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    commit(repository, {"nb.ipynb": notebook, "trainer.yaml": "trainer:\n  amp_backend: apex\n  precision: 16\n"})
    done = run_hook("amp-migrate-check", repository)
    assert "nb.ipynb:" in done.stdout
    assert "trainer.yaml:" in done.stdout
    run_hook("amp-migrate", repository)
    assert run_hook("amp-migrate-check", repository).returncode == 0


@pytest.mark.parametrize("hook", HOOKS)
def test_the_hooks_see_what_check_sees_in_the_folder(hook: str, repository: Path) -> None:
    """Vendored copies of Apex, environments and broken fixtures are handed over by name: they are left out all the same."""
    commit(
        repository,
        {
            "train.py": APEX,
            "third_party/apex/apex/amp/frontend.py": "from apex import amp\n",
            "third_party/apex/tests/run.py": APEX,
            "venv/pyvenv.cfg": "",
            "venv/lib/x.py": APEX,
            "notes/Pipfile.lock": '{"amp": "apex"}',
            "tool": "#!/usr/bin/env python\n" + APEX,
        },
    )
    before = {path: path.read_text() for path in repository.rglob("*") if path.is_file() and ".git" not in path.parts}
    seen = subprocess.run(
        [sys.executable, "-m", "amp_migrate", *shlex.split(HOOKS[hook]["entry"])[1:2], "--format", "json"]
        + (["--check"] if hook == "amp-migrate" else [])
        + ["."],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    paths = {file["path"] for file in json.loads(seen.stdout)["files"]}
    assert paths == {"train.py"}
    done = run_hook(hook, repository)
    assert {line.split(":")[0] for line in done.stdout.splitlines() if re.match(r"\S+:\d+:\d+ AMP", line)} <= paths
    changed = {str(p.relative_to(repository)) for p, text in before.items() if p.read_text() != text}
    assert changed == ({"train.py"} if hook == "amp-migrate" else set())


def names_that_check_reads() -> list[str]:
    """One file name for each thing that `check` knows a file by."""
    from amp_migrate import texts
    from amp_migrate.sources.discover import PYTHON_SUFFIXES, SETTINGS_SUFFIXES

    suffixes = {*texts.COMMAND_SUFFIXES, *texts.PROSE_SUFFIXES, *PYTHON_SUFFIXES, *SETTINGS_SUFFIXES}
    stems = {*texts.COMMAND_NAMES, *texts.PROSE_NAMES, *(f"{name}.txt" for name in texts.PROSE_NAMES)}
    others = {"setup.py", "setup.cfg", "pyproject.toml", ".gitmodules", "gpu.dockerfile", "Dockerfile.gpu", "README"}
    required = {f"{name}{end}" for name in ("requirements", "dev-requirements") for end in (".txt", ".in", ".pip")}
    return sorted({*(f"a/x{suffix}" for suffix in suffixes), *stems, *others, *required, "requirements/gpu.in"})


@pytest.mark.parametrize("path", names_that_check_reads())
def test_the_checking_hook_asks_for_all_that_check_reads(path: str) -> None:
    assert path.endswith((".py", ".ipynb")) or wanted(path), "the list above has a name that check does not read"
    assert re.search(HOOKS["amp-migrate-check"]["files"], path)


@pytest.mark.parametrize("suffix", [".py", ".ipynb", ".json", ".yaml", ".yml", ".jsonnet", ".libsonnet"])
def test_the_rewriting_hook_asks_for_all_that_rewrite_writes(suffix: str) -> None:
    assert re.search(HOOKS["amp-migrate"]["files"], f"a/x{suffix}")


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
