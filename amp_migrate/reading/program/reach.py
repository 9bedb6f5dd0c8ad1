"""What slots lead to, by way of others: a search that is made many times over the same flows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.reading.program.lookup import Slot

Guard = Collection["ClassInfo | None"]


class Reach:
    """The slots by number, each with the numbers of those that follow: fields of fields are slots in slots, and dear to hash.

    `further`: what follows a slot; `guard`: by whose methods alone a value goes from one to the next, if that is so.
    """

    def __init__(
        self, further: Callable[[Slot], Iterable[Slot]], guard: Callable[[Slot, Slot], Guard | None] | None = None
    ) -> None:
        self._further, self._guard = further, guard
        self._numbers: dict[Slot, int] = {}
        self._slots: list[Slot] = []
        self._after: list[tuple[int, ...] | None] = []
        self._guards: dict[tuple[int, int], Guard] = {}

    def of(
        self, starts: Iterable[Slot], besides: Collection[ClassInfo] = (), but: Callable[[Slot], bool] | None = None
    ) -> Iterator[Slot]:
        """The slots given and all that follow, the nearest first; not by methods of the classes `besides`, nor slots that are
        left out with `but`."""
        found = list(dict.fromkeys(map(self._number, starts)))
        seen, barred = set(found), {*besides}
        for number in found:
            yield self._slots[number]
            after = self._after[number]
            for more in after if after is not None else self._follow(number):
                if more in seen:
                    continue
                if barred and (guard := self._guards.get((number, more))) is not None and barred.issuperset(guard):
                    continue
                if but is None or not but(self._slots[more]):
                    seen.add(more)
                    found.append(more)

    def _number(self, slot: Slot) -> int:
        number = self._numbers.get(slot)
        if number is None:
            number = self._numbers[slot] = len(self._slots)
            self._slots.append(slot)
            self._after.append(None)
        return number

    def _follow(self, number: int) -> tuple[int, ...]:
        slot = self._slots[number]
        after: list[int] = []
        for target in dict.fromkeys(self._further(slot)):
            after.append(self._number(target))
            guard = self._guard(slot, target) if self._guard is not None else None
            if guard is not None:
                self._guards[number, after[-1]] = guard
        self._after[number] = tuple(after)
        return tuple(after)
