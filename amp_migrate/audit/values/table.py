"""One table of what all questions about values came to: each is asked once, whatever asks it and in whatever order.

A question says what its answer includes: origins, and the answers of other questions. Questions that include each other
share an answer, so that the least one that fits all of them is found in one pass over what is reached (strongly connected
components, those first that depend on nothing unanswered). What a question includes may hang on what others came to
(`Step.watch`): they are answered before it, and where one of them waits for it in turn, nothing is known of that one.

What hangs on more questions than can be asked in a minute is unknown, and so is what waits for it: items of items that many
classes hand to one another make questions without an end in sight. They are counted, so that each run gives up on the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from amp_migrate.audit.values.origins import Origin

MOST = 200  # origins of one answer; of more, these and that there are others
ASKED = 500_000  # questions that one answer may hang on: the longest way through a measured program asked 236,000
LEAST = 5_000  # of a program where some hung on more: those that do are asked for again and again


class Question(NamedTuple):
    """Where something may come from."""

    rule: str
    about: tuple[object, ...]


Part = Origin | Question
Answer = frozenset[Origin]


@dataclass
class Step:
    """What the answer to a question includes."""

    parts: Sequence[Part]
    otherwise: Origin | None = None  # where there is nothing else
    watch: Sequence[Part] = ()
    then: Callable[[list[Answer | None]], Sequence[Part]] | None = None  # what it includes, now that these are known


@dataclass
class _Open:
    """A question that is being answered."""

    question: Question
    step: Step
    number: int
    todo: Iterator[Part]
    low: int = 0
    included: list[Question] = field(default_factory=list)
    own: list[Origin] = field(default_factory=list)
    phase: int = 0


class Table:
    """Answers by question; `rule` opens one, `lost` is what is known of one that hangs on too much. `gave_up`: whether one did."""

    def __init__(self, rule: Callable[[Question], Step], lost: Callable[[Question, Question], Origin]) -> None:
        self._rule = rule
        self._lost = lost
        self._limit = ASKED
        self.gave_up = False
        self._known: dict[Question, Answer] = {}
        self._unions: dict[frozenset[int], Answer] = {}  # of several answers, by what they are
        self._places: dict[Origin, tuple[str, int, int, str, str, str]] = {}  # where origins stand that were sorted

    def answer(self, part: Part) -> Answer:
        if isinstance(part, Origin):
            return frozenset((part,))
        found = self._known.get(part)
        if found is None:
            self._solve(part)
            found = self._known[part]
        return found

    def _solve(self, root: Question) -> None:
        waiting: dict[Question, _Open] = {}  # opened and not answered, in this order
        path = [self._open(root, waiting)]
        left = self._limit
        while path:
            at = path[-1]
            further = self._further(at, waiting)
            if further is not None:
                left -= 1
                if not left:
                    self._give_up(root, waiting)
                    return
                path.append(self._open(further, waiting))
                continue
            path.pop()
            if at.low < at.number:
                path[-1].low = min(path[-1].low, at.low)
                continue
            group: list[_Open] = []
            while not group or group[-1] is not at:
                group.append(waiting.popitem()[1])
            self._close(group)

    def _give_up(self, root: Question, waiting: Iterable[Question]) -> None:
        """Leave what is open unknown: asked again, it would come to the same."""
        self._known.update((question, frozenset((self._lost(question, root),))) for question in waiting)
        self._limit = max(self._limit // 4, min(self._limit, LEAST))
        self.gave_up = True

    def _open(self, question: Question, waiting: dict[Question, _Open]) -> _Open:
        step = self._rule(question)
        number = len(waiting)
        made = waiting[question] = _Open(question, step, number, iter(step.watch), number)
        return made

    def _further(self, at: _Open, waiting: dict[Question, _Open]) -> Question | None:
        """The next question that has to be answered first: those watched, then those included."""
        while at.phase < 3:
            for part in at.todo:
                if isinstance(part, Origin):
                    if at.phase:
                        at.own.append(part)
                    continue
                if at.phase:
                    at.included.append(part)
                if part in self._known:
                    continue
                if part not in waiting:
                    return part
                at.low = min(at.low, waiting[part].low)
            at.phase += 1
            if at.phase == 1:
                at.todo = iter(at.step.parts)
            elif at.phase == 2 and at.step.then is not None:
                so_far = (self._known.get(p) if isinstance(p, Question) else frozenset((p,)) for p in at.step.watch)
                at.todo = iter(at.step.then([*so_far]))
        return None

    def _close(self, group: list[_Open]) -> None:
        """Answer questions that depend on each other."""
        if len(group) == 1 or not any(at.step.watch for at in group):
            self._share(group)
            return
        for including in _components({at.question: at for at in group}):  # others only watch one another
            self._share(including)

    def _share(self, group: Sequence[_Open]) -> None:
        """Give questions that include each other the answer that all of them have."""
        inside = {at.question for at in group}
        answers = {id(a): a for at in group for q in at.included if q not in inside and (a := self._known[q])}
        own = [o for at in group for o in at.own]
        if own or not answers:
            found = self._cut(frozenset(own).union(*answers.values()))
        elif len(answers) == 1:
            found = next(iter(answers.values()))
        else:  # many questions include the same answers
            same = frozenset(answers)
            if same not in self._unions:
                self._unions[same] = self._cut(frozenset().union(*answers.values()))
            found = self._unions[same]
        if not found:
            found = frozenset(at.step.otherwise for at in group if at.step.otherwise is not None)
        self._known.update(dict.fromkeys(inside, found))

    def _cut(self, found: Answer) -> Answer:
        """Of too many origins the first, and that there are others."""
        if len(found) <= MOST:
            return found
        places = self._places
        places |= {origin: _place(origin) for origin in found if origin not in places}
        by_place = sorted(found, key=places.__getitem__)
        last = by_place[MOST]
        return frozenset([*by_place[:MOST], Origin(last.module, last.node, "unknown", last.path)])


def _components(group: dict[Question, _Open]) -> Iterator[list[_Open]]:
    """Those of a group that include each other; first those that include nothing further."""
    number: dict[Question, int] = {}
    low: dict[Question, int] = {}
    waiting: list[Question] = []
    done: set[Question] = set()

    def opened(question: Question) -> tuple[Question, Iterator[Question]]:
        number[question] = low[question] = len(number)
        waiting.append(question)
        return question, iter(group[question].included)

    for root in group:
        path = [opened(root)] if root not in number else []
        while path:
            at, rest = path[-1]
            further = next((q for q in rest if q in group and q not in done), None)
            if further is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[at])
                if low[at] == number[at]:
                    component = [waiting.pop()]
                    while component[-1] is not at:
                        component.append(waiting.pop())
                    done.update(component)
                    yield [group[q] for q in reversed(component)]
            elif further in number:
                low[at] = min(low[at], number[further])
            else:
                path.append(opened(further))


def _place(origin: Origin) -> tuple[str, int, int, str, str, str]:
    node = origin.node
    at = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    return (origin.module.path, *at, type(node).__name__, origin.kind, repr(origin.path))
