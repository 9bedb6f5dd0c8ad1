"""Parameters, or arguments of a call, that go: which text goes with them, commas among it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from amp_migrate.writing.edits import Edits
from amp_migrate.writing.parameters import in_signature_order
from amp_migrate.writing.parts import Position, after_parentheses, source_between

# An item of a list in parentheses: its node, and what it ends with (the default of a parameter).
Item = tuple[ast.arg | ast.expr | ast.keyword, ast.AST]

_SPACE = r"(?:\s|\\[\r\n])*"
_COMMA = re.compile(f"{_SPACE},{_SPACE}")
_CLOSED = re.compile(rf"{_SPACE}\)")


@dataclass(frozen=True)
class Dropped:
    """How items are taken out of a list: positions between which the text goes, and items in whose place others come."""

    edits: Edits
    cuts: dict[ast.AST, tuple[Position, Position]] = field(default_factory=dict)
    replaced: dict[ast.AST, str] = field(default_factory=dict)

    def carry_out(self) -> None:
        for node, text in self.replaced.items():
            self.edits.insertions.pop(node)
            self.edits.expressions[node] = text
        self.edits.cuts.update(self.cuts)


def dropped(edits: Edits, items: Sequence[Item], going: Collection[ast.AST]) -> Dropped | None:
    """How items are taken out of a list, while what was to be put behind one stays; None where that cannot be done: with a
    comment, a star or parentheses of its own beside one."""
    done = Dropped(edits)
    leading = True
    for index, (node, last) in enumerate(items):
        if node not in going:
            leading = False
            continue
        if node in edits.expressions or last in edits.expressions:
            return None
        begin, end = edits.start(node), after_parentheses(edits.module, last)
        added = [insertion for n in {node, last} for insertion in edits.insertions.get(n, ())]
        if leading and added:
            if last is not node or not all(isinstance(code, str) for _, code in added):
                return None
            texts = in_signature_order([str(code) for _, code in added])
            done.replaced[node] = re.sub(r"^\s*,\s*|\s*,\s*$", "", "".join(texts))
            leading = False
            continue
        if not leading:
            if any(where == "before" for where, _ in added):
                return None
            begin = after_parentheses(edits.module, items[index - 1][1])
            apart = _COMMA.fullmatch(source_between(edits.module, begin, edits.start(node)))
        elif index + 1 < len(items):
            end = edits.start(items[index + 1][0])
            apart = _COMMA.fullmatch(source_between(edits.module, after_parentheses(edits.module, last), end))
        else:
            apart = _CLOSED.match(_rest(edits, end))
        following = next((edits.start(n) for n, _ in items[index + 1 :] if n not in going), None)
        beside = source_between(edits.module, end, following) if following is not None else _rest(edits, end)
        if apart is None or "#" in beside:
            return None
        done.cuts[node] = begin, end
    return done


def _rest(edits: Edits, start: Position) -> str:
    """What is left of a line, with those that it goes on in behind a backslash."""
    number, column = start
    lines = edits.module.lines
    text = lines[number - 1][column:]
    while text.rstrip(b"\r\n").endswith(b"\\") and number < len(lines):
        text += lines[number]
        number += 1
    return text.decode()
