"""The audit shares no conclusion with what it checks: it imports the standard library and the findings, nothing else."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import amp_migrate

AUDIT = Path(amp_migrate.__file__).parent / "audit"
FILES = sorted(path.relative_to(AUDIT).as_posix() for path in AUDIT.rglob("*.py"))


@pytest.mark.parametrize("name", FILES)
def test_imports(name: str) -> None:
    for node in ast.walk(ast.parse((AUDIT / name).read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            names = [node.module or ""]
        for imported in names:
            own = imported.startswith("amp_migrate.audit") or imported == "amp_migrate.findings"
            assert own or imported.split(".")[0] in sys.stdlib_module_names, imported
