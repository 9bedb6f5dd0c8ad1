"""Which drills a program lets be tried, and the runs each of them needs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from amp_migrate.verify.case import Case, VerifyError
from amp_migrate.verify.drills import arguments
from amp_migrate.verify.record import Attempt, Recording
from amp_migrate.verify.recording.spec import Drill, RunSpec, Side
from amp_migrate.verify.verdicts.scale import NEVER, accumulation_of

SIDES: tuple[Side, Side] = ("original", "migrated")
ALWAYS = "overflow"  # tried however long it takes, unless drills are switched off
BUDGET = 60.0  # seconds that drills may be expected to take when nobody asked for them
EARLY = 4  # a drill in the middle of training strikes no later than this step: what comes before is only waiting
FEW = 6  # steps of a run without mixed precision
SMALL, LOW, MOST = 2, 256.0, 24  # growth: the smaller interval, the scale it starts from, steps at most
AFTER = 3  # steps looked at after the one that was struck


@dataclass(frozen=True)
class Iteration:
    """The windows from one forward and its backward passes to the last step that follows them."""

    windows: tuple[int, ...]
    optimizers: tuple[int, ...]
    backwards: int

    @property
    def first(self) -> int:
        return self.windows[0]


@dataclass(frozen=True)
class Planned:
    """One drill: its runs by side, or why it is not tried. `struck` is the iteration in which something is forced,
    `optimizers` those whose gradients it reaches."""

    name: str
    specs: dict[Side, RunSpec] = field(default_factory=dict)
    because: str = ""
    struck: Iteration | None = None
    optimizers: tuple[int, ...] = ()
    accumulation: int = 1  # how many of Apex's counts make one of GradScaler's
    how: str = ""  # the arguments it runs with, as shown
    forced: bool = False  # the tool itself switches mixed precision off
    dtype: str | None = None  # the half format that was asked for
    counts_alike: bool = True  # growth: not so where one interval stands for passes on one side, for steps on the other


@dataclass(frozen=True)
class Known:
    """What drills are planned from: the case, the free runs of both programs, where runs and captured states lie."""

    case: Case
    original: Recording
    migrated: Recording
    work: Path
    state: str

    @property
    def accumulation(self) -> int:
        """How many of Apex's counts make one of GradScaler's."""
        return accumulation_of(self.original, self.migrated)

    def spec(self, name: str, side: Side, steps: int, drill: Drill, **options: object) -> RunSpec:
        return self.case.spec(side, self.work / f"drill-{name}-{side}", steps=steps, drill=drill, **options)


def wanted(drills: str) -> tuple[str, ...]:
    """The names in "none", "all", "auto" or a list with commas. Raises VerifyError for a name that is none."""
    if drills in ("none", ""):
        return ()
    if drills in ("all", "auto"):
        return tuple(NAMES)
    names = tuple(name.strip() for name in drills.split(","))
    for name in names:
        if name not in NAMES:
            raise VerifyError(f"there is no drill {name!r}; known are none, all, {', '.join(NAMES)}")
    return names


def plan(known: Known) -> list[Planned]:
    """Every drill that was asked for; those that cost too much, or make no sense here, say why they are not tried."""
    names = wanted(known.case.drills)
    planned = [replace(NAMES[name](known), accumulation=known.accumulation, dtype=known.case.dtype) for name in names]
    if known.case.drills != "auto":
        return planned
    seconds = sum(_seconds(known.original, spec) for drill in planned for spec in drill.specs.values())
    if seconds <= BUDGET:
        return planned
    told = f"all drills would take about {seconds / 60:.0f} min here; ask for it with --drills"
    return [p if p.name == ALWAYS or not p.specs else Planned(p.name, because=told) for p in planned]


def _seconds(original: Recording, spec: RunSpec) -> float:
    """How long a run will take, by what the free run of the original took."""
    steps = [a.seconds for a in original.attempts if a.seconds is not None]
    each = median(steps) if steps else 0.0
    before = max(0.0, (original.seconds or 0.0) - sum(steps))
    busiest = max((a.nth for a in original.attempts), default=0) + 1
    return before + min(spec.steps, busiest) * each * len(original.attempts) / busiest


# --- overflow --------------------------------------------------------------------------------------------------


def _overflow(known: Known) -> Planned:
    return _strike(known, "overflow", _middle(known), lambda i: (i.optimizers, i.backwards - 1))


def _first_overflow(known: Known) -> Planned:
    found = [i for i in iterations(known.original)[:1] if known.original.attempts[i.first].captured]
    return _strike(known, "first-overflow", found, lambda i: (i.optimizers, i.backwards - 1))


def _accumulation_overflow(known: Known) -> Planned:
    found = [i for i in _middle(known) if i.backwards > 1]
    missing = "no step is made of several backward passes"
    return _strike(known, "accumulation-overflow", found, lambda i: (i.optimizers, 0), missing)


def _one_optimizer(known: Known) -> Planned:
    """Of several that step on one loss the last; else one that the plain overflow does not strike."""
    several = [i for i in _middle(known) if len(set(i.optimizers)) > 1]
    if not several and (plain := _middle(known)):
        several = [i for i in _middle(known) if i.optimizers != plain[-1].optimizers]
    missing = "there is one optimizer"
    return _strike(known, "one-optimizer", several, lambda i: (i.optimizers[-1:], i.backwards - 1), missing)


def _strike(
    known: Known, name: str, found: list[Iteration], how: Callable[[Iteration], tuple[tuple[int, ...], int]],
    missing: str = "no iteration was found that both programs run alike",
) -> Planned:  # fmt: skip
    if (because := _unscaled(known)) is not None:
        return Planned(name, because=because)
    if not found:
        return Planned(name, because=missing)
    struck = found[-1]
    optimizers, backward = how(struck)
    drill = Drill(
        overflow_at=struck.first, backward=backward, optimizers=optimizers, force_at=struck.first,
        keep=(struck.windows[-1] + 1,),
    )  # fmt: skip
    return Planned(name, _struck_specs(known, name, struck, drill), struck=struck, optimizers=optimizers)


def _nan_loss(known: Known) -> Planned:
    if (because := _unscaled(known)) is not None:
        return Planned("nan-loss", because=because)
    if not (found := _middle(known)):
        return Planned("nan-loss", because="no iteration was found that both programs run alike")
    struck = found[-1]
    drill = Drill(nan_at=struck.first, force_at=struck.first, keep=(struck.windows[-1] + 1,))
    specs = _struck_specs(known, "nan-loss", struck, drill)
    return Planned("nan-loss", specs, struck=struck, optimizers=struck.optimizers)


def _struck_specs(known: Known, name: str, struck: Iteration, drill: Drill) -> dict[Side, RunSpec]:
    last = max(known.original.attempts[w].nth for w in struck.windows)
    return {side: known.spec(name, side, last + 1 + AFTER, drill, force_from=known.state) for side in SIDES}


def iterations(recording: Recording) -> list[Iteration]:
    """The attempts of a run, each with those that follow without a backward of their own."""
    found: list[list[Attempt]] = []
    for attempt in recording.attempts:
        if attempt.backwards or not found:
            found.append([])
        found[-1].append(attempt)
    return [
        Iteration(tuple(a.window for a in group), tuple(a.optimizer for a in group), len(group[0].backwards))
        for group in found
        if group[0].backwards
    ]


def _middle(known: Known) -> list[Iteration]:
    """Iterations after the first whose state was saved and in which both programs step, early ones if there are any."""
    usable = [
        i
        for i in iterations(known.original)[1:]
        if known.original.attempts[i.first].captured
        and all(_steps_alike(known, w) for w in i.windows)
        and known.original.attempts[i.first].backwards[0].scaler is not None
    ]
    early = [i for i in usable if known.original.attempts[i.first].nth <= EARLY]
    return early or usable[:1]


def _steps_alike(known: Known, window: int) -> bool:
    if window >= len(known.migrated.attempts):
        return False
    one, other = known.original.attempts[window], known.migrated.attempts[window]
    return one.optimizer == other.optimizer and not one.skipped and not other.skipped


def _unscaled(known: Known) -> str | None:
    if not any(b.scaler is not None for a in known.original.attempts for b in a.backwards):
        return "the original scales no loss"
    if not any(s["enabled"] for s in known.migrated.scalers.values()):
        return "the migrated program scales no loss"
    return None


# --- growth ----------------------------------------------------------------------------------------------------


def _growth(known: Known) -> Planned:
    """Both intervals shrunk by the same factor, the smaller one to SMALL."""
    if (because := _unscaled(known)) is not None:
        return Planned("growth", because=because)
    intervals = [_interval(r) for r in (known.original, known.migrated)]
    one, other = intervals
    if one is None or other is None:
        return Planned(
            "growth", because=f"the scale of the {('original', 'migrated program')[one is not None]} is held"
        )
    unit = min(one, other) / SMALL
    small = {"original": round(one / unit), "migrated": round(other / unit)}
    steps = min(2 * max(small["migrated"], -(-small["original"] // known.accumulation)) + 2, MOST)
    specs = {
        side: known.spec("growth", side, steps, Drill(growth_interval=small[side], start_scale=LOW)) for side in SIDES
    }
    return Planned("growth", specs, counts_alike=known.accumulation == 1 or one != other)


def _interval(recording: Recording) -> int | None:
    """Of the first dynamic scaler; None when there is none, or when nobody will see it grow."""
    used = {b.scaler for a in recording.attempts for b in a.backwards} - {None}
    intervals = [int(s["growth_interval"]) for n, s in recording.scalers.items() if s["dynamic"] and n in used]
    return intervals[0] if intervals and intervals[0] < NEVER else None


# --- the switch, evaluation alone -----------------------------------------------------------------------------


def _switch_off(known: Known) -> Planned:
    name, case = "switch-off", known.case
    argv = (
        tuple(shlex.split(case.off_args))
        if case.off_args is not None
        else arguments.switched_off(case.argv, case.original.script)
    )
    if argv is not None:
        specs = {side: known.spec(name, side, FEW, Drill(), argv=argv, census=True) for side in SIDES}
        return Planned(name, specs, how=_shown(argv))
    if known.original.opt_level != "O1":
        return Planned(name, because="no argument that switches mixed precision off was found; name it with --off-args")
    specs = {
        "original": known.spec(name, "original", FEW, Drill(off=True), census=True),
        "migrated": known.spec(name, "migrated", FEW, Drill(), full_precision=True),
    }
    return Planned(name, specs, how="O0, autocast and scaler switched off by the tool", forced=True)


def _evaluation(known: Known) -> Planned:
    name, case = "evaluation", known.case
    argv = (
        tuple(shlex.split(case.eval_args))
        if case.eval_args is not None
        else arguments.evaluating(case.argv, case.original.script)
    )
    if argv is None:
        return Planned(name, because="no argument that evaluates alone was found; name it with --eval-args")
    if case.nproc > 1:
        return Planned(name, because="not tried with several processes")
    files = _checkpoints(known) if any("{checkpoint}" in word for word in argv) else {}
    if files is None:
        return Planned(name, because="no checkpoint to evaluate was saved within these steps; raise --steps")
    specs: dict[Side, RunSpec] = {}
    for side in SIDES:
        own = tuple(word.replace("{checkpoint}", files.get(side, "")) for word in argv)
        specs[side] = known.spec(name, side, 1, Drill(evaluation=True), argv=own, census=True)
    return Planned(name, specs, how=_shown(argv))


def _checkpoints(known: Known) -> dict[Side, str] | None:
    """The original's own checkpoint for both sides, converted for the migrated program."""
    from amp_migrate.checkpoint.files import convert_file
    from amp_migrate.checkpoint.states import CheckpointError

    saved = known.original.save_near(known.case.middle)
    if saved is None:
        return None
    source = Path(saved["kept"])
    if not saved["apex"]:
        return {side: str(source) for side in SIDES}
    target = known.work / f"drill-evaluation{source.suffix}"
    try:
        convert_file(source, target, unsafe_pickle=True)  # written a moment ago, by the program under test
    except CheckpointError:
        return None
    return {"original": str(source), "migrated": str(target)}


def _shown(argv: Sequence[str]) -> str:
    return f"`{shlex.join(argv)}`" if argv else "no arguments"


def _names(*planners: Callable[[Known], Planned]) -> Iterable[tuple[str, Callable[[Known], Planned]]]:
    return ((planner.__name__.lstrip("_").replace("_", "-"), planner) for planner in planners)


NAMES: dict[str, Callable[[Known], Planned]] = dict(
    _names(
        _overflow, _first_overflow, _accumulation_overflow, _one_optimizer, _nan_loss, _growth, _switch_off, _evaluation
    )
)
