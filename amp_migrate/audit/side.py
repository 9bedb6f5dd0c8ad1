"""One state of the program, before the migration or after it, and under which condition a way of it runs under autocast."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.near import near_in
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.sites.forwards import Forward, Forwards
from amp_migrate.audit.sites.own_calls import OwnCalls
from amp_migrate.audit.sites.regions import Region, Regions
from amp_migrate.audit.sites.setups import identities
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.chains import Chain, Chains
from amp_migrate.audit.ways.formulas import Formula, conjunction, disjunction, example, negation
from amp_migrate.audit.ways.installed import Installed
from amp_migrate.audit.ways.predicates import Predicates
from amp_migrate.audit.ways.trails import Place

NO_REGION = frozenset({"contextlib.suppress", "contextlib.nullcontext"})  # what stands for a region where there is none


class Side:
    """One state of the program with all that is derived from it."""

    def __init__(self, program: Program, values: Values, modules: Sequence[Module], state: str = "before") -> None:
        self.state = state  # as regions whose switch is out of sight are named
        self.program = program
        self.modules = modules
        self.values = values
        self.forwards = Forwards(program, values, modules)
        self.chains = Chains(program, self.forwards)
        self.own_calls = OwnCalls(program, self.forwards)
        self.regions = Regions(program, values)
        self.predicates = Predicates(program, values, self.chains)
        self.installed = Installed(program)

    def possible(self, chain: Chain, condition: Formula) -> bool:
        """Whether some run may go a way in which a condition holds."""
        return example(conjunction([self.predicates.given(chain), condition])) is not None

    def in_region(self, chain: Chain) -> Formula:
        """Under which condition a way runs under autocast."""
        places = self.predicates.places(chain)
        run: Function | None = None
        parts: list[Formula] = []
        for step, place in zip(reversed(chain.steps), reversed(places), strict=True):
            if step.value:
                found = self._where_called(run) if run is not None else []
                if found:
                    return disjunction([*parts, *found])
            for region in self.regions.around(step.module, step.node) if not step.value else ():
                parts.append(self._enabled(region, place))
                if not region.switch[1] and region.choice is None:
                    return disjunction(parts)
            run = step.function
        return disjunction(parts)

    @kept
    def _where_called(self, function: Function) -> list[Formula]:
        """The switches of the regions in which a variable is called that may stand for a function."""
        return [
            self._enabled(region, self.predicates.trails.anywhere(module.scope_of(call)))
            for module in self.modules
            if "autocast" in module.text
            for call in module.calls()
            if (region := self.regions.nearest(module, call)) is not None and not region.off
            if isinstance(call.func, (ast.Name, ast.Attribute))
            and any(o.node is function.node for o in self.values.origins(module.scope_of(call), call.func))
        ]

    def _enabled(self, region: Region, place: Place) -> Formula:
        if region.unseen:
            given, there = self.predicates.trails.end(region.call.func, place)
            nothing = self.program.dotted(there.scope, given) in NO_REGION
            return False if nothing else f"{syntax.text(region.call)} {self.state}"
        if region.module is not place.scope.module:
            place = self.predicates.trails.anywhere(region.module.scope_of(region.call))
        asked = [self.predicates.of(part, place) for part in region.switch[0]]
        on = True if region.enabled is None else disjunction(asked)
        if region.choice is None:
            return on
        test, came = region.choice
        chosen = self.predicates.of(test, place)
        return conjunction([chosen if came else negation(chosen), on])

    def region_around(self, chain: Chain) -> Region | None:
        """The region that a way stands in, whether that is on or not; what is handed on within one is called once that is
        left."""
        regions = (self.regions.nearest(s.module, s.node) for s in reversed(chain.steps) if not s.value)
        return next((r for r in regions if r is not None), None)

    def wrapped(self, forward: Forward) -> Region | None:
        """The region that was put on the `forward` of a model itself."""
        for module, attribute, region in self.regions.wrapped:
            if attribute.attr != (forward.method or "forward") and attribute.attr != "forward":
                continue
            if forward.method not in (None, "module", "data_parallel", attribute.attr):
                continue
            scope = module.scope_of(attribute)
            if identities(self.values, scope, attribute.value) & self.forwards.identities(forward):
                return region
        return None

    def may_be_wrapped(self, forward: Forward) -> bool:
        """Whether a forward runs what is handed in, of which nothing is seen, and a region was put on the `forward` of a model: each
        that was set up has one then, whatever wraps it and runs it."""
        wrapping = [m for m, a, _ in self.regions.wrapped if a.attr == "forward"]
        if forward.method not in (None, "module") or not wrapping:
            return False
        made = [i for i in self.forwards.identities(forward) if isinstance(i[0], ast.Call)]
        near = near_in(self.program).files(wrapping) if made else []
        # What other programs make, and keep under the same name.
        return all(len(i) > 2 and i[2] not in near for i in made)
