"""The programs of fixtures/experiments: whole migrations, and a few steps of one; `make experiments` runs them all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from amp_migrate.engine import Program, migrate
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile
from amp_migrate.verify import configuration

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "fixtures" / "experiments"
CASES = configuration.load(FOLDER)


def test_every_program_is_a_case() -> None:
    assert sorted(case.script for case in CASES) == sorted(FOLDER.glob("*/train.py"))
    assert len(CASES) == 12


@pytest.mark.parametrize("script", [case.script for case in CASES], ids=lambda path: path.parent.name)
def test_the_migration_is_whole(script: Path) -> None:
    (result,) = migrate(Program([SourceFile(Path("train.py"), "train.py", script.read_text())]), Options())
    assert [f.message for f in result.findings if f.status == "manual"] == []
    assert result.after is not None
    assert "torch.autocast(" in result.after
    assert "apex" not in result.after.replace("Apex", "").split('"""')[2]


def test_the_bfloat16_program_is_what_the_rewriter_writes() -> None:
    source = (FOLDER / "bf16" / "train.py").read_text()
    (result,) = migrate(Program([SourceFile(Path("train.py"), "train.py", source)]), Options(dtype="bfloat16"))
    assert result.after == (FOLDER / "bf16" / "native.py").read_text()


def test_a_few_steps(amp_migrate: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    done = amp_migrate("verify", "--device", "cpu", "--steps", "3", "--drills", "none", "mlp/train.py")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "mlp/train.py: agrees"
