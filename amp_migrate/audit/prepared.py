"""What Apex set up in the program before the migration: which calls, which models, and where that makes things half."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import conditions
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.program.near import Near, near_in, runs_itself
from amp_migrate.audit.review import Review
from amp_migrate.audit.side import Side
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.sites.setups import INITIALIZE, Identity, SetUp, asked_level, identities, setups
from amp_migrate.audit.values.names import handed_on, is_option
from amp_migrate.audit.ways.chains import Chain
from amp_migrate.audit.ways.formulas import Formula, conjunction, example
from amp_migrate.audit.ways.within import may_follow


@dataclass(frozen=True, eq=False)
class Was:
    """How a way ran before: the condition under which it was half, and whether nothing else could make it so."""

    half: Formula
    sure: bool
    anew: str = ""  # it "runs", or "may run", an object made since, which O2 and O3 did not reach
    usual: Formula | None = None  # the condition at the usual level, O1, where another may be asked for
    reached: Formula = False  # the condition, with that level where only O1 reached an object made since
    going: Formula = False  # `half` in a run that nothing stops: without what only lets it go on
    going_reached: Formula = False  # the same of `reached`


class Prepared:
    """Both sides of one migration, and what Apex was given in the one before."""

    def __init__(self, review: Review) -> None:
        self.review = review
        self._around: dict[str, list[SetUp]] = {}

    @cached_property
    def near(self) -> list[Module]:
        """The files (before) that run in one process with a changed one."""
        return self.nearness.files(c.before for c in self.review.changes.values())

    @cached_property
    def nearness(self) -> Near:
        return near_in(self.review.before)

    @cached_property
    def before(self) -> Side:
        near = self.near
        return self.review.once((Side, *near), lambda: Side(self.review.before, self.review.values_before, near))

    @cached_property
    def after(self) -> Side:
        modules = [self.review.after.modules[m.path] for m in self.near]
        return Side(self.review.after, self.review.values_after, modules, "after")

    @cached_property
    def all_setups(self) -> list[SetUp]:
        return self.review.once(setups, lambda: setups(self.review.before, self.review.values_before))

    @cached_property
    def removed(self) -> list[SetUp]:
        """The set-ups that the migration took away (those that do nothing left out)."""
        found = [s for s in self.all_setups if not self._stands(s)]
        found += self._half_weights()
        return [s for s in found if not s.off and s not in self.never]

    @cached_property
    def never(self) -> list[SetUp]:
        """The set-ups before which all runs with Apex on are ended: `assert not args.fp16` above `if args.fp16:`."""
        found = [s for s in self.all_setups if not s.off and not self._stands(s)]
        ways = {s: self.before.chains.to(s.module, s.call) for s in found}
        return [s for s in found if ways[s] and all(self._ended(s, way) for way in ways[s])]

    def _ended(self, setup: SetUp, way: Chain) -> bool:
        return example(self.on(setup, way)) is None and example(self.on(setup, way, False)) is not None

    @kept
    def on(self, setup: SetUp, way: Chain, stops: bool = True) -> Formula:
        """When a way comes to a set-up, and that switches Apex on."""
        predicates = self.before.predicates
        parts = [predicates.given(way, loops=False, stops=stops)]
        place = predicates.places(way)[-1]
        if setup.enabled is not None:
            parts.append(predicates.of(setup.enabled, place))
        level = asked_level(self.before.values, setup.module, setup.call) if setup.name == INITIALIZE else None
        if level is None and not setup.known:  # handed on in a dictionary
            level = ast.Name("opt_level", ast.Load())
        if level is not None and not isinstance(level, ast.Constant):
            parts.append(self.compared_level(level, ast.NotEq(), "O0", way))
        return conjunction(parts)

    def compared_level(self, level: ast.expr, compared: ast.cmpop, other: str, way: Chain) -> Formula:
        """That the opt level is, or is not, a certain one on a way."""
        asked = ast.Compare(left=level, ops=[compared], comparators=[ast.Constant(other)])
        predicates = self.before.predicates
        return predicates.of(ast.copy_location(asked, level), predicates.places(way)[-1])

    @cached_property
    def staying(self) -> list[SetUp]:
        """The set-ups that stay."""
        return [s for s in self.all_setups if self._stands(s) and not s.off]

    def _stands(self, setup: SetUp) -> bool:
        change = self.review.changes.get(setup.module.path)
        if change is None:
            return True
        after = change.back.get(setup.module.statement(setup.call))
        return after is not None and self.counterpart_in(after, setup.call) is not None

    def _half_weights(self) -> list[SetUp]:
        """`model.half()` that went: the weights were half, and with them every forward of that model."""
        found = []
        for path, change in self.review.changes.items():
            module = self.review.before.modules[path]
            for call, model in module.method_calls("half"):
                after = change.back.get(module.statement(call))
                gone = not call.args and (after is None or self.counterpart_in(after, call) is None)
                if gone and not self._cast_back(module, call, model):
                    found.append(SetUp(module, call, ".half", frozenset({"O3"}), True, (model,), None))
        return found

    def _cast_back(self, module: Module, half: ast.Call, model: ast.expr) -> bool:
        """Whether initialize is given the model further down wherever it was made half: at O0 it made that float32 again, and
        at any other level it refused it."""
        around, objects = module.function_around(half), frozenset(self._objects(module, model))
        asked = conditions(module, module.statement(half))
        return any(
            s.module is module
            and s.name == INITIALIZE
            and module.function_around(s.call) is around
            and s.call.lineno > half.lineno
            and {*conditions(module, module.statement(s.call))}.issubset(asked)
            and not objects.isdisjoint(i for m in s.models for i in self._objects(module, m))
            for s in self.all_setups
        )

    @cached_property
    def models(self) -> dict[SetUp, frozenset[Identity]]:
        """The models of each removed set-up."""
        return {s: frozenset(i for m in s.models for i in self._objects(s.module, m)) for s in self.removed}

    def _objects(self, module: Module, expr: ast.expr) -> Iterator[Identity]:
        """What a model may be, and what holds it: `model` of `model.bottom` runs it."""
        scope = module.scope_of(expr)
        if (owner := self.review.before.is_self(scope, expr)) is not None:
            yield "self", owner, module  # which sets itself up
        found = identities(self.review.values_before, scope, expr)
        yield from found - self._later(module, expr) if isinstance(expr, ast.Name) else found
        if isinstance(expr, ast.Attribute) and not self.review.before.is_self(scope, expr.value):
            if isinstance(expr.value, (ast.Name, ast.Attribute)):
                held = identities(self.review.values_before, scope, expr.value)
                yield from (i for i in held if isinstance(i[0], ast.Call))

    def _later(self, module: Module, name: ast.Name) -> frozenset[Identity]:
        """What a name is only given once the place where it stands is behind: `model = Wrapped(model)` below a set-up."""
        scope, own = module.scope_of(name).binder(name.id), module.statement(name)
        bound = [n for n in scope.bindings[name.id] if n is not own] if scope is not None else []
        if scope is not module.scope_of(name) or not all(isinstance(n, ast.Assign) for n in bound):
            return frozenset()
        early, late = set[Identity](), set[Identity]()
        for node in bound:
            assert isinstance(node, ast.Assign)
            there = early if may_follow(module, node, own) else late
            there |= identities(self.review.values_before, scope, node.value)
        return frozenset(late - early) if early else frozenset()

    @cached_property
    def initialized(self) -> frozenset[Identity]:
        return frozenset(i for found in self.models.values() for i in found)

    @kept
    def objects_of(self, cls: Class) -> frozenset[Identity]:
        """The initialized models that are objects of a class, or of one in its family."""
        family, made_of = self.review.before.family(cls), self.before.forwards.made_of
        itself = (i for i in self.initialized if i[0] == "self" and i[1] in family)
        return frozenset(
            (*itself, *(i for i in self.initialized if not set(family).isdisjoint(made_of(frozenset((i,))))))
        )

    def itself(self, forward: Forward) -> frozenset[Identity]:
        """The initialized models that what is run may be where a method of theirs runs it, or hands its object on."""
        objects = [(forward.scope, forward.model)]
        objects += self.before.forwards.taken.holders(*objects[0]) if forward.method is None else []
        origins = (o for where in objects for o in self.review.values_before.origins(*where) if not o.path)
        owners = [o.module.class_of[o.node] for o in origins if isinstance(o.node, ast.ClassDef)]
        return frozenset().union(*map(self.objects_of, owners))

    def of_another(self, forward: Forward, way: Chain) -> bool:
        """Whether a way comes to what a network runs of itself by an object that is seen to be made, and that no set-up was given:
        O1 alone ran that in half."""
        owner = self.review.before.is_self(forward.scope, forward.model) if not self.patched else None
        made = self.before.chains.making(way, owner) if owner is not None else None
        return made is not None and all(i[0] is not made[2] and i[0] != "self" for i in self.initialized)

    @cached_property
    def around(self) -> frozenset[Identity]:
        """Objects made around an initialized model: `ContrastiveLearner(model)` runs it."""
        found: set[Identity] = set()
        seen: set[Identity] = set(self.initialized)
        for forward in self.before.forwards.among(self.start):
            for identity in self.before.forwards.identities(forward) - seen:
                seen.add(identity)
                node, module = identity[0], identity[-1]
                if isinstance(node, ast.Call) and isinstance(module, Module):
                    if syntax.text(node.func).rpartition(".")[2] == "deepcopy":
                        continue  # which runs a copy
                    scope = module.scope_of(node)
                    for arg in [*syntax.given(node)]:
                        if isinstance(arg, (ast.Name, ast.Attribute)) and not is_option(arg):
                            if identities(self.review.values_before, scope, arg) & self.initialized:
                                found.add(identity)
        return frozenset(found)

    def around_of(self, module: Module) -> list[SetUp]:
        """The set-ups of the programs that a file (of either state) is part of; all of them where none is seen, unless the
        file is a program itself."""
        return self.near_setups(module) or ([] if runs_itself(module) else self.removed)

    def near_setups(self, module: Module) -> list[SetUp]:
        """Those that are seen."""
        return self._near(module.path)

    @kept
    def _near(self, path: str) -> list[SetUp]:
        before = self.review.before.modules.get(path)
        files = set(self.nearness.files([before])) if before is not None else set()
        return [s for s in self.removed if s.module in files]

    @kept
    def initialized_around(self, module: Module) -> frozenset[Identity]:
        """The models that those of the programs of a file were given."""
        return frozenset().union(*(self.models[s] for s in self.around_of(module)))

    @kept
    def floats(self, module: Module) -> bool:
        """Whether all initialized models had half weights (O2, O3), in the programs of a file."""
        found = [s for s in self.around_of(module) if s.models]
        return bool(found) and all(s.half_weights for s in found)

    def gave_floats(self, module: Module) -> bool:
        """Whether the outputs of all of them came back in float32: network_to_half cast inputs only."""
        return self.floats(module) and all(s.name == INITIALIZE for s in self.around_of(module) if s.models)

    def initializes(self, module: Module) -> bool:
        """Whether `amp.initialize` is among what sets the programs of a file up: it casts what state_dict() gives."""
        return any(s.name == INITIALIZE for s in self.around_of(module))

    def since(self, module: Module) -> str:
        """What models that are no longer float32 have behind them, as messages name it."""
        return "after amp.initialize" if self.initializes(module) else "after it was made half"

    @kept
    def asks(self, module: Module) -> bool:
        """Whether which opt level it is, O1 or one that makes outputs float32, is only known when the program runs."""
        found = [s for s in self.around_of(module) if s.models and s.name == INITIALIZE]
        open_ = any(not s.known or s.levels & {"O2", "O3"} for s in found)
        return open_ and self.patches(module) and not self.floats(module)

    def other_level(self, module: Module) -> str:
        """The level that a run may ask for beside the usual one, of those that compute otherwise; empty where there is one."""
        return "O1" if self.floats(module) and self.patches(module) else "O2" if self.asks(module) else ""

    @kept
    def patches(self, module: Module) -> bool:
        """Whether Apex may have patched torch (O1) in the programs of a file."""
        return any(s.patches for s in self.around_of(module))

    @cached_property
    def registered(self) -> frozenset[str]:
        """Names of functions that the program had Apex run in half itself: `amp.register_half_function(torch, "einsum")`."""
        given = [
            call.args[1]
            for module, call, _ in self.review.calls_before("apex.amp.register_half_function")
            if module in self.near and len(call.args) > 1
        ]
        return frozenset(str(g.value) for g in given if isinstance(g, ast.Constant))

    @cached_property
    def patched(self) -> bool:
        """Whether Apex surely ran everything in mixed precision (O1 at some set-up)."""
        return any(s.surely_patches for s in self.removed)

    @cached_property
    def start(self) -> set[str]:
        """Names under which the models of set-ups begin."""
        found: set[str] = set()
        for setup, models in self.models.items():
            found.update(name for m in setup.models for name in handed_on(m))
            for identity in models:
                node = identity[0]
                if isinstance(node, ast.Call):
                    found.update(handed_on(node.func))
                elif isinstance(node, ast.arg):
                    found.add(node.arg)
        return found

    # -- places on both sides ----------------------------------------------------------------------------------------

    def now(self, module: Module, call: ast.Call) -> tuple[Module, ast.Call] | None:
        """A call of the program before, as it stands after."""
        change = self.review.changes.get(module.path)
        if change is None:
            return module, call
        stmt = change.back.get(module.statement(call))
        places = [stmt, *change.above(stmt)] if stmt is not None else []
        found = next((c for s in places if (c := self.counterpart_in(s, call)) is not None), None)
        return (change.after, found) if found is not None else None

    def was(self, module: Module, node: ast.AST) -> tuple[Module, ast.AST] | None:
        """A call, or a function handed on, of the program after, as it stood before."""
        change = self.review.changes.get(module.path)
        if change is None:
            return module, node
        now = module.statement(node)
        stmt = change.was(now) or (change.was(change.below(now)) if isinstance(node, ast.Call) else None)
        if stmt is None:
            return None
        if isinstance(node, ast.Call):
            call = self.counterpart_in(stmt, node)
            if call is not None and change.was(now) is None and self.now(change.before, call) != (module, node):
                return None  # not taken out of it
            found: ast.AST | None = call
        else:
            text = syntax.text(node)
            found = next((n for n in syntax.own_line(stmt) if isinstance(n, ast.expr) and syntax.text(n) == text), None)
        return (change.before, found) if found is not None else None

    def chain_before(self, chain: Chain) -> Chain | None:
        """A way through the program after, as it went before; None where a step of it is new."""
        steps = []
        for step in chain.steps:
            found = self.was(step.module, step.node)
            if found is None:
                return None
            module, node = found
            steps.append(replace(step, module=module, function=module.function_around(node), node=node))
        return Chain(tuple(steps))

    def counterpart_in(self, stmt: ast.stmt, call: ast.Call) -> ast.Call | None:
        """A call in a statement that calls the same."""
        wanted = syntax.text(call.func)
        same = [n for n in syntax.own_line(stmt) if isinstance(n, ast.Call) and syntax.text(n.func) == wanted]
        exact = [n for n in same if syntax.text(n) == syntax.text(call)]
        return next(iter(exact or same), None)
