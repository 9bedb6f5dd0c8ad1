"""`amp-migrate verify --init`: the cases of a project, written to its pyproject.toml."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from amp_migrate import config
from amp_migrate.cli.printing import echo
from amp_migrate.reports import quoting

_APEX = re.compile(r"(?!import |from ).*(\bamp\s*\.|\bapex\s*\.|\bscale_loss\b|\bmaster_params\b|\bFP16_Optimizer\b)")
SHOWN = 5  # places that no case reaches, on the screen


def write(folder: Path, *, original_rev: str | None, dtype: str | None) -> int:
    """Find the cases and write them. The exit code: 0 when they reach everything as they are, 1 when something is left to
    a person, 2 when there is nothing to find or the project cannot be read."""
    from amp_migrate.cases import toml
    from amp_migrate.cases.plan import Place, plan
    from amp_migrate.verify import programs
    from amp_migrate.verify.case import VerifyError
    from amp_migrate.verify.coverage import places

    if not folder.exists():
        return _refuse(f"{folder}: no such file or folder")
    folder = folder.resolve()
    root = programs.project_root(folder / "any" if folder.is_dir() else folder)
    file = root / "pyproject.toml"
    try:
        data = config.read(file)
        present = set(toml.existing(config.parse(file, data) if data else {}))
    except config.ConfigError as error:
        return _refuse(str(error))
    with tempfile.TemporaryDirectory(prefix="amp-migrate-init-", ignore_cleanup_errors=True) as temporary:
        try:
            pair = programs.prepare_project(root, Path(temporary), original_rev=original_rev, dtype=dtype)
        except VerifyError as error:
            return _refuse(str(error))
        found = places.find(pair)
        once = {place.key: place for place in found.places()}.values()  # a handler and what stands in it run as one
        wanted: list[Place] = [(place.path, place.lines[0], place.side) for place in once]
        if not wanted:
            return _refuse("there is nothing to migrate, so there is nothing to verify")
        apex: set[Place] = {(p.path, p.lines[0], p.side) for p in once if p.side == "original" and _APEX.match(p.text)}
        planned = plan(found.trees, wanted, apex)
    options: dict[str, Any] = {"original-rev": original_rev} if original_rev else {}
    options |= {"dtype": dtype} if dtype else {}
    there = [case for case in planned.cases if (case.script, case.argv) in present]
    planned.cases = [case for case in planned.cases if case not in there]
    if planned.cases:
        try:
            toml.append(file, toml.tables(planned, options))
        except OSError as error:
            return _refuse(f"{file}: {(error.strerror or str(error)).lower()}")
    for case in planned.cases:
        echo(
            f"{quoting.lines(toml.command(case, options))}\n    to reach {len(case.reaches)} of {planned.places} changed places"
        )
        for note in case.notes:
            echo(f"    {quoting.plain(note)}")
    reached = planned.places - len(planned.unreached)
    told = f"{len(planned.cases)} cases" if len(planned.cases) != 1 else "1 case"
    shown = quoting.path(str(file))
    echo(f"{told} written to {shown}" if planned.cases else f"no new case for {shown}")
    echo(f"together they are to reach {reached} of {planned.places} changed places")
    for place, why in list(planned.unreached.items())[:SHOWN]:
        echo(f"    not {quoting.plain(toml.where(place))}: {quoting.plain(why)}")
    if len(planned.unreached) > SHOWN:
        echo(f"    and {len(planned.unreached) - SHOWN} more")
    if open_cases := [case for case in planned.cases if case.to_fill_in]:
        echo(f"{len(open_cases)} to be filled in first: look for FILL_IN in {file.name}")
    return 1 if planned.open else 0


def _refuse(message: str) -> int:
    echo(f"amp-migrate verify --init: {quoting.lines(message)}", err=True)
    return 2
