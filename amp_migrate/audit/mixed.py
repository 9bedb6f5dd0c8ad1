"""What ran in mixed precision: under Apex before the migration, in autocast regions after it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from amp_migrate.audit.kept import kept
from amp_migrate.audit.prepared import Prepared, Was
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.by_hand import ByHand
from amp_migrate.audit.sites.disabled import casts_off
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.sites.networks import network_names
from amp_migrate.audit.sites.pieces import Pieces, idle
from amp_migrate.audit.sites.regions import Region
from amp_migrate.audit.sites.setups import INITIALIZE, Identity, SetUp, asked_level, identities
from amp_migrate.audit.sites.starts import Starts, starts
from amp_migrate.audit.sites.torchscript import Compiled
from amp_migrate.audit.ways.chains import Chain, comes_after
from amp_migrate.audit.ways.formulas import Formula, conjunction, disjunction, example, negation
from amp_migrate.audit.ways.latest import another, as_saved, perhaps_another
from amp_migrate.audit.ways.one_object import of_one_class, of_two_classes
from amp_migrate.audit.ways.options import refused

_Way = tuple[SetUp, Chain, bool]  # a way to a set-up; whether only O1 reached what is run


class Mixed(Prepared):
    """What ran in mixed precision on both sides of one migration."""

    # -- before ------------------------------------------------------------------------------------------------------

    def under_apex(self, chain: Chain, model: frozenset[Identity], compiled: bool = False) -> Was:
        """Under which condition a way of the program before ran in half. `compiled`: what it runs is TorchScript, so that O1 did
        nothing to it."""
        parts, reached, usually = list[_Way](), list[_Way](), list[_Way]()
        anew, another_way, prepared = "", list[Formula](), list[Formula]()
        near, sure = self._starts.near(chain, model)
        cast = negation(casts_off(self.before, chain))
        for setup in near:
            if cast is False and setup.usually_patches:
                continue
            ways = self.before.chains.to(setup.module, setup.call)
            given = self._given(setup, ways, model, chain)
            if compiled and (setup.surely_patches or not given):
                continue
            other = not setup.surely_patches and another(self.review.before, setup, ways, chain)
            fresh = given and other
            direct = given and not (fresh and not setup.patches)
            if not setup.patches and not direct:
                sure = sure and not (fresh and as_saved(self.review.before, chain))
                continue
            perhaps = given and not setup.surely_patches and perhaps_another(self.review.before, setup, ways, chain)
            made = self._constructed(ways, chain) if direct else None
            if made is not None:
                parts.append((setup, made, False))
                reached.append(parts[-1])
                continue
            for way in ways:
                follows = self.follows(way, chain, direct)
                if follows is None:
                    sure = False
                elif follows:
                    only_o1 = False
                    apart = (fresh or (not given and self.seen(model))) and not setup.surely_patches
                    usual = setup.usual in ("O2", "O3")
                    if apart and (usual or (not given and self._left_out(setup, model))):  # only O1 reached what is run
                        usually += [(setup, way, False)] if not usual else []
                        only_o1 = True
                    elif (apart and fresh) or perhaps:
                        anew = "runs" if apart and fresh else anew or "may run"
                        another_way.append(self.on(setup, way))
                    elif not direct and not setup.surely_patches:
                        sure = False
                    if given and not other and not perhaps:
                        prepared.append(self.on(setup, way))
                    parts.append((setup, way, only_o1))
                    reached.append((setup, way, only_o1 or other))
        came = [self.before.predicates.given(chain), disjunction(another_way), negation(disjunction(prepared))]
        if anew and prepared and example(conjunction(came)) is None:
            anew = ""  # a set-up of its own is given what is made anew
        for setup in self.staying:  # a program beside this one, which stays with Apex
            if any(self.follows(way, chain, True) for way in self.before.chains.to(setup.module, setup.call)):
                sure = False
        own = self.own_region(chain)

        def any_of(came: list[_Way], stops: bool) -> Formula:
            at_o1 = [self._is_o1(setup, way) if only_o1 or compiled else True for setup, way, only_o1 in came]
            levels = map(negation, at_o1) if compiled else at_o1
            on = [conjunction([self.on(s, w, stops), cast if s.usually_patches else True]) for s, w, _ in came]
            return disjunction([*(conjunction(both) for both in zip(on, levels, strict=True)), own])

        usual_half = any_of([*parts, *usually], False) if usually else None
        going, going_reached = any_of(parts, False), any_of(reached, False)
        return Was(any_of(parts, True), sure, anew, usual_half, any_of(reached, True), going, going_reached)

    def _given(self, setup: SetUp, ways: tuple[Chain, ...], model: frozenset[Identity], chain: Chain) -> bool:
        """Whether a set-up may be given a model that a way runs: what an object of one class keeps is not what one of a class
        beside it does."""
        if not model & self.models[setup]:
            return False
        ran = self.before.chains.objects(chain)
        if ran is None or not ways:
            return True
        for way in ways:
            prepared = self.before.chains.objects(way)
            if prepared is None or not prepared.isdisjoint(ran):
                return True
            if way.start.function is chain.start.function and way.start.module is chain.start.module:
                return True  # which may hand one model to both
        return False

    def _left_out(self, setup: SetUp, model: frozenset[Identity]) -> bool:
        """Whether a set-up is seen not to be given a model that another one is: under another flag, it stays in float32."""
        given = [set(self._objects(setup.module, m)) for m in setup.models]
        return bool(model & self.initialized) and all(i and all(isinstance(n[0], ast.Call) for n in i) for i in given)

    def made_before(self, module: Module, node: ast.AST) -> bool:
        """Whether every way to a place of the program before is one that no set-up has come before."""
        return self.precedes(module, node, ((s.module, s.call) for s in self.around_of(module)))

    def precedes(self, module: Module, node: ast.AST, calls: Iterable[tuple[Module, ast.Call]]) -> bool:
        """Whether every way to a place of the program before is one that none of some calls has come before."""
        ways = self.before.chains.to(module, node)
        others = [w for m, c in calls for w in self.before.chains.to(m, c)]
        return bool(ways and others) and all(self.follows(o, way, False) is False for o in others for way in ways)

    def _constructed(self, ways: tuple[Chain, ...], chain: Chain) -> Chain | None:
        """The part of a way to a set-up that the constructor of an object goes, one of whose methods another way comes by, where
        no call is seen to make the object in that run: `agents[name](...).train()`."""
        if any(comes_after(chain, way) is not None for way in ways):
            return None
        for step in reversed(chain.steps):
            owner = step.function.owner if step.function is not None else None
            if owner is None or step.function is None or step.function.name == "__init__":
                continue
            begun = self.before.program.constructors(owner)
            for way in ways:
                for place, made in enumerate(way.steps):
                    if made.function in begun:
                        return way.part(place)
        return None

    @cached_property
    def _starts(self) -> Starts:
        return starts(self)

    @cached_property
    def compiled(self) -> Compiled:
        return Compiled(self)

    def seen(self, model: frozenset[Identity]) -> bool:
        """Whether a model is seen to be made, and not around one that a set-up was given."""
        return bool(model) and all(isinstance(i[0], ast.Call) for i in model) and not model & self.around

    @kept
    def on_near(self, module: Module) -> list[Formula]:
        """The conditions under which some way comes to a set-up of the programs that a file is part of."""
        return [self.on(s, w) for s in self.near_setups(module) for w in self.before.chains.to(s.module, s.call)]

    @cached_property
    def levels_asked(self) -> Formula:
        """What holds in every run of levels that are constants of other places, or choices of an option, without O0; of
        what the program takes no more."""
        parts = [refused(self.review.changes.values())]
        for setup in self.removed:
            level = asked_level(self.before.values, setup.module, setup.call) if setup.name == INITIALIZE else None
            if level is None or isinstance(level, ast.Constant) or not setup.known or "O0" in setup.levels:
                continue
            parts += [
                self.compared_level(level, ast.NotEq(), "O0", way)
                for way in self.before.chains.to(setup.module, setup.call)
            ]
        return conjunction(parts)

    def _is_o1(self, setup: SetUp, way: Chain) -> Formula:
        level = asked_level(self.before.values, setup.module, setup.call)
        if level is None or isinstance(level, ast.Constant):
            return setup.patches
        return self.compared_level(level, ast.Eq(), "O1", way)

    def own_region(self, chain: Chain) -> Formula:
        """A region of the program's own, which stood there before."""
        return self.before.in_region(chain)

    def follows(self, setup: Chain, chain: Chain, direct: bool, made: frozenset[Class] = frozenset()) -> bool | None:
        """Whether a way comes after a set-up in one process; None where that cannot be told. `made`: classes that make others."""
        on_the_way = {s.node for s in chain.steps}
        if any(s.begins_process and s.node not in on_the_way for s in setup.steps):
            return False
        if of_two_classes(self.before.chains, setup, chain):
            return False
        after = comes_after(chain, setup)
        if after is not None:
            return after
        if setup.start.function is chain.start.function and setup.start.module is chain.start.module:
            return True
        if setup.command:  # another command, or what loads the file: the set-up is not on its way
            return None if chain.open else False
        if not chain.open and not setup.open:  # two scripts, or a script and what it imports
            if self.before.chains.as_script(setup.start):
                return False
            return None if setup.start.module in self.nearness.imports[chain.start.module] else False
        if setup.open and not chain.open:
            if of_one_class(self.before.program, setup, chain):
                return None  # `trainer.train()` and `trainer.test()`, where the first is not seen to be called
            own = setup.start.module is chain.start.module
            if not own and setup.start.module not in self.nearness.imports[chain.start.module]:
                return False  # another script's function: it is not there in this process
            return None if direct else False
        owner = chain.start.function.owner if chain.start.function is not None else None
        if owner is not None:
            on = self.before.chains.called_on(chain)[0]
            program = self.before.program
            family = {u for c in on.classes for u in program.family_up(c)} if on and on.own else program.family(owner)
            for step in setup.steps:
                if step.function is not None and step.function.owner in family:
                    making = chain.start.function is not None and chain.start.function.name == "__init__"
                    if making and step.function.name != "__init__":
                        return False  # an object is made before any of its methods runs
                    return True if step.function.name in ("__init__", "setup", "build") or direct else None
            ways = self.before.chains.made_for_libraries(owner) if owner not in made else ()
            return any(self.follows(setup, w, direct, made | {owner}) for w in ways) or None
        return None

    # -- after -------------------------------------------------------------------------------------------------------

    def in_region(self, chain: Chain) -> Formula:
        """Under which condition a way of the program after runs under autocast."""
        return self.after.in_region(chain)

    def ways(self, forward: Forward) -> list[tuple[Chain, Chain]]:
        """The ways to where a forward of the program before stands now, each as it went before. One whose branch went, because
        both branches of a test are one now, runs where the other branch's stands."""
        place = self.now(forward.module, forward.call)
        if place is not None:
            chains = self.after.chains.to(*place)
            return [(chain, old) for chain in chains if (old := self.chain_before(chain)) is not None]
        other = self._other_branch(forward)
        return [(now, old.ending(forward.call)) for now, old in self.ways(other)] if other is not None else []

    @kept
    def joined(self, module: Module) -> dict[ast.Call, list[Forward]]:
        """The forwards of a file before whose branch went so, by the call after that runs in their place."""
        found: dict[ast.Call, list[Forward]] = {}
        for forward in self.before.forwards.of(module):
            gone = self.now(module, forward.call) is None
            other = self._other_branch(forward) if gone else None
            place = self.now(module, other.call) if other is not None else None
            if place is not None:
                found.setdefault(place[1], []).append(forward)
        return found

    def _other_branch(self, forward: Forward) -> Forward | None:
        """The forward that is written alike in the other branch of a test, and is still there."""
        module, tests = forward.module, self.before.chains.tests(forward.module, forward.call)
        for other in self.before.forwards.of(module) if tests else ():
            if other.text == forward.text and other.scope is forward.scope and self.now(module, other.call) is not None:
                if any((t, not came) in tests for t, came in self.before.chains.tests(module, other.call)):
                    return other
        return None

    @cached_property
    def running(self) -> dict[ast.Call, Forward]:
        """The calls of the program after that run an initialized model."""
        found: dict[ast.Call, Forward] = {}
        for forward, model in self.forwards_before():
            if model & self.initialized_around(forward.module):
                place = self.now(forward.module, forward.call)
                if place is not None:
                    module, call = place
                    twin = self.after.forwards.at(module, call)
                    found[call] = twin or _as_before(forward, module, call)
        return found

    def in_written_regions(self, module: Module) -> Iterator[tuple[Forward, Region, Function | None]]:
        """The calls of models in a file after that stand in a region which the migration wrote; with the function around."""
        for forward in self.after.forwards.of(module) if "autocast" in module.text else ():
            region = self.after.regions.nearest(module, forward.call)
            if region is not None and not region.off and self.written(region):
                yield forward, region, module.function_around(forward.call)

    def written(self, region: Region) -> bool:
        """Whether the migration wrote a region: none of the program's own, under a name that torch gives it now."""
        change = self.review.changes.get(region.module.path)
        if change is None or not change.changed(region.call):
            return False
        was = change.was(region.module.statement(region.call))
        return was is None or not any(
            "autocast" in syntax.text(n) for n in syntax.own_line(was) if isinstance(n, ast.expr)
        )

    # -- forwards ----------------------------------------------------------------------------------------------------

    def forwards_before(self) -> Iterator[tuple[Forward, frozenset[Identity]]]:
        """The forwards of the program before that may be of an initialized model, with what that may be."""
        seen: set[Forward] = set()
        for forward in self.before.forwards.among(self.start | self.before.forwards.taken.names):
            if self.before.forwards.no_network(forward):
                continue
            found = self.before.forwards.identities(forward) or self.itself(forward)
            whole = forward.model.value if isinstance(forward.model, ast.Attribute) else None
            if (
                isinstance(whole, (ast.Name, ast.Attribute)) and not found & self.initialized
            ):  # `model.encoder(x)`: a part
                if not self.before.program.is_self(forward.scope, whole):
                    found |= identities(self.review.values_before, forward.scope, whole) & self.initialized
                    if found & self.initialized and idle(self.before.forwards, forward):
                        seen.add(forward)
                        continue
            seen.add(forward)
            yield forward, found if found & self.initialized else found | self.pieces.given(forward)
        for module in self.near:
            taken = (f for f in self.before.forwards.of(module) if f not in seen and self.pieces.given(f))
            yield from ((f, self.pieces.given(f)) for f in taken if not self.before.forwards.chosen(f))
            yield from ((own, self.itself(own)) for own in self.before.own_calls.of(module))

    @cached_property
    def by_hand(self) -> ByHand:
        return ByHand(self.after.forwards)

    @cached_property
    def pieces(self) -> Pieces:
        return Pieces(self)

    @cached_property
    def network_names(self) -> set[str]:
        """Of networks, in the files of the programs that change."""
        return network_names(self.near)


def _as_before(forward: Forward, module: Module, call: ast.Call) -> Forward:
    """A forward that only the set-up made one: `self.net(x)`, where a class out of sight makes the net."""
    model = call.func.value if forward.method is not None and isinstance(call.func, ast.Attribute) else call.func
    return Forward(module, call, call.args[0] if forward.method == "data_parallel" else model, forward.method)


@kept
def mixed(review: Review) -> Mixed:
    """The two sides of a review, made once for all checks."""
    return Mixed(review)
