"""Which program is number 17? A fixture, what was done to it, and how it is written down: by its number alone."""

from __future__ import annotations

import ast
import random
from dataclasses import dataclass

from tests.fuzz import expressions, statements, wrapping
from tests.fuzz.cells import notebook
from tests.fuzz.spellings import ENCODINGS, SPELLINGS, encoded, spelled, tree
from tests.metamorphic.program import ENTRY, Fixture, Reading, names

MUTATIONS = {**statements.MUTATIONS, **wrapping.MUTATIONS, **expressions.MUTATIONS}
BY_NAME = {f"{m.__module__.rpartition('.')[2]}.{m.__name__}": m for m in MUTATIONS}
MOST = 20_000  # characters; nothing is learned from a program that doubled many times


@dataclass(frozen=True)
class Case:
    """`text` is the program after `steps`; `spelled` are the bytes of a file that means the same, in `file`."""

    number: int
    fixture: str
    text: str
    steps: tuple[str, ...]
    spelled: bytes
    spellings: tuple[str, ...]
    file: str = ENTRY


def case(number: int, fixtures: list[str] | None = None) -> Case:
    """The program of a number. The same one on every machine, as long as fixtures and mutations are the same."""
    chosen = random.Random(number)
    fixture = Fixture(chosen.choice(fixtures or names()))
    text, steps = mutated(fixture, chosen, chosen.choice((0, 1, 1, 1, 2, 2, 3)))
    if chosen.random() < 0.12:
        return Case(number, fixture.name, text, steps, notebook(text, chosen).encode(), ("notebook",), "train.ipynb")
    wanted = [name for name in SPELLINGS if chosen.random() < 0.15]
    new, spellings = spelled(text, chosen, wanted)
    encoding = chosen.choice(ENCODINGS) if chosen.random() < 0.15 else "utf-8"
    data = encoded(new, encoding)
    if data is not None and encoding != "utf-8":
        spellings.append(encoding)
    return Case(number, fixture.name, text, steps, data or new.encode(), tuple(spellings))


def mutated(fixture: Fixture, chosen: random.Random, count: int) -> tuple[str, tuple[str, ...]]:
    """The program after so many mutations, and their names. Comments and layout stay where there are none."""
    text, steps = fixture.before, []
    for _ in range(count):
        name = chosen.choices(list(BY_NAME), list(MUTATIONS.values()))[0]
        reading = Reading(ast.parse(text), fixture)
        if not BY_NAME[name](reading, chosen):
            continue
        new = reading.text()
        if tree(new) is not None and _compiles(new) and len(new) < MOST:
            text = new
            steps.append(name)
    return text, tuple(steps)


def _compiles(text: str) -> bool:
    """Some programs parse and are none all the same: `nonlocal` at the top, `return` outside of a function."""
    try:
        compile(text, "train.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True
