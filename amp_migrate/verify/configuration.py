"""`[[tool.amp-migrate.verify]]` in pyproject.toml: cases that `amp-migrate verify` runs without arguments.

[[tool.amp-migrate.verify]]
script = "train.py"
args = ["--epochs", "1"]
steps = 50
migrated = "train_native.py"       # or: original-rev = "HEAD~1"
resume-at = 25
resume-args = "--resume {checkpoint}"
drills = ["overflow", "growth"]    # or "none", "all"
"""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amp_migrate import config
from amp_migrate.verify.case import VerifyError

_TYPES: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "script": str,
    "cwd": str,
    "args": (list, str),
    "steps": int,
    "migrated": str,
    "original-rev": str,
    "resume-at": int,
    "resume-args": str,
    "device": str,
    "apex": str,
    "dtype": str,
    "nproc": int,
    "seed": int,
    "drills": (list, str),
    "off-args": str,
    "eval-args": str,
}


_CHOICES = {"device": ("auto", "cuda", "cpu"), "apex": ("auto", "installed", "shim"), "dtype": ("float16", "bfloat16")}


@dataclass(frozen=True)
class Configured:
    """One table of the configuration; `folder` is where its paths start, `cwd` where the programs run, by default there."""

    name: str
    script: Path
    folder: Path
    argv: tuple[str, ...]
    cwd: Path
    options: dict[str, Any]


def load(start: Path) -> list[Configured]:
    """The cases of the nearest pyproject.toml at or above `start`. Raises VerifyError with the table that is wrong."""
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        try:
            data = config.read(file)
            if data is not None:
                return _cases(file, config.parse(file, data))
        except config.ConfigError as error:
            raise VerifyError(str(error)) from error
    raise VerifyError("no SCRIPT was named and there is no pyproject.toml")


def _cases(file: Path, content: dict[str, Any]) -> list[Configured]:
    tables: Any = content
    for key in ("tool", "amp-migrate", "verify"):
        tables = tables.get(key, {}) if isinstance(tables, dict) else {}
    if not tables:
        raise VerifyError(f"no SCRIPT was named and {file} has no [[tool.amp-migrate.verify]]")
    if not isinstance(tables, list):
        raise VerifyError(f"{file}: verify is an array of tables, [[tool.amp-migrate.verify]]")
    return _told_apart([_case(file, number, table) for number, table in enumerate(tables, 1)])


def _told_apart(cases: list[Configured]) -> list[Configured]:
    """Cases of one script have their arguments in their names, and what is still alike a number."""
    shared = Counter(case.name for case in cases)
    cases = [
        replace(case, name=f"{case.name} {shlex.join(case.argv)}".strip()) if shared[case.name] > 1 else case
        for case in cases
    ]
    seen: Counter[str] = Counter()
    named = []
    for case in cases:
        seen[case.name] += 1
        named.append(replace(case, name=f"{case.name} ({seen[case.name]})") if seen[case.name] > 1 else case)
    return named


def _case(file: Path, number: int, table: dict[str, Any]) -> Configured:
    where = f"{file}: [[tool.amp-migrate.verify]] number {number}"
    for key, value in table.items():
        if key not in _TYPES:
            raise VerifyError(f"{where}: unknown key {key!r}; known are {', '.join(_TYPES)}")
        if not isinstance(value, _TYPES[key]) or isinstance(value, bool):
            raise VerifyError(f"{where}: {key} has the wrong type")
        if value not in _CHOICES.get(key, (value,)):
            raise VerifyError(f"{where}: {key} is one of {', '.join(_CHOICES[key])}, not {value!r}")
    if "script" not in table:
        raise VerifyError(f"{where}: script is missing")
    arguments = table.get("args", [])
    argv = tuple(shlex.split(arguments) if isinstance(arguments, str) else [str(a) for a in arguments])
    options = {k.replace("-", "_"): v for k, v in table.items() if k not in ("name", "script", "args", "cwd")}
    if isinstance(options.get("drills"), list):
        options["drills"] = ",".join(str(name) for name in options["drills"])
    cwd = file.parent / table.get("cwd", ".")
    if not cwd.is_dir():
        raise VerifyError(f"{where}: cwd: there is no folder {cwd}")
    return Configured(
        table.get("name", table["script"]), file.parent / table["script"], file.parent, argv, cwd, options
    )
