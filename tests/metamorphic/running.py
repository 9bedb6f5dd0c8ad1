"""Runs programs written for CUDA, with Apex or without, on the CPU, and keeps what they did."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from amp_migrate.shim import child_environment
from tests.nursery import ROOT, Nursery


@dataclass(frozen=True)
class Run:
    """How one program ended and what hooks on torch saw."""

    status: int
    printed: str
    errors: str
    seen: dict[str, Any]

    @property
    def raised(self) -> str:
        """The last line of the traceback."""
        return (self.errors.strip().splitlines() or [f"exit status {self.status}"])[-1] if self.status else ""

    def same(self, other: Run) -> bool:
        """Whether both ended alike, printed the same and trained alike to the bit."""
        return (self.status, self.printed, self.seen) == (other.status, other.printed, other.seen)

    def numbers(self, what: str) -> list[float]:
        return [float.fromhex(value) for value in self.seen.get(what, [])]


class Runner:
    """One process that has imported torch and forks the programs.

    With `cache`, a program that ran before under the same stand-in and the same torch is not run again. A program that has
    not ended after so many `seconds` is ended (status -14).
    """

    def __init__(self, cache: Path | None = None, seconds: int = 120) -> None:
        self._cache = cache
        self._seconds = seconds
        variables = {"PYTHONHASHSEED": "0", **child_environment("shim", "cpu", {})}
        self._nursery = Nursery(variables, "tests.metamorphic.nursery")

    def run(self, script: Path, args: list[str], cwd: Path, short: bool = True) -> Run:
        """One program of the folder it lies in, which holds nothing but its project; `short`: on its first batches."""
        if self._cache is None:
            return self._run(script, args, cwd, short)
        kept = self._cache / _key(script, args, short)
        if kept.exists():
            return Run(**json.loads(kept.read_text("utf-8")))
        run = self._run(script, args, cwd, short)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(asdict(run)), encoding="utf-8")
        return run

    def _run(self, script: Path, args: list[str], cwd: Path, short: bool) -> Run:
        with tempfile.TemporaryDirectory() as folder:
            order = {"script": str(script), "args": args, "cwd": str(cwd), "out": folder}
            status = self._nursery.order(**order, short=short, seconds=self._seconds)
            out = Path(folder)
            record = out / "record.json"
            seen = json.loads(record.read_text("utf-8")) if record.exists() else {}
            printed, errors = ((out / f"{name}.txt").read_text("utf-8") for name in ("stdout", "stderr"))
        return Run(status, printed, errors, seen)

    def close(self) -> None:
        self._nursery.close()


def _key(script: Path, args: list[str], short: bool) -> str:
    found = hashlib.sha256(json.dumps([script.name, args, short, version("torch"), sys.version]).encode())
    stand_in = sorted((ROOT / "amp_migrate" / "shim").rglob("*.py"))
    for path in [
        *sorted(script.parent.rglob("*.*")),
        Path(__file__).with_name("nursery.py"),
        ROOT / "tests" / "nursery.py",
        *stand_in,
    ]:
        if path.is_file():
            found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()
