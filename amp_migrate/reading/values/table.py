"""One table of what questions about values came to: each is answered once, whatever asks it and in whatever order.

A rule says what the answer to a question includes: values, and the answers of other questions. Questions that include
each other share one answer, so that one pass over what is reached (strongly connected components, those first that wait
for nothing) gives the least answers that fit all of them. What hangs on more than can be asked in a few seconds stays
unknown, and so does what waits for it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from amp_migrate.reading.program.module import Module

Kind = Literal[
    "constant",
    "bool",
    "call",
    "item",
    "class",
    "instance",
    "function",
    "named",
    "option",
    "parameter",
    "computed",
    "unknown",
]
Path = tuple[str | int | None, ...]  # keys and places of the items that are asked for, the outermost first; None: any

SETTING = "a setting"
UNSEEN = ("unknown", "parameter", "call", "item", "named")
BESIDE = "beside what is seen"
MOST = 150  # values of one answer; of more, nothing is said
ASKED = 50_000  # questions that one answer may hang on: the longest way through a program of 700 files asked 7,000
LEAST = 1_000  # of a program where some hung on more: those that do are asked for again and again


class Value(NamedTuple):
    """What an expression may be. `node` is: the constant; the call that made it, or what it is an item of; the
    definition of the class (also of an instance) or function; what a dotted name outside of the program was written as
    (`name`); the `add_argument` of a command line's option; a parameter that no call in sight gives; an expression that
    computes; an annotation or default that tells of a `bool` which is not seen; of what is unknown, where that shows,
    with `name` saying why: `BESIDE` is what may be besides all that the program says. A constant is a `SETTING` by name
    where it stands in a mapping or a class, or is what a parameter is given: for people to change."""

    kind: Kind
    module: Module
    node: ast.AST
    name: str = ""
    path: Path = ()  # of an item: where it is in what the call gives

    @property
    def constant(self) -> object:
        """The value itself, of a constant; Ellipsis of what is none."""
        return self.node.value if self.kind == "constant" and isinstance(self.node, ast.Constant) else ...

    @property
    def place(self) -> tuple[str, int, int]:
        """Where it stands, to be told in the order of the files."""
        return self.module.display, getattr(self.node, "lineno", 0), getattr(self.node, "col_offset", 0)


class Question(NamedTuple):
    """What is asked: a rule's name, and what it is asked about."""

    rule: str
    about: tuple[object, ...]


Part = Value | Question
Asked = Callable[[Module, ast.expr, Path], Part]  # asks for an expression, or the item of it at a path
Answer = frozenset[Value]


def typed(module: Module, teller: ast.expr | None, parts: Sequence[Part]) -> Sequence[Part]:
    """What is included; where that is not seen a bool, if an annotation or a default says so."""
    says = isinstance(teller, ast.Name) and teller.id == "bool"
    if teller is not None and (says or (isinstance(teller, ast.Constant) and isinstance(teller.value, bool))):
        return [Question("instead", (part, UNSEEN, Value("bool", module, teller))) for part in parts]
    return parts


def setting(part: Part) -> Part:
    """What is included, as something that people may change."""
    return part._replace(name=SETTING) if isinstance(part, Value) and part.kind == "constant" else part


class Table:
    """Answers by question. `includes` opens one; `keeps` says what of the values a question includes it leaves out; `unknown`
    is the answer to what hangs on too much."""

    def __init__(
        self,
        includes: Callable[[Question], Sequence[Part]],
        keeps: Callable[[Question, Answer], Answer],
        unknown: Value,
    ) -> None:
        self._unknown = unknown
        self._limit = ASKED
        self._includes = includes
        self._keeps = keeps
        self._known: dict[Question, Answer] = {}

    def answer(self, part: Part) -> Answer:
        if isinstance(part, Value):
            return frozenset((part,))
        if part not in self._known:
            self._solve(part)
        return self._known[part]

    def _solve(self, root: Question) -> None:
        low: dict[Question, int] = {}
        parts: dict[Question, Sequence[Part]] = {}
        waiting: list[Question] = []  # opened and not answered
        path: list[tuple[Question, Iterator[Part], int, int]] = []

        def opened(question: Question) -> None:
            number = low[question] = len(low)
            parts[question] = self._includes(question)
            path.append((question, iter(parts[question]), number, len(waiting)))
            waiting.append(question)

        opened(root)
        while path:
            at, rest, number, start = path[-1]
            for part in rest:
                if isinstance(part, Value) or part in self._known:
                    continue
                if part not in low:
                    if len(low) >= self._limit:
                        self._give_up(waiting)
                        return
                    opened(part)
                    break
                low[at] = min(low[at], low[part])
            else:
                path.pop()
                if low[at] < number:
                    low[path[-1][0]] = min(low[path[-1][0]], low[at])
                    continue
                self._share(waiting[start:], parts)
                del waiting[start:]

    def _give_up(self, waiting: Sequence[Question]) -> None:
        """Leave what is open unknown: asked again, it would come to the same."""
        self._known.update(dict.fromkeys(waiting, frozenset((self._unknown,))))
        self._limit = max(self._limit // 4, min(self._limit, LEAST))

    def _share(self, group: Sequence[Question], parts: dict[Question, Sequence[Part]]) -> None:
        """Give questions that include each other the answer that all of them have."""
        found: set[Value] = set()
        for question in group:
            for part in parts[question]:
                if isinstance(part, Value):
                    found.add(part)
                else:
                    found |= self._known.get(part, frozenset())  # not yet: it is of the group
        if len(found) > MOST:
            one = min(found, key=lambda v: (v.module.display, getattr(v.node, "lineno", 0), v.kind))
            found = {Value("unknown", one.module, one.node, "it may be too many things")}
        answer = frozenset(found)
        for question in group:
            self._known[question] = self._keeps(question, answer) if len(group) == 1 else answer
