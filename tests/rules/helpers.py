"""What rule tests share: rewrite a program given as text."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import Any

from amp_migrate.engine import Program, migrate
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile


def rewrite(source: str, **options: Any) -> FileResult:
    """The result for one program, as if it were a file of its own."""
    text = textwrap.dedent(source).lstrip("\n")
    (result,) = migrate(Program([SourceFile(Path("train.py"), "train.py", text)]), Options(**options))
    return result


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
