"""One `amp-migrate verify`: its cases, one after another, in a temporary folder that goes away with them."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from amp_migrate.verify import configuration, programs, written
from amp_migrate.verify.about import about
from amp_migrate.verify.case import FILL_IN, Case, Program, VerifyError
from amp_migrate.verify.coverage import places, tally
from amp_migrate.verify.coverage.diff import changes
from amp_migrate.verify.drills import plan
from amp_migrate.verify.judge import Outcome, judge
from amp_migrate.verify.launch import Launcher, LaunchError, Limits

LITTLE = 1 << 20  # bytes of a disk that is as good as full
PARALLEL = 2  # runs at a time on the CPU; on a GPU one, or their times and memory would mean nothing


@dataclass(frozen=True)
class Request:
    """What the command line asks for; `None` leaves the choice to the case, its configuration or the default."""

    script: Path | None = None
    argv: tuple[str, ...] = ()
    migrated: Path | None = None
    original_rev: str | None = None
    rewritten: Path | None = None  # a copy of the project that holds its migration already
    options: tuple[tuple[str, Any], ...] = ()
    limits: Limits = field(default_factory=Limits)
    cache: bool = True
    keep: Path | None = None  # a folder that receives the records, for looking at them


def run(request: Request, progress: Callable[[str], None] = lambda message: None) -> Iterator[Outcome]:
    """The outcome of every case, as it is reached. Raises VerifyError when there is no case."""
    with (
        tempfile.TemporaryDirectory(prefix="amp-migrate-", ignore_cleanup_errors=True) as temporary,
        _Launchers(request.limits, Path(temporary)) as launchers,
    ):
        for number, (name, script, folder, argv, given) in enumerate(_cases(request)):
            own = Path(temporary, str(number))
            own.mkdir()
            unkept = None
            try:
                outcome = _one(name, script, folder, argv, given, request, own, launchers, progress)
            finally:
                if request.keep is not None:
                    unkept = _keep(own / "runs", request.keep / folder_of(name))
            outcome.unkept = unkept
            yield outcome
            shutil.rmtree(own, ignore_errors=True)


class _Launchers(contextlib.ExitStack):
    """One for all cases that may have as many runs at a time: it imports torch once, while the first of them is prepared.

    Should this process be killed, `folder` goes away all the same.
    """

    def __init__(self, limits: Limits, folder: Path) -> None:
        super().__init__()
        self._limits, self._folder = limits, folder
        self._made: dict[int, Launcher] = {}

    def take(self, device: str) -> Launcher:
        parallel = _parallel(device)
        if parallel not in self._made:
            launcher = Launcher(parallel=parallel, limits=self._limits, folder=self._folder)
            self._made[parallel] = self.enter_context(launcher)
        return self._made[parallel]


def _cases(request: Request) -> Iterator[tuple[str, Path, Path, tuple[str, ...], dict[str, Any]]]:
    given: dict[str, Any] = {k: v for k, v in request.options if v is not None}
    if request.script is not None:
        options = {"migrated": request.migrated, "original_rev": request.original_rev, **given}
        yield str(request.script), request.script, Path.cwd(), request.argv, options
        return
    for configured in configuration.load(Path.cwd()):
        options = {**configured.options, **given}
        if isinstance(options.get("migrated"), str):
            options["migrated"] = configured.folder / options["migrated"]
        yield configured.name, configured.script, configured.cwd, configured.argv, options


def _one(
    name: str, script: Path, folder: Path, argv: tuple[str, ...], options: dict[str, Any], request: Request,
    temporary: Path, launchers: _Launchers, progress: Callable[[str], None],
) -> Outcome:  # fmt: skip
    nowhere = Program(script, folder)
    options.setdefault("drills", "auto")
    case = Case(name, nowhere, nowhere, argv)
    told = about(script.resolve().parent, options.get("original_rev"))
    try:
        progress(f"{name}: preparing")
        if options.get("dtype") is None:
            options["dtype"] = _dtype_of_project(script)
        migrated, revision = options.pop("migrated", None), options.pop("original_rev", None)
        if request.rewritten is not None:
            migrated = revision = None
        case = replace(case, needs_apex=True, cache=request.cache, **options)
        _check(case)
        launcher = launchers.take(case.device)
        if script.is_file():
            launcher.warm_up()
        pair = programs.prepare(
            script,
            temporary,
            migrated=migrated,
            original_rev=revision,
            cwd=folder,
            dtype=case.dtype,
            rewritten=request.rewritten,
        )
        programs.refuse_the_same(pair, revision=revision, rewritten=migrated is None and revision is None)
        case = replace(case, original=pair.original, migrated=pair.migrated, notes=pair.notes)
        found = places.find(pair)
        case = replace(case, watch=found.write(temporary))
        before = written.stamps(p.tree for p in (pair.original, pair.migrated) if p.tree is not None)
        outcome = judge(case, launcher, temporary / "runs", lambda message: progress(f"{name}: {message}"))
        if outcome.trouble is not None and (full := _no_room(temporary)) is not None:
            outcome.trouble = f"{full} ({outcome.trouble})"
        outcome.notes += written.told(temporary / "runs", before)
        outcome.coverage = tally.count(
            found, temporary / "runs", steps=case.steps if outcome.stopped else None, argv=case.argv
        )
        if outcome.coverage.places and not outcome.coverage.ran and outcome.trouble is None:
            outcome.trouble = f"{outcome.coverage.summary}, so that the verdicts say nothing about it"
        outcome.changes = changes(found, outcome.coverage)
        outcome.environment |= told
        return outcome
    except (VerifyError, LaunchError) as error:
        return Outcome(case, trouble=_no_room(temporary) or str(error), environment={**told})
    except Exception as error:  # whatever goes wrong here is no verdict on the programs
        if (full := _no_room(temporary)) is not None:
            return Outcome(case, trouble=full, environment={**told})
        if os.environ.get("AMP_MIGRATE_DEBUG"):
            raise
        trouble = f"internal error, please report it: {type(error).__name__}: {error}"
        return Outcome(case, trouble=trouble, environment={**told}, defect=True)


def _keep(runs: Path, kept: Path) -> str | None:
    """Copy the records of a case; why they could not be, or None."""
    reasons: list[str] = []

    def copy(source: str, target: str) -> str:
        try:
            return shutil.copy2(source, target)
        except OSError as error:
            reasons.append(error.strerror or str(error))
            raise

    try:
        if runs.exists():
            shutil.copytree(runs, kept, dirs_exist_ok=True, ignore=not_kept, copy_function=copy)
    except OSError as error:
        return (reasons[0] if reasons else error.strerror or str(error)).lower()
    return None


def _no_room(temporary: Path) -> str | None:
    """What is to be said of a run that failed where the copies of the programs have no room left, whatever it failed of."""
    if shutil.disk_usage(temporary).free >= LITTLE:
        return None
    return f"the disk with {temporary.parent}, where copies of the programs run, is full: name a folder with room in TMPDIR"


def folder_of(name: str) -> str:
    """The folder of a case's records: cases of one name, or of scripts of one name, have one each."""
    name = Path(name).name if Path(name).is_absolute() else name
    return re.sub(r"[^\w.=()-]+", "-", name).strip("-.")[:100] or "case"


def not_kept(folder: str, names: list[str]) -> list[str]:
    """The programs' own copies are no records, and may hold links to large data; nor are their temporary files, among
    which sockets of processes that load data may stand."""
    return [name for name in ("tree", "tmp") if name in names and {"spec.json", "rank0"} & set(names)]


def _dtype_of_project(script: Path) -> Any:
    """The format that `[tool.amp-migrate]` asks for: the rewriter obeys it, and so it is no difference."""
    from amp_migrate import config

    try:
        return config.load([str(script)]).values.get("dtype")
    except config.ConfigError as error:
        raise VerifyError(str(error)) from error


def _check(case: Case) -> None:
    drilled = [word for told in (case.off_args, case.eval_args) if told for word in shlex.split(told)]
    if open_words := dict.fromkeys(word for word in (*case.argv, *drilled) if FILL_IN in word):
        raise VerifyError(f"the arguments are not complete: put a value in place of {', '.join(open_words)}")
    plan.wanted(case.drills)
    if case.steps < 2:
        raise VerifyError("at least two steps are needed (--steps)")
    if case.resume_at is not None and not 0 < case.resume_at < case.steps:
        raise VerifyError(
            f"--resume-at {case.resume_at} does not lie between the first and the last of {case.steps} steps"
        )
    if case.resume_args is not None and "{checkpoint}" not in case.resume_args:
        raise VerifyError("--resume-args must say where the file goes: {checkpoint}")


def _parallel(device: str) -> int:
    if device == "cuda" or (device == "auto" and _has_gpu()):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min(PARALLEL, cores))


def _has_gpu() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or bool(shutil.which("nvidia-smi"))
