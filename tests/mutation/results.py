"""What became of mutants, kept until their file or the tests that are to see them change."""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path
from typing import Any

from tests.mutation.running import ROOT


class Results:
    """Outcomes by file and mutant, below a folder. A run that was stopped goes on where it ended."""

    def __init__(self, folder: Path, fresh: bool = False) -> None:
        self.path = folder / "results.json"
        kept = self.path.exists() and not fresh
        self.files: dict[str, dict[str, Any]] = json.loads(self.path.read_text("utf-8")) if kept else {}

    def of(self, name: str, tests: tuple[str, ...]) -> dict[str, str]:
        """The outcomes of a file's mutants as it is now; to be added to, then saved."""
        key = state(name, tests)
        if self.files.get(name, {}).get("state") != key:
            self.files[name] = {"state": key, "outcomes": {}}
        outcomes: dict[str, str] = self.files[name]["outcomes"]
        return outcomes

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        half = self.path.with_suffix(".new")
        half.write_text(json.dumps(self.files, indent=1), encoding="utf-8")
        half.replace(self.path)


def state(name: str, tests: tuple[str, ...], root: Path = ROOT) -> str:
    """A digest of a file, its tests and what these import of the tests."""
    digest, todo, met = hashlib.sha256(), [name, *tests], set[str]()
    while todo:
        path = todo.pop(0)
        if path in met or not (root / path).is_file():
            continue
        met.add(path)
        text = (root / path).read_text("utf-8")
        digest.update(f"{path}\n{text}".encode())
        if path.startswith("tests/"):
            froms = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom) and n.module]
            names = [m for n in froms for m in (n.module, *(f"{n.module}.{a.name}" for a in n.names))]
            todo += [f"{m.replace('.', '/')}.py" for m in names if m is not None and m.startswith("tests.")]
    return digest.hexdigest()[:16]
