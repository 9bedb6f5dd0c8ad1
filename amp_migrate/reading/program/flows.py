"""Who calls whom in a program and where values go, as it is asked once all of that is read."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar

from amp_migrate.reading.program.definitions import ClassInfo, Function
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.partials import Partials
from amp_migrate.reading.program.reach import Reach
from amp_migrate.reading.program.tree import reached

T = TypeVar("T")
MOST_KEPT = 2_000_000  # slots in the answers that are kept for who asks the same again
Way = tuple[Module, Function | None]  # a function, or with None the own code of a file


class Flows(Partials):
    """The calls and flows of a program; `Project` reads them."""

    def __init__(self, modules: Iterable[Module]) -> None:
        super().__init__(modules)
        self.calls: dict[Function, list[tuple[Module, ast.Call]]] = defaultdict(list)
        self.flows: dict[Slot, set[Slot]] = defaultdict(set)
        self._same: dict[Slot, set[Slot]] = defaultdict(set)  # where the very object goes that lives in a place
        self.read_by: dict[tuple[Slot, Slot], set[ClassInfo | None]] = defaultdict(set)  # whose methods hand a field on
        self._made: dict[tuple[Any, ...], Any] = {}
        self._settled = False  # whether it is known where values flow
        self._answers: dict[tuple[str, frozenset[Slot], frozenset[ClassInfo]], set[Slot]] = {}
        self._kept = 0  # slots in these
        self._searches: tuple[Reach, Reach] | None = None
        self._alike_then = 0

    def pass_on(self, slot: Slot, other: Slot) -> None:
        """Let what lives in a place, the very object, live in another one, too."""
        self.flows[slot].add(other)
        self._same[slot].add(other)

    def same_objects(self, slot: Slot) -> Iterable[Slot]:
        """Where the very object goes that lives in a place."""
        return self._same.get(slot, ())

    def _spread_instances(self) -> None:
        """What is made in one place is an instance of the same class wherever it goes, in whatever order files are read."""
        queue = list(self.instances)
        while queue:
            source = queue.pop()
            classes = self.instances[source]
            for target in self._same.get(source, ()):
                if self._found(target, classes):
                    queue.append(target)

    def once(self, make: Callable[..., T], *about: Module) -> T:
        """What `make` finds out about the program, or some modules of it, which does not change once it is read: made when
        first asked for."""
        key = (make, *about)
        if key not in self._made:
            self._made[key] = make(self, *about)
        found: T = self._made[key]
        return found

    def callers(self, function: Function | None) -> set[Function | Scope]:
        """A function, and the functions and module scopes from which it is called, through any number of calls."""

        def above(called: Function | Scope) -> Iterator[Function | Scope]:
            for module, call in self.calls.get(called, ()) if isinstance(called, Function) else ():
                scope = module.scope_of(call)
                if scope.is_module or scope.node in self.functions:
                    yield scope if scope.is_module else self.functions[scope.node]

        starts: list[Function | Scope] = [function] if function is not None else []
        return set(reached(starts, above))

    def way(self, module: Module, node: ast.AST) -> Way:
        return module, self.function_of(module, node)

    def ways_to(self, starts: Iterable[Way], *past: Function) -> Iterator[Way]:
        """The functions given, and all that call them, through any number of calls; with None, files whose own code does. What
        comes by way of the functions `past` is not looked at."""

        def above(way: Way) -> list[Way]:
            followed = way[1] is not None and way[1] not in past
            return [self.way(m, c) for m, c in (self.calls.get(way[1], ()) if followed else ())]  # type: ignore[arg-type]

        return reached(starts, above)

    def reaches(self, seeds: Iterable[Slot], besides: Collection[ClassInfo] = ()) -> set[Slot]:
        """All slots that may hold a value of one of the seeds; `besides`: classes whose objects hold none of them, though
        their methods read a field of the same name."""
        return self._known("to", seeds, besides, self.reached)

    def _known(
        self,
        which: str,
        seeds: Iterable[Slot],
        besides: Iterable[ClassInfo],
        find: Callable[[Collection[Slot], Collection[ClassInfo]], Iterable[Slot]],
    ) -> set[Slot]:
        """What slots lead to, or come from, found once: each unit asks the same whenever it has grown, and fields of fields
        of objects make many slots of few flows."""
        starts, but = frozenset(seeds), frozenset(besides)
        if not self._settled:
            return set(find(starts, but))
        key = (which, starts, but)
        if key not in self._answers:
            found = set(find(starts, but))
            self._kept += len(found)
            if self._kept > MOST_KEPT:
                self._answers.clear()
                self._kept = len(found)
            self._answers[key] = found
        return self._answers[key].copy()  # the caller's own, to add to

    def reached(self, seeds: Iterable[Slot], besides: Collection[ClassInfo] = ()) -> Iterator[Slot]:
        """The same one after the other, the nearest first."""
        return self._reach()[0].of(seeds, besides)

    def reached_from(self, slots: Iterable[Slot]) -> Iterator[Slot]:
        """The slots given, and all that `reaches` leads to one of them from, the nearest first."""
        return self._reach()[1].of(slots)

    def _reach(self) -> tuple[Reach, Reach]:
        """The searches along the flows and back, made anew while flows change: fields come to be alike as slots are asked for."""
        if self._searches is not None and self._alike_then == self.alike_pairs:
            return self._searches
        back = self._reverse if self._settled else {}
        searches = (
            Reach(lambda slot: self._along(self.flows, slot), lambda *way: self.read_by.get(way)),
            Reach(lambda slot: self._along(back, slot)),
        )
        if self._settled:
            self._searches, self._alike_then = searches, self.alike_pairs
        return searches

    def _along(self, flows: Mapping[Slot, set[Slot]], slot: Slot, depth: int = 3) -> Iterator[Slot]:
        """Where values go from a slot, or come from by the flows in reverse; what an object holds goes where the object goes."""
        yield from flows.get(slot, ())
        yield from self.alike.get(slot, ())
        if isinstance(slot.holder, Slot) and depth and not slot.name.startswith("#"):
            for holder in self._along(flows, slot.holder, depth - 1):
                yield Slot(holder, slot.name)

    def holding(self, word: str, gives: Callable[[Module, ast.Assign], bool]) -> set[Slot]:
        """The variables that may hold what assignments of a kind give, in files that say a word."""
        found = ((m, s) for m in self.modules if word in m.text for s in m.of(ast.Assign) if gives(m, s))
        return self.reaches({slot for module, stmt in found for slot in self.slots(module, stmt.targets)})

    def origins(
        self, slots: Iterable[Slot], besides: Collection[ClassInfo] = (), but: Callable[[Slot], bool] | None = None
    ) -> set[Slot]:
        """The slots given, and all whose value may have come to be in one of them; not by methods of the classes `besides`,
        nor by slots that are left out with `but`."""
        if but is not None:
            return set(self._sources.of(slots, besides, but))
        return self._known("from", slots, besides, self._sources.of)

    @cached_property
    def _sources(self) -> Reach:
        return Reach(lambda slot: self._reverse.get(slot, ()), lambda _, slot: (self.class_holding(slot),))

    @cached_property
    def _reverse(self) -> dict[Slot, set[Slot]]:
        found: dict[Slot, set[Slot]] = defaultdict(set)
        for source, targets in self.flows.items():
            for target in targets:
                found[target].add(source)
        return found

    def class_holding(self, slot: Slot) -> ClassInfo | None:
        """The class whose method a variable or a returned value belongs to."""
        if isinstance(slot.holder, Function):
            return slot.holder.cls
        return self.class_of(slot.holder) if isinstance(slot.holder, Scope) else None
