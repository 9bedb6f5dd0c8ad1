"""From sources to results: read the project, decide unit by unit, write the files that change."""

from __future__ import annotations

import ast
import contextlib
import gc
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from amp_migrate import literals
from amp_migrate.findings import FileResult, Finding
from amp_migrate.options import Options, Wishes
from amp_migrate.program import Program as Program
from amp_migrate.program import Read, read
from amp_migrate.sources.failures import STAYS, SYNTAX, SourceError
from amp_migrate.sources.ignores import ignored_lines
from amp_migrate.untaken import MODULES, extensions, leftovers, refuse, unimported

if TYPE_CHECKING:
    from amp_migrate.audit import Part
    from amp_migrate.audit.doubts import Doubt
    from amp_migrate.audit.review import Was
    from amp_migrate.held import Held
    from amp_migrate.reading.program.module import Module, Scope
    from amp_migrate.reading.units.unit import Unit
    from amp_migrate.rules.migration import Output

# A program without any of these holds nothing to migrate; the imports catch `from torch.cuda import amp`.
MENTIONS = ("apex", "cuda.amp", "cpu.amp", "cuda import", "cpu import")
# Settings of frameworks, and names of their parts, that choose Apex.
FRAMEWORKS = (
    "amp_backend",
    "amp_level",
    "fp16_backend",
    "half_precision_backend",
    "opt_level",
    "Apex",
    "APEX",
    "DistOptimizerHook",
    '"amp"',
    "'amp'",
)


def migrate(program: Program, options: Options, tell: Callable[[str], None] = lambda _: None) -> list[FileResult]:
    """Decide what becomes of each target; one result per target, in order. Writes nothing. `tell` hears what is going on."""
    from amp_migrate.sources.aside import left_aside

    if not _concerns(program):
        return [FileResult(path=source.display, before=source.text) for source in program.targets]
    count = len(program.targets)
    asides = list(left_aside([*program.targets, *program.context]))
    short = replace(program, targets=[a.source for a in asides[:count]], context=[a.source for a in asides[count:]])
    results = _in_parts(short, options, tell)
    afters = [a.whole(r.after) if r.after is not None else "" for a, r in zip(asides, results, strict=False)]
    if None in afters:
        return _in_parts(program, options, tell)
    for source, result, after in zip(program.targets, results, afters, strict=True):
        result.before, result.after = source.text, after if result.changed else None
    return results


def _in_parts(program: Program, options: Options, tell: Callable[[str], None]) -> list[FileResult]:
    """Migrate what is read at once, one part of the program after the other."""
    found = {source.path: FileResult(path=source.display, before=source.text) for source in program.targets}
    parts = program.parts()
    for number, part in enumerate(parts):
        if _concerns(part):
            with _uncollected(last=part is parts[-1]):
                results = _migrate(part, options, tell)
            for source, result in zip(part.targets, results, strict=True):
                result.units = frozenset(unit * len(parts) + number for unit in result.units)
                found[source.path] = result
    return [found[source.path] for source in program.targets]


def _concerns(program: Program) -> bool:
    return any(word in source.text for source in program.targets for word in (*MENTIONS, *FRAMEWORKS))


@contextlib.contextmanager
def _uncollected(*, last: bool) -> Iterator[None]:
    """What is read is needed to the end: looking for garbage among it takes a fifth of the time and finds none. Nor is it
    looked through as new when that ends: it counts as old. Where more is to be read, it is given back."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not last:
            gc.collect()
        gc.freeze()
        gc.unfreeze()
        if enabled:
            gc.enable()


def _migrate(program: Program, options: Options, tell: Callable[[str], None]) -> list[FileResult]:
    """Migrate, and again without what the audit refutes, until it refutes nothing more."""
    from amp_migrate.held import Held

    tell(f"following what {len(program.targets)} files call")
    found = read(program)
    held = Held()
    known = Audited()
    texts: Texts = {}
    settled: int | None = None  # what was left by hand before anything was written that is only told of
    while True:
        output, results = _decide(program, options, found, held, texts, tell)
        manual = sum(f.status == "manual" for r in results for f in r.findings)
        if settled is not None and manual > settled and held.without_regions():
            continue
        tell(f"checking the migration of {sum(r.changed for r in results)} files")
        doubts = _audit(program, found, results, output, known, "refusing")
        if held.more(doubts, found, output):
            continue
        doubts += _audit(program, found, results, output, known, "telling")
        if not held.more(doubts, found, output):
            return _with_doubts(results, doubts, output)
        settled = manual


# What the edits of a module came to in the last try, as text and parsed: a file that nothing was held back of stays so.
Texts = dict["Module", tuple[object, str, ast.Module]]


def _decide(
    program: Program, options: Options, read: Read, held: Held, texts: Texts, tell: Callable[[str], None]
) -> tuple[Output, list[FileResult]]:
    """What the rules make of a program, but for what the audit holds back."""
    from amp_migrate.rules import FILE_RULES, clean, finish, fold
    from amp_migrate.rules.migration import Output
    from amp_migrate.units import carry_out, file_rule

    modules, targets, project = read.modules, read.targets, read.project
    output = Output(wishes=_wishes(program, options), refuted=held.sites, mended=held.mended)
    units = read.units()
    claimed = {s.node for u in units for s in u.sites}
    loose = [s for s in read.sites if s.name in MODULES and s.node not in claimed]
    acting = {scope for unit in units for scope in _acts_in(unit)}
    for number, unit in enumerate(units):
        if number % 10 == 0:
            tell(f"migrating {len(targets)} files, training {number + 1} of {len(units)}")
        unit.handed, unit.uncast = held.handed.get(number, {}), held.uncast.get(number, {})
        unit.mended, unit.run = held.mended, {place for place, on in held.run.items() if on}
        if (doubt := held.units.get(number)) is not None:
            refuse(unit, _refuted(unit, read, doubt), output)
            continue
        for module, edits in carry_out(unit, targets, options, output, _taken(unit, acting, output), loose).items():
            output.units.setdefault(module, {})[number] = edits
        if all(refused is not unit for refused, _ in output.refused):
            output.carried.append(unit)
    own = [module for module in modules if module in targets]
    for rule in FILE_RULES:
        for module in own:
            file_rule(rule, project, module, options, output)
    for module in own:
        fold(project, module, output)
    for module in own:
        clean(project, module, output)
        unimported(project, module, output)
        leftovers(project, module, read.sites, output)
        extensions(project, module, output)
    finish(project, targets, output)
    results = [FileResult(path=source.display, before=source.text) for source in program.targets]
    for source, result in zip(program.targets, results, strict=True):
        if (unread := read.unread.get(source.path)) is not None:
            lost = STAYS if "apex" in source.text.lower() else ""
            result.status, result.findings = "failed", [SourceError(unread.code, unread.message + lost).finding()]
        if source.path in read.by_path:
            _result(read.by_path[source.path], output, result, texts)
            if (doubt := held.files.get(result.path)) is not None:
                held.hold(result, doubt)
    return output, whole_units(results)


def _taken(unit: Unit, acting: set[Scope], output: Output) -> Callable[[Scope], bool]:
    """What other units have decided. Where a unit is set up, or scales, its own switch holds, whatever other unit's model may
    get there."""
    own = _acts_in(unit)
    return lambda scope: scope in output.regions or (scope in acting and scope not in own)


def _acts_in(unit: Unit) -> set[Scope]:
    """Where a unit sets mixed precision up, or scales a loss."""
    return {i.site.scope for i in unit.inits} | {x.site.scope for x in unit.losses}


@dataclass
class Audited:
    """What the audit need not find out again when something was held back, by the files of one program: what it read
    before the migration, and what it said of a migration that is the same as in the last try."""

    was: dict[frozenset[str], Was] = field(default_factory=dict)
    said: dict[tuple[frozenset[str], Part], tuple[dict[str, str], list[Doubt]]] = field(default_factory=dict)


def _audit(
    program: Program, read: Read, results: list[FileResult], output: Output, known: Audited, part: Part
) -> list[Doubt]:
    """What the audit says of the result, in terms of the paths that are shown; less what the user asked not to hear."""
    from amp_migrate.audit import audit
    from amp_migrate.audit.review import Was, Wish

    if not any(r.changed for r in results):
        return []
    relative = {m: f"{m.name.replace('.', '/')}{m.path.suffix}" for m in read.modules}
    relative |= {
        m: f"{m.name.replace('.', '/')}/__init__.py".lstrip("/") for m in read.modules if m.path.stem == "__init__"
    }
    shown = {path: m.display for m, path in relative.items()}
    by_display = {m.display: path for m, path in relative.items()}
    before = {relative[m]: m.text for m in read.modules}
    after = {by_display[r.path]: r.after for r in results if r.after is not None and r.path in by_display}
    options = output.wishes.options
    wish = Wish(dtype=options.dtype, eval=options.eval, partial=options.partial)
    above = program.root.parts if program.root is not None else ()
    trees = {relative[m]: m.tree for m in read.modules}
    written = {relative[m]: tree for m, tree in output.written.items()}
    doubts: list[Doubt] = []
    for group in _tied(program, read):
        paths = frozenset(relative[m] for m in group)
        changed = {p: t for p, t in after.items() if p in paths}
        if changed:
            if paths not in known.was:
                known.was[paths] = Was({p: t for p, t in before.items() if p in paths}, trees, above)
            key, was = (paths, part), known.was[paths]
            if key not in known.said or known.said[key][0] != changed:
                known.said[key] = changed, audit(was.texts, changed, wish, was, written, part)
            doubts += [_shown(d, shown) for d in known.said[key][1]]
    return [d for d in doubts if output.wishes.wants(d.path, d.line, d.code)]


_PATH = re.compile(r"[\w./-]+\.(?:py|ipynb)\b")


def _shown(doubt: Doubt, shown: Mapping[str, str]) -> Doubt:
    remedy, given = (place and (shown[place[0]], place[1]) for place in (doubt.remedy, doubt.given))
    # `called from pkg/train.py:7`
    message, alike = (_PATH.sub(lambda p: shown.get(p[0], p[0]), text) for text in (doubt.message, doubt.alike))
    return replace(doubt, path=shown[doubt.path], message=message, remedy=remedy, given=given, alike=alike)


def _tied(program: Program, read: Read) -> Iterator[list[Module]]:
    """The modules that imports tie together, group by group: of a folder of many programs each is a program of its own."""
    modules = {str(path): module for path, module in read.by_path.items()}
    for group in program.tied:
        yield [modules[path] for path in group if path in modules]


def _refuted(unit: Unit, read: Read, doubt: Doubt) -> Exception:
    """Why the audit leaves a unit as it is."""
    from amp_migrate.reading.units.unit import Blocked

    module = next((m for m in read.modules if m.display == doubt.path), unit.modules[0])
    return Blocked(module, ast.Pass(lineno=doubt.line, col_offset=0), doubt.code, doubt.construct, doubt.refusal)


def _with_doubts(results: list[FileResult], doubts: list[Doubt], output: Output) -> list[FileResult]:
    """The results with what the audit says beside them: it refutes none of what is left of them."""
    by_path = {result.path: result for result in results}
    for doubt in doubts:
        result = by_path.get(doubt.path)
        if result is None or doubt.verdict == "refuse":
            continue
        first, last = doubt.near or (doubt.line, doubt.line)
        if any(f.code in doubt.told_by and first <= f.line <= last for f in result.findings):
            continue
        finding = Finding(
            doubt.line, 1, doubt.code, doubt.construct, "note", doubt.verdict, doubt.message, alike=doubt.alike
        )
        if finding not in result.findings:
            result.findings = sorted([*result.findings, finding])
    return results


def whole_units(results: list[FileResult]) -> list[FileResult]:
    """Where the result for one file of a unit could not be put together, the unit's other files stay as they are."""
    lost = {unit: r.path for r in results if r.status == "failed" for unit in r.units}
    while held := next((r for r in results if r.changed and r.units & lost.keys()), None):
        path = lost[min(held.units & lost.keys())]
        lost |= dict.fromkeys(held.units - lost.keys(), path)
        message = f"left alone with {path}, which could not be migrated"
        waiting = [replace(f, status="manual", message=message) for f in held.findings if f.status == "done"]
        held.findings = sorted([*waiting, *(f for f in held.findings if f.status == "manual")])
        held.status, held.after = "blocked", None
    return results


def _wishes(program: Program, options: Options) -> Wishes:
    lines = {s.display: found for s in program.targets if (found := ignored_lines(s.text))}
    return Wishes(options, lines)


def _result(module: Module, output: Output, result: FileResult, texts: Texts) -> None:
    edits = output.edits.get(module)
    result.findings = sorted(output.findings.get(module, []))
    result.units = frozenset(output.units.get(module, ()))
    manual = any(f.status == "manual" for f in result.findings)
    if edits:
        from amp_migrate.rules.cleanup.comments import without_order
        from amp_migrate.writing.apply import Unreadable, apply

        unordered = not manual and any(f.code == "AMP110" and f.status == "done" for f in result.findings)
        asked = (edits.contents(), unordered)
        try:
            if module not in texts or texts[module][0] != asked:
                after = without_order(apply(edits)) if unordered else apply(edits)
                texts[module] = asked, after, literals.parse(after)
            _, after, output.written[module] = texts[module]
        except Exception as error:
            result.status = "failed"
            if isinstance(error, Unreadable):
                result.findings = [SourceError(SYNTAX, f"left alone: {error}").finding()]
                return
            message = f"left alone: what amp-migrate wrote does not parse ({error}); please report this"
            result.findings = [Finding(1, 1, "AMP190", "rewrite", "manual", "review", message)]
            return
        if after != module.text:
            result.after = after
    if result.after is not None:
        result.status = "partial" if manual else "migrated"
    elif manual:
        result.status = "blocked"
