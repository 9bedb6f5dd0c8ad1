"""Edits and findings on their way: what the rules write into."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amp_migrate.findings import Cause, Finding, Review, Status
from amp_migrate.options import Wishes
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.units.unit import Blocked, Unit
from amp_migrate.writing.edits import Edits

if TYPE_CHECKING:
    from amp_migrate.audit.doubts import Doubt


@dataclass
class Output:
    """Edits and findings, module by module. A unit's output is merged into the whole only if all of it succeeds."""

    edits: dict[Module, Edits] = field(default_factory=dict)
    regions: dict[Scope, str] = field(default_factory=dict)  # the autocast call of scopes whose regions are decided
    training: set[Scope] = field(default_factory=set)  # those of them that hold the forward of a scaled loss
    gathered: set[Function] = field(default_factory=set)  # functions that run a model in the region of who calls them
    inner: set[Function] = field(default_factory=set)  # functions that variables hold, which have their regions inside
    switches: dict[Function, str] = field(default_factory=dict)  # functions that take a switch for autocast, its name
    fields: dict[str, list[Home]] = field(default_factory=dict)  # where objects are given one, by the field it is in
    begun: set[tuple[ast.AST, str]] = field(default_factory=set)  # where they are off from the beginning, by their name
    given: set[tuple[ast.Call, str]] = field(default_factory=set)  # calls that hand one over
    passing: set[ast.Call] = field(default_factory=set)  # calls in runs that come by no set-up
    kept: set[ast.expr] = field(default_factory=set)  # uses of Apex that work as they are
    taken: set[ast.expr] = field(default_factory=set)  # uses of Apex, of amp by a value too, that a rule has replaced
    clipped: set[ast.Call] = field(default_factory=set)  # optimizers whose clipping a rule has put beside the step
    global_names: set[tuple[Module, str]] = field(default_factory=set)  # of scalers at the module level of files
    wide: set[tuple[Module, str]] = field(default_factory=set)  # of those that functions set
    asking: dict[Scope, tuple[Module, str]] = field(default_factory=dict)  # the scopes whose regions ask one of these
    findings: dict[Module, list[Finding]] = field(default_factory=dict)
    wishes: Wishes = field(default_factory=Wishes)
    units: dict[Module, dict[int, Edits]] = field(default_factory=dict)  # what each unit writes to a file
    written: dict[Module, ast.Module] = field(default_factory=dict)  # what files become, parsed
    refuted: Mapping[tuple[str, int], Doubt] = field(default_factory=dict)  # sites that the audit holds back
    mended: Mapping[tuple[str, int], Mapping[str, str]] = field(
        default_factory=dict
    )  # those it wants otherwise, and why
    castable: set[tuple[str, int]] = field(
        default_factory=set
    )  # forwards that give one tensor for sure, to cast if asked
    unbound: set[Module] = field(default_factory=set)  # files with uses of Apex that no import reaches
    refused: list[tuple[Unit, Cause]] = field(default_factory=list)  # units that stay with Apex, and why
    carried: list[Unit] = field(default_factory=list)  # those that do not
    left: set[tuple[Module, int]] = field(default_factory=set)  # lines of sites that were to be left as they are
    _lines: dict[Module, set[int]] = field(default_factory=dict)  # where findings may be

    def wants(self, module: Module, finding: Finding) -> bool:
        """Whether a site is to be changed; if it was asked to stay, no later rule reports it."""
        doubt = self.refuted.get((module.display, finding.line))
        if doubt is not None:
            refuted = Finding(finding.line, 1, doubt.code, doubt.construct, "manual", "review", doubt.refusal)
            self.add(module, refuted)
        elif self.wishes.wants(module.display, finding.line, finding.code):
            return True
        self.left.add((module, finding.line))
        return False

    def wants_at(self, module: Module, node: ast.AST, code: str) -> bool:
        """The same of a site for which there is no finding yet."""
        return self.wants(module, Finding(getattr(node, "lineno", 1), 1, code, "", "done", "as-is", ""))

    def edit(self, module: Module) -> Edits:
        if module not in self.edits:
            self.edits[module] = Edits(module)
        return self.edits[module]

    def find(
        self,
        module: Module,
        node: ast.AST,
        code: str,
        construct: str,
        status: Status,
        review: Review,
        message: str,
        about: str = "",
    ) -> None:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        alike = message.replace(about, "", 1) if about else ""
        self.add(module, Finding(line, column, code, construct, status, review, message, alike=alike))

    def add(self, module: Module, finding: Finding) -> None:
        self._take(module, [finding])

    def _take(self, module: Module, findings: list[Finding]) -> None:
        """Add findings that are not there yet."""
        mine, known = self.findings.setdefault(module, []), self._lines.setdefault(module, set())
        lines = {f.line for f in findings}
        near = set() if known.isdisjoint(lines) else {f for f in mine if f.line in lines}
        mine += dict.fromkeys(f for f in findings if f not in near)
        known |= lines

    def done(
        self, module: Module, node: ast.AST, code: str, construct: str, message: str, review: Review = "as-is"
    ) -> None:
        self.find(module, node, code, construct, "done", review, message)

    def note(
        self,
        module: Module,
        node: ast.AST,
        code: str,
        construct: str,
        message: str,
        review: Review = "look",
        about: str = "",
    ) -> None:
        """`about`: what the message quotes or names of this place."""
        self.find(module, node, code, construct, "note", review, message, about)

    def manual(self, module: Module, node: ast.AST, code: str, construct: str, message: str) -> None:
        self.find(module, node, code, construct, "manual", "review", message)

    def waits(self, module: Module, node: ast.AST, code: str, construct: str, failure: Blocked) -> None:
        """A site that stays as it is because another one of its unit has to."""
        cause = Cause(failure.module.display, getattr(failure.node, "lineno", 1), failure.code)
        self.waits_for(module, node, code, construct, cause)

    def waits_for(self, module: Module, node: ast.AST, code: str, construct: str, cause: Cause) -> None:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        self.add(module, Finding(line, column, code, construct, "manual", "review", cause.awaited, cause))

    def causes(self, module: Module, lines: Collection[int]) -> Iterator[Cause]:
        """What a site waits for that hangs on those in some lines of a file that stay as they are."""
        for f in self.findings.get(module, ()):
            if f.status == "manual" and f.line in lines:
                yield f.cause or Cause(module.display, f.line, f.code)

    def by_hand(self, module: Module | None = None) -> bool:
        """Whether something is left to a person: in a file, or in any."""
        told = self.findings.values() if module is None else [self.findings.get(module, [])]
        return any(f.status == "manual" for found in told for f in found)

    def stays(self, module: Module) -> bool:
        """Whether something of Apex stays in a file: it is left to a person, or works as it is."""
        return self.by_hand(module) or any(node in module.parents for node in self.kept)

    def merge(self, other: Output) -> None:
        self.left |= other.left
        self.regions |= other.regions
        self.training |= other.training
        self.gathered |= other.gathered
        self.inner |= other.inner
        self.switches |= other.switches
        for name, homes in other.fields.items():
            self.fields.setdefault(name, []).extend(homes)
        self.begun |= other.begun
        self.given |= other.given
        self.passing |= other.passing
        self.kept |= other.kept
        self.taken |= other.taken
        self.clipped |= other.clipped
        self.castable |= other.castable
        self.global_names |= other.global_names
        self.wide |= other.wide
        self.asking |= other.asking
        for module, edits in other.edits.items():
            self.edit(module).merge(edits)
        for module, findings in other.findings.items():
            self._take(module, findings)
