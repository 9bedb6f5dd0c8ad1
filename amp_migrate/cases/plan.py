"""The choice of cases: as few command lines as reach all places that any can be seen to reach."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amp_migrate.cases import absent
from amp_migrate.cases.commands import Command
from amp_migrate.cases.needs import Need, Needs, Reader
from amp_migrate.cases.scripts import entry_points
from amp_migrate.verify.case import FILL_IN
from amp_migrate.verify.commandline import parsers
from amp_migrate.verify.commandline.files import Project
from amp_migrate.verify.commandline.options import Option, Options, missing, parsed, without
from amp_migrate.verify.drills.arguments import EVALUATES, Known, switched_off
from amp_migrate.verify.recording.spec import Side

NO_IMPORT = "it runs only where an import fails"
VARIANTS = 6  # cases for one script
COMMANDS = 8  # documented command lines of a script that are weighed against each other
Place = tuple[str, int, Side]  # file, line, which of the two programs
_SWITCH = re.compile(r"amp|apex|fp16|half|float16|mixed|precision", re.IGNORECASE)
_STEPS = re.compile(r"\.step\(|backward|Trainer|\bfit\(|minimize|Lightning")
_RESUMING = re.compile(
    r"(resume|restore|load|continue|init|from)(_?(from|path|file|model|ckpt|checkpoint|training))*|ckpt|checkpoint"
)


@dataclass
class Planned:
    """One case. `reaches` are the places it is to reach; `notes` say where its arguments come from and what is not known."""

    script: str
    argv: tuple[str, ...]
    reaches: set[Place]
    notes: list[str] = field(default_factory=list)
    resume: str | None = None
    off: tuple[str, ...] | None = None  # arguments of the drill without mixed precision
    evaluation: tuple[str, ...] | None = None  # and of that which evaluates alone
    nproc: int = 1
    cwd: str = "."

    @property
    def name(self) -> str:
        flags = [word.lstrip("-") for word in self.argv if word.startswith("-")]
        return f"{self.script} {' '.join(flags[:3])}".strip()

    @property
    def to_fill_in(self) -> list[str]:
        return [word for word in self.argv if FILL_IN in word]


@dataclass
class Plan:
    """The cases, and the places that none of them reaches, with what each would need."""

    cases: list[Planned]
    unreached: dict[Place, str]
    places: int

    @property
    def open(self) -> bool:
        """Whether something is left to a person."""
        return any(why != NO_IMPORT for why in self.unreached.values()) or any(case.to_fill_in for case in self.cases)


def plan(roots: dict[Side, Path], places: Sequence[Place], apex: set[Place]) -> Plan:
    """Cases that together reach `places`; `roots` are the folders of the original and of the migrated project.

    Every case reaches one of `apex`, the places that use Apex: without it there is nothing to compare.
    """
    from amp_migrate.cases import commands as documented

    projects = {side: Project(root) for side, root in roots.items()}
    original = projects["original"]
    wanted, unmet, cases = set(places), dict[Place, str](), list[Planned]()
    found = documented.find(original.root, set(original.files))
    scripts = [
        _Script(projects, path, wanted, apex, found) for path in entry_points(original, {c.script for c in found})
    ]
    left = set(wanted)
    while scripts:
        best = max(scripts, key=lambda s: (len(s.places & left), len(s.commands), -s.script.count("/"), s.script))
        scripts.remove(best)
        if best.places & left:
            made = best.cases(left)
            cases += made
            unmet |= best.unmet
            left -= {place for case in made for place in case.reaches}
    return Plan(
        cases, {p: unmet.get(p, "no script that can be started leads there") for p in sorted(left)}, len(wanted)
    )


class _Script:
    """One entry point with the places behind it."""

    def __init__(
        self,
        projects: dict[Side, Project],
        script: str,
        places: set[Place],
        apex: set[Place],
        commands: Sequence[Command],
    ) -> None:
        self.script, self.project = script, projects["original"]
        behind = {side: set(project.behind(script)) for side, project in projects.items()}
        self.places = {place for place in places if place[0] in behind[place[2]]}
        self.commands = [c for c in commands if c.script == script][:COMMANDS]
        self.unmet: dict[Place, str] = {}
        if not self.places:
            return
        original = self.project
        files = sorted(behind["original"])
        trees = original.trees(script)
        self.sub_commands = parsers.commands(trees)
        self.command = next((name for name in self.sub_commands if "train" in name), next(iter(self.sub_commands), ""))
        self.options: Options = parsers.find(trees, self.command)
        self.known = Known(tuple(parsers.every(trees)), tuple(self.sub_commands))
        self.texts = "\n".join((original.root / path).read_text("utf-8", "replace") for path in files)
        readers = {side: Reader(project, script, self.options) for side, project in projects.items()}
        self.ways: dict[Place, list[Needs]] = {p: readers[p[2]].at(p[0], p[1]) for p in self.places}
        self.apex = self.places & apex

    def cases(self, wanted: set[Place]) -> list[Planned]:
        """Command lines that reach what can be reached of `wanted`; the rest is in `unmet`."""
        left, made = self.places & wanted, list[Planned]()
        resume = self._resuming()
        for _ in range(VARIANTS):
            bases = self.commands or [Command(self.script, (), "")]
            base = max(bases, key=lambda c: len(self._reached(c.argv, left)))
            case = self._case(base, left, resume if not made else None)
            if not case.reaches & left or (self.apex and not case.reaches & self.apex):
                break
            made.append(case)
            left -= case.reaches
            if not left:
                break
        for place in left:
            self.unmet[place] = self._blame(place)
        return made

    def _case(self, base: Command, left: set[Place], resume: Option | None) -> Planned:
        argv, notes, held = list(base.argv), list[str](), set[Need]()
        notes.append(
            f"arguments from {base.source}" if base.source else "no file of the project shows how it is called"
        )
        if self.command and not set(self.sub_commands) & set(argv):
            argv = [self.command, *argv]
            notes.append(f"`{self.command}` is a guess, of the commands {', '.join(self.sub_commands)}")
        if self.script.endswith("__main__.py"):
            notes.append("it is run as a file, not with -m: PYTHONPATH must name the folder that holds the package")
        if not self.options:
            notes.append("no option of a parser was found: what a configuration file may switch on is not known here")
        if not _STEPS.search(self.texts):
            notes.append("nothing in it steps an optimizer: verify compares steps, and cannot judge it")
        for option in missing(argv, self.options):
            flags = [option.flag] if option.flags else []
            value = str(option.choices[0]) if option.choices else f"{FILL_IN}{option.name}"
            argv += [*flags, *([value] if option.takes_value else [])]
            known = "one of its choices" if option.choices else "nothing says what it may be"
            notes.append(f"`{option.flag or option.name}` is required: {known}")
        for name in sorted(self._always()):
            need = Need(name, "on")
            if not need.met_by(parsed(argv, self.options)):
                argv = (self._with(argv, [need]) or (argv, []))[0]
            held.add(need)
        # Those of Apex first: a native switch beside it would shut them out.
        for place in sorted(left, key=lambda p: (p not in self.apex, min(map(len, self.ways[p]), default=0), p)):
            for way in self.ways[place]:
                new = [need for need in _in_order(way) if not need.met_by(parsed(argv, self.options))]
                if any(need.clashes(other) for need in way for other in held):
                    continue
                changed = self._with(argv, new)
                if changed is None or not all(n.met_by(parsed(changed[0], self.options)) for n in held | way):
                    continue
                argv, more = changed
                notes += [note for note in more if note not in notes]
                held |= way
                break
        values = parsed(argv, self.options)
        notes += absent.notes(self.project, self.script, argv, base.cwd)
        case = Planned(self.script, tuple(argv), self._reached(argv, self.places), notes)
        case.cwd = base.cwd
        self._drill(case, left, resume)
        if resume is not None:
            case.resume = f"{resume.flag} {{checkpoint}}"
            case.notes.append(f"`{resume.flag}` is taken for the option that goes on from a checkpoint")
            on = Need(resume.name, "on")
            case.reaches |= {p for p in left for way in self.ways[p] if on in way and all(
                n == on or n.met_by(values) for n in way)}  # fmt: skip
        if base.distributed or re.search(r"environ\[.(RANK|LOCAL_RANK|WORLD_SIZE).\]", self.texts):
            case.nproc = 2
            case.notes.append(
                "two processes: "
                + ("it is started by a launcher there" if base.distributed else "it asks for its rank")
            )
        return case

    def _drill(self, case: Planned, left: set[Place], resume: Option | None) -> None:
        """Arguments for the drills that run the program without mixed precision, and evaluating alone."""
        for name in sorted(self._always()):
            flag = self.options[name].flag
            changed = self._with(list(case.argv), [Need(name, "off")]) if _SWITCH.search(flag) else None
            if changed is not None and tuple(changed[0]) != case.argv:
                case.off = tuple(changed[0])
                case.reaches |= self._reached(case.off, self.places)
                case.notes.append(f"`{flag}` is taken for the switch of mixed precision")
                if switched_off(case.argv, self.known) == case.off:
                    case.off = None  # the drill finds it by itself
                break
        else:  # the drill finds an opt level by itself
            off = switched_off(case.argv, self.known)
            case.reaches |= self._reached(off, self.places) if off is not None else set()
        for place in sorted(left - case.reaches):
            for way in self.ways[place]:
                if not any(_evaluates(need, self.options[need.option]) for need in way):
                    continue
                needs = [n for n in _in_order(way) if not n.met_by(parsed(case.argv, self.options))]
                files = [n for n in needs if resume is not None and n == Need(resume.name, "on")]
                changed = self._with(list(case.argv), [n for n in needs if n not in files])
                if changed is not None and case.evaluation is None:
                    words = [resume.flag, "{checkpoint}"] if files and resume is not None else []
                    case.evaluation = (*changed[0], *words)
                    case.reaches |= self._reached(case.evaluation, self.places)

    def _always(self) -> set[str]:
        """The options that must be on for any place of Apex to be reached."""
        asked = [{n.option for way in self.ways[p] for n in way if n.kind == "on"} for p in self.apex]
        return set.intersection(*asked) if asked else set()

    def _with(self, argv: list[str], needs: list[Need]) -> tuple[list[str], list[str]] | None:
        """The command line changed so that it meets `needs`, with what was guessed; None where that takes a value that
        nobody has named."""
        notes = []
        for need in needs:
            option = self.options[need.option]
            words, note = _words(need, option)
            if words is None:
                return None
            argv = [*without(argv, option), *words]
            if note:
                notes.append(note)
        return argv, notes

    def _reached(self, argv: Sequence[str], places: set[Place]) -> set[Place]:
        values = parsed(argv, self.options)
        return {p for p in places if any(all(need.met_by(values) for need in way) for way in self.ways[p])}

    def _blame(self, place: Place) -> str:
        if not self.ways[place]:
            return NO_IMPORT
        needs = _in_order(self.ways[place][0])
        wanted = [f"{self.options[n.option].flag or n.option}, so that `{n.test}` comes out right" for n in needs]
        return "it needs " + " and ".join(wanted) if wanted else f"{VARIANTS} cases of {self.script} do not reach it"

    def _resuming(self) -> Option | None:
        if "torch.load(" not in self.texts or "torch.save(" not in self.texts:
            return None
        fitting = [
            option for option in self.options.values()
            if option.takes_value and option.flags and _RESUMING.fullmatch(option.name) and not option.is_boolean
            and option.type in ("", "str") and not option.many
        ]  # fmt: skip
        return min(fitting, key=lambda o: ("resume" not in o.name, len(o.name)), default=None)


def _in_order(needs: Needs) -> list[Need]:
    return sorted(needs, key=lambda need: (need.option, need.kind))


def _evaluates(need: Need, option: Option) -> bool:
    """Whether a program that meets `need` does nothing but evaluate."""
    if need.kind == "is":
        return bool(
            re.fullmatch(r"test|val|valid|validate|validation|eval|evaluate|infer|inference|predict", str(need.value))
        )
    return need.kind == "on" and any(EVALUATES.match(flag.replace("_", "-")) for flag in option.flags)


def _words(need: Need, option: Option) -> tuple[list[str] | None, str]:
    """What to add to a command line (from which the option was taken away) to meet `need`, and what of it is a guess."""
    flag = [option.flag] if option.flags else []
    if option.action == "store_true":
        return ([option.flag] if need.kind == "on" else []), ""
    if option.action == "store_false":
        return ([option.flag] if need.kind == "off" else []), ""
    if option.action == "switch":
        return [option.flag if need.kind == "on" else option.negative], ""
    value: Any = None
    guess = f"`{option.flag} {{}}` is a guess, for `{need.test}`"
    if need.kind == "is":
        value, guess = need.value, ""
    elif option.choices:
        fitting = [c for c in option.choices if need.met_by({option.name: c})]
        value, guess = (fitting[0] if fitting else None), ""
    elif option.is_boolean and need.kind in ("on", "off"):
        value, guess = ("True" if need.kind == "on" else "False"), ""
    elif need.kind in ("over", "under"):
        value = need.value + 1 if need.kind == "over" else need.value - 1
    elif option.type in ("int", "float") or isinstance(option.default, (int, float)):
        if need.kind == "not":
            value = need.value + 1 if isinstance(need.value, (int, float)) else None
        else:
            value = 1 if need.kind == "on" else 0
    if value is None or (option.choices and str(value) not in map(str, option.choices)):
        return None, ""
    return [*flag, str(value)], guess.format(value) if guess else ""
