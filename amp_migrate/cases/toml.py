"""Cases as tables of pyproject.toml, with what a reader must know about each of them as comments."""

from __future__ import annotations

import json
import os
import posixpath
import shlex
from pathlib import Path
from typing import Any

from amp_migrate.cases.plan import Plan, Planned

WIDTH = 110  # characters of a line of arguments
UNREACHED = 12  # places that no case reaches, that are listed


def tables(plan: Plan, options: dict[str, Any]) -> str:
    """The text to put at the end of pyproject.toml; `options` are keys for every case."""
    blocks = [_table(case, plan, options) for case in plan.cases]
    if plan.unreached:
        lines = [f"# {where(place)}: {why}" for place, why in list(plan.unreached.items())[:UNREACHED]]
        more = len(plan.unreached) - UNREACHED
        lines += [f"# and {more} more"] if more > 0 else []
        blocks.append(
            "\n".join([f"# No case reaches {len(plan.unreached)} of {plan.places} changed places:", *lines, ""])
        )
    return "\n".join(blocks)


def where(place: tuple[str, int, str]) -> str:
    """A place for people."""
    return f"{place[0]}:{place[1]}" + (" of the migrated program" if place[2] == "migrated" else "")


def command(case: Planned, options: dict[str, Any]) -> str:
    """The same case on the command line."""
    words = ["amp-migrate", "verify"]
    words += ["--original-rev", options["original-rev"]] if "original-rev" in options else []
    words += ["--nproc", str(case.nproc)] if case.nproc > 1 else []
    words += ["--resume-args", case.resume] if case.resume else []
    words += ["--off-args", shlex.join(case.off)] if case.off is not None else []
    words += ["--eval-args", shlex.join(case.evaluation)] if case.evaluation is not None else []
    script = posixpath.relpath(case.script, case.cwd)
    words += [script, *(["--", *case.argv] if case.argv else [])]
    return (f"cd {shlex.quote(case.cwd)} && " if case.cwd != "." else "") + shlex.join(words)


def existing(content: dict[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """Script and arguments of the cases that a pyproject.toml has already."""
    found: Any = content
    for key in ("tool", "amp-migrate", "verify"):
        found = found.get(key, {}) if isinstance(found, dict) else []
    cases = [table for table in found if isinstance(table, dict)] if isinstance(found, list) else []
    return [(str(t.get("script")), _argv(t.get("args", []))) for t in cases]


def append(file: Path, text: str) -> None:
    """Put `text` at the end of `file`, which need not exist, on lines that end as its do. Raises OSError, with the file as
    it was."""
    before = file.read_bytes() if file.is_file() else None
    gap = "" if not before else "\n" if before.endswith(b"\n") else "\n\n"
    added = f"{gap}{text}".replace("\n", "\r\n" if b"\r\n" in (before or b"") else "\n").encode()
    try:
        with file.open("ab") as end:
            end.write(added)
    except OSError:
        if before is not None:
            os.truncate(file, len(before))
        else:
            Path(os.path.realpath(file)).unlink(missing_ok=True)
        raise


def _argv(given: Any) -> tuple[str, ...]:
    return tuple(shlex.split(given)) if isinstance(given, str) else tuple(map(str, given))


def _table(case: Planned, plan: Plan, options: dict[str, Any]) -> str:
    lines = [f"# {command(case, options)}", f"# Is to reach {len(case.reaches)} of {plan.places} changed places."]
    lines += [f"# {note[0].upper()}{note[1:]}." for note in case.notes]
    lines += ["[[tool.amp-migrate.verify]]", f"name = {_text(case.name)}", f"script = {_text(case.script)}"]
    lines += _arguments(case.argv)
    lines += [f"cwd = {_text(case.cwd)}"] if case.cwd != "." else []
    lines += [f"nproc = {case.nproc}"] if case.nproc > 1 else []
    lines += [f"resume-args = {_text(case.resume)}"] if case.resume else []
    lines += [f"off-args = {_text(shlex.join(case.off))}"] if case.off is not None else []
    lines += [f"eval-args = {_text(shlex.join(case.evaluation))}"] if case.evaluation is not None else []
    lines += [f"{key} = {_text(value) if isinstance(value, str) else value}" for key, value in options.items()]
    return "\n".join([*lines, ""])


def _arguments(argv: tuple[str, ...]) -> list[str]:
    if not argv:
        return []
    line = f"args = [{', '.join(map(_text, argv))}]"
    if len(line) <= WIDTH:
        return [line]
    lines, row = ["args = ["], ""
    for word in argv:  # an option begins a line
        if row and (word.startswith("--") or len(row) > WIDTH):
            lines.append(f"    {row.rstrip()}")
            row = ""
        row += f"{_text(word)}, "
    return [*lines, f"    {row.rstrip()}", "]"]


def _text(text: str) -> str:
    return json.dumps(text)  # what JSON escapes, TOML does as well
