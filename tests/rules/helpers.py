"""What rule tests share: rewrite a program given as text."""

from __future__ import annotations

import ast
import json
import textwrap
from pathlib import Path
from typing import Any

from amp_migrate.engine import Program, migrate
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile
from tests import nursery


def rewrite(source: str, **options: Any) -> FileResult:
    """The result for one program, as if it were a file of its own."""
    text = textwrap.dedent(source).lstrip("\n")
    (result,) = migrate(Program([SourceFile(Path("train.py"), "train.py", text)]), Options(**options))
    return result


def rewrite_files(files: dict[str, str], **options: Any) -> dict[str, FileResult]:
    """The results by path for a project that lies in one folder."""
    texts = {name: textwrap.dedent(text).lstrip("\n") for name, text in files.items()}
    sources = [SourceFile(Path("/p") / name, name, text) for name, text in texts.items()]
    return {r.path: r for r in migrate(Program(sources, (), Path("/p")), Options(**options))}


def texts_of(results: dict[str, FileResult]) -> dict[str, str]:
    """What the files of a project are once migrated, those that stay as they were among them."""
    return {name: r.before if r.after is None else r.after for name, r in results.items()}


def check_files(files: dict[str, str], **options: Any) -> dict[str, str]:
    """The texts of a project once migrated: nothing is left to do by hand, and a second run changes nothing."""
    results = rewrite_files(files, **options)
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    texts = texts_of(results)
    assert not [r for r in rewrite_files(texts, **options).values() if r.after is not None]
    return texts


def names_of(text: str | None) -> dict[str, Any]:
    """What a program defines, which ran in this process; one that was not migrated fails."""
    assert text is not None
    names: dict[str, Any] = {}
    exec(compile(text, "train.py", "exec"), names)
    return names


def run_alone(folder: Path, text: str) -> tuple[str, str]:
    """What a program, run in a process of its own, printed, and what it said as it failed."""
    (folder / "train.py").write_text(text)
    _, printed, errors = nursery.plain().run("train.py", [], folder)
    return printed.strip(), errors


def run_files(folder: Path, texts: dict[str, str], entry: str) -> Any:
    """Run one file of a project laid out in a folder, in a process of its own; the JSON it prints last.

    SCALER_STATE in a program stands for what it could not say before it was migrated: `scaler` would be a name of its own.
    """
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("SCALER_STATE", "scaler.state_dict()"))
    status, printed, errors = nursery.plain().run(entry, [], folder)
    assert status == 0, errors
    return json.loads(printed.splitlines()[-1])


def check_rewrite(source: str, expected: str, **options: Any) -> FileResult:
    """Assert that a program becomes another, that nothing is left to do by hand, and that a second run changes nothing."""
    result = rewrite(source, **options)
    wanted = textwrap.dedent(expected).lstrip("\n")
    ast.parse(wanted)
    assert result.after == wanted, result.findings
    assert not [f for f in result.findings if f.status == "manual"]
    assert rewrite(wanted, **options).after is None
    return result


def check_untouched(source: str, **options: Any) -> FileResult:
    """Assert that a program stays as it is and nothing is said of it."""
    result = rewrite(source, **options)
    assert result.after is None
    assert not result.findings
    return result


def check_manual(source: str, code: str, **options: Any) -> FileResult:
    """Assert that a program is left alone and the reason reported under a code."""
    result = rewrite(source, **options)
    assert any(f.code == code and f.status == "manual" for f in result.findings), result.findings
    return result
