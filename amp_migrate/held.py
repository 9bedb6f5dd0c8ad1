"""What the audit holds back: which part of a migration a doubt is about, and what stays as it is because of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from amp_migrate.findings import Cause, FileResult, Finding

if TYPE_CHECKING:
    from amp_migrate.audit.doubts import Doubt
    from amp_migrate.program import Read
    from amp_migrate.reading.program.module import Module, Scope
    from amp_migrate.rules.migration import Output
    from amp_migrate.writing.edits import Edits


@dataclass
class Held:
    """Migration units by number, sites of file rules by file and line, and whole files, each with the doubt about it; of
    units also the functions whose regions are handed the switch (with the reason; none where that is only wished for), and
    those that get no region; the places that a rule is to write otherwise, by file and line, with the codes of the doubts; and
    the calls that run a model in half, by file, line and column, each with whether that is still tried.

    Where what a region reads has no value, and the function does not train, it is handed the switch; where what it was
    handed has none either, it goes without. Else a doubt is first about the unit that wrote nearest to it; where no unit
    did, about the site that another rule rewrote there; where the doubt outlives that, about the file with all that was
    written together with it.
    """

    units: dict[int, Doubt] = field(default_factory=dict)
    sites: dict[tuple[str, int], Doubt] = field(default_factory=dict)
    files: dict[str, Doubt] = field(default_factory=dict)
    handed: dict[int, dict[Scope, str]] = field(default_factory=dict)
    uncast: dict[int, dict[Scope, str]] = field(default_factory=dict)
    mended: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)  # codes, and why
    run: dict[tuple[str, int, int], bool] = field(default_factory=dict)

    def more(self, doubts: Iterable[Doubt], read: Read, output: Output) -> bool:
        """Hold back what is refuted; whether that is more than was held before."""
        more = False
        modules = {m.display: m for m in read.modules}
        held = len(self.units) + len(self.files)
        now: set[tuple[str, int] | None] = (
            set()
        )  # what is tried for the first time: what else is said of it may go, too
        for doubt in doubts:
            more |= self._cast(doubt, output)
            if self._given_region(doubt):
                more = True
                if doubt.code == "AMP535":  # in a region it may not raise
                    now.add(doubt.remedy)
                    continue
            place = doubt.remedy[0] if doubt.remedy is not None else doubt.path
            if doubt.remedy in now and doubt.code in ("AMP533", "AMP535", "AMP542"):
                continue
            if place in modules and self._mend(doubt, modules[place], output):
                now.add(doubt.remedy)
                more = True
            elif doubt.verdict == "refuse" and doubt.path in modules:
                more |= self._leave_out(doubt, modules[doubt.path]) or self._hold(doubt, modules[doubt.path], output)
        if len(self.units) + len(self.files) > held:  # what was asked for on its account is asked for no more
            self.mended.clear()
            self.run = {place: on for place, on in self.run.items() if not on}
        return more

    def _cast(self, doubt: Doubt, output: Output) -> bool:
        """Have a half value cast where it is given, if that is one tensor for sure, else where it is used; once."""
        if doubt.given in output.castable:
            place, code = doubt.given, "AMP503"
        else:
            place, code = (doubt.path, doubt.line), doubt.by
        tried = not code or code in self.mended.get(place, ())
        if not tried:
            self.mended.setdefault(place, {})[code] = ""
        return not tried

    def _given_region(self, doubt: Doubt) -> bool:
        """Have forwards that lost half precision put in a region; once."""
        path = doubt.remedy[0] if doubt.code == "AMP535" and doubt.remedy is not None else doubt.path
        asked = doubt.verdict == "review" or doubt.code == "AMP535"
        new = [(path, *place) for place in doubt.lost if asked]
        new = [place for place in new if place not in self.run]
        self.run.update(dict.fromkeys(new, True))
        return bool(new)

    def _leave_out(self, doubt: Doubt, module: Module) -> bool:
        """Leave the regions out again that the audit asked for, where something is wrong with them: those of the function that
        it is wrong in, else all."""
        first, last = _function_at(module, doubt.line)
        tried = [p for p, on in self.run.items() if on and p[0] == doubt.path and first <= p[1] <= last]
        self.run.update(dict.fromkeys(tried, False))
        return bool(tried) or self.without_regions()  # what one of them gives goes elsewhere

    def without_regions(self) -> bool:
        """Leave out all regions that the audit asked for; whether there were any."""
        tried = [place for place, on in self.run.items() if on]
        self.run.update(dict.fromkeys(tried, False))
        return bool(tried)

    def _mend(self, doubt: Doubt, module: Module, output: Output) -> bool:
        """Have a rule write otherwise what a doubt is about, which is tried once."""
        if doubt.remedy is None or doubt.verdict == "look":
            return False
        tried = doubt.code in self.mended.get(doubt.remedy, ())
        self.mended.setdefault(doubt.remedy, {}).setdefault(doubt.code, doubt.because)
        if doubt.code not in ("AMP531", "AMP535"):
            return not tried
        line = doubt.line if doubt.code == "AMP531" else doubt.remedy[1]
        number, scope = _unit_at(output.units.get(module, {}), module, line), _region_at(line, module, output)
        if number is None or scope is None:
            return False
        if doubt.code == "AMP535":  # half of what it runs would be cast
            without = self.uncast.setdefault(number, {})
            return not tried and without.setdefault(scope, doubt.message) is doubt.message
        handed = self.handed.setdefault(number, {})
        if tried and handed.get(scope) == "":
            del handed[scope]  # it did not help
            return True
        return not tried and handed.setdefault(scope, "") == ""

    def _hold(self, doubt: Doubt, module: Module, output: Output) -> bool:
        number = _unit_at(output.units.get(module, {}), module, doubt.line)
        if number is not None and self._uncast(doubt, module, number, output):
            return True
        if number is not None:
            return self.units.setdefault(number, doubt) is doubt
        line = _site_at(output.findings.get(module, ()), module, doubt.line)
        if line is not None and (doubt.path, line) not in self.sites:
            self.sites[doubt.path, line] = doubt
            return True
        if doubt.path in self.files:
            return False
        self.files[doubt.path] = doubt
        for number in output.units.get(module, ()):
            self.units.setdefault(number, doubt)
        return True

    def _uncast(self, doubt: Doubt, module: Module, number: int, output: Output) -> bool:
        """Hand the switch to the region that a doubt is about; then leave the region out: without it the function does what
        it did where Apex was not set up."""
        if doubt.code != "AMP131" or doubt.aside:
            return False
        scope = _region_at(doubt.line, module, output)
        if scope is None:
            return False
        known = self.handed.setdefault(number, {})
        known = self.uncast.setdefault(number, {}) if scope in known else known
        return known.setdefault(scope, doubt.message) is doubt.message

    @staticmethod
    def hold(result: FileResult, doubt: Doubt) -> None:
        """Undo all that was to happen to a file."""
        cause = Cause(doubt.path, doubt.line, doubt.code)
        refuted = Finding(doubt.line, 1, doubt.code, doubt.construct, "manual", "review", doubt.refusal)
        waiting = [
            replace(f, status="manual", review="review", message=cause.awaited, cause=cause)
            for f in result.findings
            if f.status == "done"
        ]
        others = [f for f in result.findings if f.status == "manual"]
        result.findings = sorted({refuted, *waiting, *others})
        result.after, result.status = None, "blocked"


def _region_at(line: int, module: Module, output: Output) -> Scope | None:
    """The function around a line, if it has a region and does not train."""
    lines = _function_at(module, line)
    for scope in output.regions.keys() - output.training:
        here = (getattr(scope.node, "lineno", 0), getattr(scope.node, "end_lineno", 0))
        if scope.module is module and scope.is_function and here == lines:
            return scope
    return None


def _unit_at(written: dict[int, Edits], module: Module, line: int) -> int | None:
    """The unit that wrote into the function around a line, the nearest to it if several did; else nearest in the file."""
    if not written:
        return None
    first, last = _function_at(module, line)

    def distance(number: int) -> tuple[bool, int]:
        lines = written[number].lines
        inside = [x for x in lines if first <= x <= last]
        return not inside, min((abs(x - line) for x in inside or lines), default=1 << 30)

    return min(sorted(written), key=distance)


def _function_at(module: Module, line: int) -> tuple[int, int]:
    """The lines of the innermost function around a line; all lines where there is none."""
    around = [
        (n.lineno, n.end_lineno or n.lineno)
        for n in ast.walk(module.tree)
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.lineno <= line <= (n.end_lineno or n.lineno)
    ]
    return max(around, default=(1, 1 << 30))


def _site_at(findings: Iterable[Finding], module: Module, line: int) -> int | None:
    """The line of the site that a rule rewrote at a line, or else in the function around it, the nearest first."""
    first, last = _function_at(module, line)
    done = [f.line for f in findings if f.status == "done" and first <= f.line <= last]
    return min(done, key=lambda x: abs(x - line), default=None)
