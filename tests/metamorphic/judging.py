"""What becomes of a transformed program: right, refused or wrong.

*right*: migrated whole, no Apex left, a second rewrite changes nothing, and every program of it runs and trains as the
fixture's own migration (after.py) does, or as the fixture did. *refused*: exit code 1 with a manual finding, and every
program still runs and trains as before. *wrong*: everything else. A transformation that changes the Apex program itself is
*unsound*: that is a fault of this measure.
"""

from __future__ import annotations

import ast
import json
import math
import re
import tempfile
import traceback
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from amp_migrate.cli import main
from amp_migrate.sources.notebooks import Notebook
from tests.metamorphic.program import ENTRY, Fixture, Project
from tests.metamorphic.running import Run, Runner

# What rounding alone may move, as in amp_migrate/verify/thresholds.py: a loss computed in float16, the norm of a
# gradient, and the share of module calls in half precision.
LOSS, GRADIENT, PRECISION = 2**-9, 0.004, 0.02
MOST_APART = 4.0  # of the loss scales of two runs, once they have trained
APEX_SAYS = re.compile(r"amp O[0-3]: |  [a-z_0-9]+ += |Gradient overflow: ")


@dataclass(frozen=True)
class Outcome:
    """One program under one transformation."""

    fixture: str
    transform: str
    verdict: str
    why: str = ""
    codes: tuple[str, ...] = ()


@dataclass
class Reference:
    """A fixture as it is, before and after its migration."""

    fixture: Fixture
    runner: Runner
    short: bool = True

    @cached_property
    def before(self) -> Run:
        """On its first batches, unless it needs them all."""
        run = self._run(self.fixture.before)
        if run.status:
            self.short = False
            run = self._run(self.fixture.before)
        return run

    @cached_property
    def after(self) -> Run:
        return self._run(self.fixture.after)

    def _run(self, text: str) -> Run:
        with tempfile.TemporaryDirectory() as folder:
            return runs(lay_out(Project({ENTRY: text}), Path(folder)), (ENTRY,), self)[ENTRY]


def lay_out(project: Project, folder: Path) -> Path:
    for name, text in project.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / ".git").mkdir()
    return folder


def runs(folder: Path, entries: tuple[str, ...], reference: Reference) -> dict[str, Run]:
    """Each program in a working directory of its own; a notebook as its cells in order."""
    found = {}
    for name in entries:
        script = folder / name
        if script.suffix == ".ipynb":
            script = script.with_name("cells.py")
            script.write_text(Notebook.parse((folder / name).read_text("utf-8")).program, "utf-8")
        with tempfile.TemporaryDirectory() as cwd:
            found[name] = reference.runner.run(script, reference.fixture.args, Path(cwd), reference.short)
        if script.name == "cells.py":
            script.unlink()
    return found


def judge(reference: Reference, transform: str, project: Project) -> Outcome:
    """Run a transformed project, migrate it, run it again."""

    def say(verdict: str, why: str = "", codes: tuple[str, ...] = ()) -> Outcome:
        return Outcome(reference.fixture.name, transform, verdict, why, codes)

    trained = (ENTRY, *project.twins)
    entries = (*trained, *project.also)
    with tempfile.TemporaryDirectory() as place:
        folder = lay_out(project, Path(place))
        reference.before  # noqa: B018 (says whether the first batches are enough)
        old = runs(folder, entries, reference)
        for name, run in old.items():
            if name in trained and not run.same(reference.before):
                return say(
                    "unsound", f"{name} no longer trains as before: {run.raised or difference(run, reference.before)}"
                )
            if name in project.also and run.status:
                return say("unsound", f"{name}: {run.raised}")
        code, findings, trouble = rewrite(folder)
        if trouble:
            return say("wrong", trouble)
        manual = [f for f in findings if f["status"] == "manual"]
        codes = tuple(sorted({f["code"] for f in manual}))
        texts = {name: (folder / name).read_text("utf-8") for name in project.files}
        if code not in (0, 1) or (code == 1) != bool(manual):
            return say("wrong", f"exit code {code} with {len(manual)} manual findings", codes)
        if code == 1 and texts == project.files:
            return say("refused", codes=codes)
        if not code:
            for name, text in texts.items():
                if line := mentions_apex(name, text):
                    return say("wrong", f"{name}:{line} still names Apex and no finding says so")
        new = runs(folder, entries, reference)
        for name, run in new.items():
            if run.status and not old[name].status:
                return say("wrong", f"{name} raises {run.raised}", codes)
            expected = [old[name]] if name in project.also else [reference.after, reference.before]
            if code == 1 and texts[name] == project.files[name]:
                expected.append(old[name])
            equal = Run.same if name in project.also else alike
            if not any(equal(run, wanted) for wanted in expected):
                return say("wrong", f"{name} no longer does what it did: {said(run, expected[0])}", codes)
        if code:
            return say("refused", "in part: " + ", ".join(n for n in texts if texts[n] != project.files[n]), codes)
        again, _, trouble = rewrite(folder)
        if trouble or again or any((folder / name).read_text("utf-8") != texts[name] for name in texts):
            return say("wrong", trouble or f"a second rewrite changes the result or exits {again}")
    return say("right")


def rewrite(*paths: Path) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code and findings of `amp-migrate rewrite`, and how it failed if it did."""
    done = CliRunner().invoke(main, ["rewrite", "--format", "json", *map(str, paths)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return done.exit_code, [], "".join(traceback.format_exception_only(done.exception)).strip()
    if done.exit_code == 3:
        broken = [f for f in _findings(done.stdout) if "amp-migrate broke" in f["message"] or f["code"] == "AMP007"]
        return 3, broken, "; ".join(f"line {f['line']}: {f['message']}" for f in broken[:1])
    if done.exit_code not in (0, 1):
        return done.exit_code, [], f"exit code {done.exit_code}: {(done.stderr or done.stdout).strip()[-300:]}"
    return done.exit_code, _findings(done.stdout), ""


def _findings(report: str) -> list[dict[str, Any]]:
    return [finding for file in json.loads(report)["files"] for finding in file["findings"]]


def mentions_apex(name: str, text: str) -> int:
    """The first line that imports Apex."""
    program = Notebook.parse(text).program if name.endswith(".ipynb") else text
    for node in ast.walk(ast.parse(program)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module or ""]
        if any(module.split(".")[0] == "apex" for module in modules):
            return int(getattr(node, "lineno", 0))
    return 0


def alike(run: Run, wanted: Run) -> bool:
    """To the bit, or within what rounding alone produces from one step to the next."""
    return run.same(wanted) or (run.status == wanted.status and not difference(run, wanted))


def difference(run: Run, wanted: Run) -> str:
    """What differs by more than rounding, in words."""
    for what, limit in (("losses", LOSS), ("gradients", GRADIENT), ("parameters", GRADIENT)):
        mine, theirs = run.numbers(what), wanted.numbers(what)
        if len(mine) != len(theirs):
            return f"{len(mine)} {what} instead of {len(theirs)}"
        if what == "losses":
            mine = _rescaled(mine, theirs)
        for step, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            if one != other and not abs(one - other) <= limit * max(abs(one), abs(other)):
                return f"{what}[{step}] is {one:.6g} instead of {other:.6g}"
    mine_in, theirs_in = (_half(r.seen.get("precision", {})) for r in (run, wanted))
    for kind in sorted({*mine_in, *theirs_in}):
        if abs(mine_in.get(kind, 0.0) - theirs_in.get(kind, 0.0)) > PRECISION:
            return f"{kind}: {mine_in.get(kind, 0.0):.0%} in half precision instead of {theirs_in.get(kind, 0.0):.0%}"
    if len(_own_lines(run)) != len(_own_lines(wanted)):
        return "it prints other lines"
    return ""


def _rescaled(losses: list[float], wanted: list[float]) -> list[float]:
    """Losses as backward saw them, times the scale of the other run. Both begin with the same scale; after an overflow one
    may be halved within an iteration where the other is at its end, which gradients and parameters do not show."""
    factor = 1.0
    found = losses[:1]
    for loss, other in zip(losses[1:], wanted[1:], strict=True):
        if loss and other and loss * other > 0 and math.isfinite(loss) and math.isfinite(other):
            factor = 2.0 ** round(math.log2(other / loss))
        found.append(loss * factor if 1 / MOST_APART <= factor <= MOST_APART else loss)
    return found


def _own_lines(run: Run) -> list[str]:
    """What a program prints, less what Apex says beside it."""
    return [line for line in run.printed.splitlines() if not APEX_SAYS.match(line)]


def said(run: Run, wanted: Run) -> str:
    """What differs, in words, also where rounding would do."""
    return difference(run, wanted) or f"it prints {run.printed.strip()!r} instead of {wanted.printed.strip()!r}"


def _half(counts: dict[str, int]) -> dict[str, float]:
    """The share of half precision by kind of module, training and evaluation apart."""
    total: dict[str, int] = {}
    half: dict[str, int] = {}
    for key, count in counts.items():
        kind, dtype = key.rsplit(" ", 1)
        total[kind] = total.get(kind, 0) + count
        half[kind] = half.get(kind, 0) + count * (dtype in ("torch.float16", "torch.bfloat16"))
    return {kind: half[kind] / total[kind] for kind in total}
