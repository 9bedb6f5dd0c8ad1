"""Autocast regions: which statements Apex ran in mixed precision, as tightly as a person would write it: model forwards and
the computation of the loss from them; not data loading, not backward, not the step.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, WITH_NODES, Module, Scope
from amp_migrate.reading.program.occurrences import Occurrences
from amp_migrate.reading.program.own_regions import OwnRegion, casts_itself, own_switch
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import method_called
from amp_migrate.reading.program.view import Block, Folds, Node, view
from amp_migrate.reading.regions.companions import Companions
from amp_migrate.reading.regions.computing import computes
from amp_migrate.reading.regions.forwards import Forwards
from amp_migrate.reading.regions.hot import Outputs, Root, hot_statements, is_loss
from amp_migrate.reading.regions.losses import LossMakers, names_in
from amp_migrate.reading.regions.no_grad import switches
from amp_migrate.reading.regions.refused import refuses, second_order
from amp_migrate.reading.regions.spans import Region, Spans, is_elif, statements
from amp_migrate.reading.regions.stored import defines
from amp_migrate.reading.units.passing import only_run_by
from amp_migrate.reading.units.unit import Unit
from amp_migrate.reading.values import run_by_variables
from amp_migrate.reading.values.operations import LOSS_NAMES
from amp_migrate.reading.values.returned import Returns

GAP = 3  # cold statements between two hot ones that a region swallows rather than being split


@dataclass
class Regions:
    """The regions of one scope."""

    scope: Scope
    found: list[Region] = field(default_factory=list)
    values: set[str] = field(default_factory=set)  # names computed in them
    ends: set[str] = field(default_factory=set)  # names of the losses
    averages: list[ast.Call] = field(
        default_factory=list
    )  # calls in statements that lead to a loss which average outputs
    outputs: Outputs = field(default_factory=lambda: Outputs([], lambda _: False, set()))
    islands: list[ast.stmt] = field(default_factory=list)  # losses that autocast refuses: kept outside
    companions: list[ast.stmt] = field(default_factory=list)  # forwards of networks that initialize was not given
    trained: bool = False  # holds the forward of a scaled loss
    switched: list[OwnRegion] = field(default_factory=list)  # regions of the program's own, on under a switch
    native: bool = False  # forwards or losses stand in regions of the program's own


BARRIERS = ("barrier", "save", "save_checkpoint", "backward", "synchronize")


class RegionReader:
    """Finds the regions of one unit, scope by scope."""

    def __init__(
        self,
        unit: Unit,
        folds: dict[Module, Folds],
        taken: Callable[[Scope], bool] = lambda _: False,
        helpers: frozenset[Function] = frozenset(),
        inner: frozenset[Function] = frozenset(),
    ) -> None:
        self.unit = unit
        self.taken = taken  # whether a scope is one that another unit has decided
        self.project: Project = unit.project
        self.helpers = helpers  # functions that run a forward in the region of who calls them
        self.forwards = Forwards(unit, helpers, inner)
        self.companions = Companions(unit, self.forwards)
        self.folds = folds
        self._views: dict[Scope, Block] = {}
        self._read: dict[Scope, Regions] = {}
        self._penalties: set[Node] = set()
        self._backwards: dict[Function, bool] = {}
        self._ends: set[str] = set()  # names of the losses of the scope that is read
        self.losses = LossMakers(unit, self.forwards)
        self.returns = self.project.once(Returns)

    # -- which scopes --------------------------------------------------------------------------------------------

    def scopes(self) -> list[Scope]:
        """Scopes that run a forward of the unit's models, or compute or scale one of its losses."""
        return [s for s in self._wanted if not self.taken(s)]

    def shared(self) -> list[Scope]:
        """The like of which another unit has decided the regions."""
        return [s for s in self._wanted if self.taken(s)]

    @cached_property
    def _wanted(self) -> list[Scope]:
        wanted: dict[Scope, None] = {}
        for loss in self.unit.trained:
            wanted[loss.module.scope_of(loss.call)] = None
            target = self.project.function_of(loss.module, loss.call)
            for module, call in self.project.calls.get(target, []) if target is not None else ():
                wanted[module.scope_of(call)] = None
        for function in self.losses.functions:
            wanted[function.scope] = None
        for target, _ in self.losses.receivers:
            for module, call in self.project.calls.get(target, []):
                wanted[module.scope_of(call)] = None
        for module in self.unit.cast:
            for call, scope in self.project.once(Occurrences, module).calls_about(
                self.unit.model_slots | self.forwards.parts | self.forwards.selves | self.forwards.wholes
            ):
                if scope not in wanted and self.forwards.is_forward(module, call) and not self._passed_by(scope):
                    wanted[scope] = None
        for function in self.helpers:
            wanted.pop(function.scope, None)
            wanted |= {
                m.scope_of(c): None
                for m, c in self.project.calls.get(function, ())
                if self._hands_model(function, m, c)
            }
        paths = {path for path, *_ in self.unit.run}
        told = {
            scope
            for module in self.unit.cast
            if module.display in paths
            for call, scope in module.calls
            if self.forwards.told(module, call)
        }
        wanted |= dict.fromkeys(sorted(told, key=lambda s: (s.module.display, getattr(s.node, "lineno", 0))))
        wanted = {s: None for s in wanted if s not in self.unit.uncast and s not in self.unit.overridden}
        return [s for s in wanted if not s.is_class and (s in told or not self.forwards.in_network(s))]

    def _passed_by(self, scope: Scope) -> bool:
        """Whether only programs run a function that never initialize: a demo, a test."""
        function = self.project.functions.get(scope.node)
        return function is not None and only_run_by(self.project, function, self.unit.passing)

    def _hands_model(self, function: Function, module: Module, call: ast.Call) -> bool:
        """Whether a call gives a function one of the unit's models, if it is given its model at all."""
        named = {s.name for s in self.unit.model_slots if s.holder is function.scope}
        given = [value for name, value in self.project.arguments(function, call) if name in named]
        return not given or any(self.forwards.is_model(module, value) for value in given)

    def within_callers(self, scope: Scope) -> bool:
        """Whether all that calls a function stands in regions as it is: one inside of it would be for nothing."""
        function = self.project.functions.get(scope.node)
        calls = run_by_variables.calls_in_sight(self.project, function) if function is not None else []
        if not calls:
            return False
        callers = {module.scope_of(call) for module, call in calls}
        return scope not in callers and callers <= set(self._wanted) and all(self.in_region(m, c) for m, c in calls)

    def in_region(self, module: Module, call: ast.Call) -> bool:
        """Whether a call stands in a region of the function around it, and in none of the program's own."""
        scope = module.scope_of(call)
        around = [call, *module.ancestors(call)]
        if self.taken(scope) or any(casts_itself(module, a) for a in around):
            return False
        return any(stmt in around for r in self.read(scope).found for stmt in statements(self.view(scope), r))

    def view(self, scope: Scope) -> Block:
        if scope not in self._views:
            self._views[scope] = view(scope.module, scope.body, self.folds.get(scope.module, Folds()))
        return self._views[scope]

    def held(self, scope: Scope, region: Region) -> list[ast.stmt]:
        """The statements of a region in a scope; of one that joins a `with`, those in that."""
        return region.join.body if region.join is not None else statements(self.view(scope), region)

    def is_forward(self, module: Module, node: ast.AST) -> bool:
        """Whether a call runs one of the unit's models."""
        return self.forwards.is_forward(module, node)

    # -- one scope -----------------------------------------------------------------------------------------------

    def read(self, scope: Scope) -> Regions:
        """The regions of a scope, in source order."""
        if scope not in self._read:
            none = scope in self.unit.uncast or scope in self.unit.overridden
            self._read[scope] = Regions(scope) if none else self._regions(scope)
        return self._read[scope]

    def _regions(self, scope: Scope) -> Regions:
        module = scope.module
        result = Regions(scope)
        block = self.view(scope)
        losses = [x for x in self.unit.trained if x.module is module and module.scope_of(x.call) is scope]
        function = self.project.functions.get(scope.node)
        makes_loss = function is not None and function in self.losses.functions
        passes_loss = self.losses.passed(module, scope)
        nodes = list(block.walk())
        forwards = {n for n in nodes if any(self.forwards.is_forward(module, a) for a in n.calls)}
        if not forwards and not losses and not makes_loss and not passes_loss:
            return result
        if self.unit.only_inference and any(method_called(a) == "backward" for n in nodes for a in n.calls):
            return result  # trained without Apex
        roots = [Root(frozenset(self.losses.names(module, x.loss)), x.with_stmt) for x in losses]
        roots += [Root(frozenset(names_in(value)), module.statement(value)) for value in passes_loss]
        if makes_loss:
            assert function is not None
            roots.append(Root(frozenset(self.losses.functions[function])))
        given = self._given_outputs(function) if function is not None and losses else set()
        result.outputs = Outputs(nodes, partial(self.is_forward, module), given, module)
        hot = hot_statements(
            self.forwards, module, nodes, forwards, roots, bool(losses) or bool(passes_loss), result.outputs
        )
        result.averages = [
            a
            for n in result.outputs.reduced
            for a in n.own
            if isinstance(a, ast.Call) and result.outputs.averages(a) is not None
        ]
        hot |= forwards
        companions: set[Node] = set()
        if losses or makes_loss or passes_loss:
            companions = {n for n in nodes if any(self.companions.runs(module, a) for a in n.calls)}
            hot |= companions
        early = self._before_initialize(scope, nodes)
        plain = self.folds[module].plain if module in self.folds else set()
        early |= {n for n in nodes if plain and any(a in plain for a in (n.stmt, *module.ancestors(n.stmt)))}
        within = {n: [a for a in (n.stmt, *module.ancestors(n.stmt)) if isinstance(a, WITH_NODES)] for n in nodes}
        native = {n for n, around in within.items() if any(casts_itself(module, a) for a in around)}
        result.native = not hot.isdisjoint(native)
        early |= native
        switched = {n: with_ for n, around in within.items() for a in around if (with_ := own_switch(module, a))}
        result.switched = list({w.call: w for n, w in switched.items() if n in hot - early}.values())
        early |= switched.keys()
        hot -= early
        forwards -= early
        # What a helper returns that runs the backward is a loss as well; it is no part of its forward.
        hot -= {n for n in hot - forwards if not n.blocks and self._calls_backward_of(n)}
        # Where no forward of its own models is known, the name of one may just not have been followed to `initialize`.
        result.companions = [n.stmt for n in nodes if n in companions - forwards - early] if forwards else []
        self._penalties = {n for n in nodes if any(second_order(module, a) for a in n.calls)}
        self._penalties |= self.companions.uncast(module, nodes, forwards)
        hot -= self._penalties
        result.islands = [n.stmt for n in hot if n not in forwards and self.refused(module, n)]
        hot -= {n for n in hot if n.stmt in result.islands}
        ends = {name for root in roots for name in root.names}
        for n in hot:
            result.values |= {name for name in defines(n) if "." not in name and name not in ends}
        result.trained = bool(losses) or makes_loss or bool(passes_loss)
        self._ends = result.ends = ends
        run = forwards | (companions & hot)
        self._group(module, block, hot, run, result)
        spans = Spans(module, hot, run, lambda node: self._barrier(module, node))
        result.found = spans.shaped(block, result.found)
        return result

    def _given_outputs(self, function: Function) -> set[str]:
        """The parameters of a function that are given what a forward computed."""
        found: set[str] = set()
        for module, call in self.project.calls.get(function, ()):
            nodes = list(self.view(module.scope_of(call)).walk())
            made = Outputs(nodes, partial(self.is_forward, module), set())
            for parameter, value in self.project.arguments(function, call):
                plain = isinstance(value, ast.Name) and value.id in made.names
                if (plain or self.is_forward(module, value)) and not LOSS_NAMES.search(parameter):
                    found.add(parameter)
        return found

    def refused(self, module: Module, node: Node) -> bool:
        """Whether a statement computes binary_cross_entropy, which raises under autocast."""
        return any(refuses(self.project, module, a) for a in node.calls)

    def computes_loss(self, module: Module, call: ast.Call) -> bool:
        """Whether a call computes a loss of tensors, and not in a function that has a region of its own."""
        return is_loss(call) and not self.forwards.own_region(module, call) and not self.forwards.on_host(call)

    def _before_initialize(self, scope: Scope, nodes: list[Node]) -> set[Node]:
        """Statements above `initialize` in the scope that calls it: they ran without Apex."""
        lines = [
            i.call.lineno
            for i in self.unit.inits
            if i.site.scope is scope and not any(isinstance(a, LOOP_NODES) for a in scope.module.ancestors(i.call))
        ]
        if not lines:
            return set()
        return {n for n in nodes if (n.stmt.end_lineno or n.stmt.lineno) < min(lines)}

    # -- grouping ------------------------------------------------------------------------------------------------

    def _barrier(self, module: Module, node: Node) -> bool:
        """Statements that must not stand in a region: backward, step, scaling, the loop over batches."""
        scaled = {loss.with_stmt for loss in self.unit.trained if loss.module is module}
        for inner in node.walk():
            if inner in self._penalties:
                return True
            if any(a in scaled for a in module.ancestors(inner.stmt)):
                return True
            for call in inner.calls:
                if method_called(call) in ("step", "unscale_") or called_name(call) in BARRIERS:
                    return True
            if self._calls_backward_of(inner):
                return True
            if isinstance(inner.stmt, (ast.Continue, ast.Break)) and inner.parent is node.parent:
                return True
        return False

    def _calls_backward_of(self, node: Node) -> bool:
        """Whether a statement calls a function of the program that runs a backward."""
        return any(self.runs_backward(f) for call in node.calls for f in self.project.resolved.get(call, []))

    def runs_backward(self, function: Function) -> bool:
        """Whether a function of the program runs a backward, scaled or not, itself or through those it calls."""
        if function not in self._backwards:
            self._backwards[function] = False
            scaled = any(self.project.function_of(x.module, x.call) is function for x in self.unit.trained)
            calls = [n for n in function.inside if isinstance(n, ast.Call)]
            self._backwards[function] = (
                scaled
                or any(method_called(call) == "backward" for call in calls)
                or any(self.runs_backward(f) for call in calls for f in self.project.resolved.get(call, []))
            )
        return self._backwards[function]

    def _group(self, module: Module, block: Block, hot: set[Node], forwards: set[Node], result: Regions) -> None:
        run: list[Node] = []

        def close() -> None:
            if run:
                result.found.append(Region(run[0].stmt, run[-1].stmt))
                run.clear()

        cold: list[Node] = []
        for node in block.nodes:
            if isinstance(node.stmt, (*FUNCTION_NODES, ast.ClassDef)):
                close()
                cold = []
                continue
            if not any(n in hot for n in node.walk()):
                cold.append(node)
                if self._barrier(module, node) or len(cold) > GAP or (any(n.blocks for n in cold) and len(cold) > 1):
                    close()
                continue
            if not is_elif(module, block) and self._whole(module, node, hot, forwards):
                if isinstance(node.stmt, WITH_NODES) and switches(node.stmt) and node not in hot:
                    close()
                    result.found.append(Region(node.stmt, node.stmt, join=node.stmt))  # type: ignore[arg-type]
                else:
                    run.append(node)
                cold = []
                continue
            if (run or self._continues(module, node, hot, forwards)) and self._part(module, node, hot):
                run.append(node)
                cold = []
                continue
            close()
            cold = []
            # A forward in the header of a statement that also holds a backward; no loop over batches.
            if node in forwards or (node in hot and not isinstance(node.stmt, LOOP_NODES)):
                result.found.append(Region(node.stmt, node.stmt))
                continue
            for inner in node.blocks:
                self._group(module, inner, hot, forwards, result)
        close()

    def _continues(self, module: Module, node: Node, hot: set[Node], forwards: set[Node]) -> bool:
        """Whether the statement right below a node goes into a region as it is."""
        below = node.parent.nodes[node.index + 1 : node.index + 2]
        return any(any(x in hot for x in n.walk()) and self._whole(module, n, hot, forwards) for n in below)

    def _part(self, module: Module, node: Node, hot: set[Node]) -> bool:
        """Whether a branch that computes part of the loss among a few other things is better taken into the region
        beside it than given one of its own."""
        if not isinstance(node.stmt, ast.If) or node in hot or self._barrier(module, node):
            return False
        inside = [n for n in node.walk() if n is not node]
        if any(isinstance(n.stmt, (*LOOP_NODES, *WITH_NODES, ast.Return, ast.Continue, ast.Break)) for n in inside):
            return False
        if self._ends and not any(n in hot and defines(n) & self._ends for n in inside):
            return False
        return sum(n not in hot and not n.blocks for n in inside) <= 2 * GAP

    def _whole(self, module: Module, node: Node, hot: set[Node], forwards: set[Node]) -> bool:
        """Whether a statement goes into a region as it is; else its blocks are looked into."""
        if not node.blocks:
            return True
        if self._barrier(module, node):
            return False
        inside = [n for n in node.walk() if n is not node and not n.blocks]
        cold = [n for n in inside if n not in hot]
        if isinstance(node.stmt, LOOP_NODES):
            # One that computes little else for the loss, over what is there already: no batches are brought for each turn.
            has_forward = any(n in forwards for n in node.walk())
            return not has_forward and len(cold) <= len(inside) // 2
        if isinstance(node.stmt, WITH_NODES):
            if switches(node.stmt):
                if any(isinstance(n.stmt, LOOP_NODES) for n in node.walk()):
                    return False
                return len(cold) <= 2 and not any(computes(n) for n in cold) and inside[:1] != cold[:1]
            return len(cold) <= len(inside) // 2
        if isinstance(node.stmt, ast.If):
            alone = not any(x in hot for n in node.parent.nodes if n is not node for x in n.walk())
            return not cold if alone else len(cold) <= 2 or len(cold) * 2 <= len(inside)
        return False
