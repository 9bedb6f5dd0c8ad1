"""Parameters, and arguments of calls, that edits add in one place, each without knowing of the others.

Python asks for an order of parameters: those without a default, those with one, then those that are passed by name alone,
behind one star that all of them share.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Literal

from amp_migrate.reading.program.module import Module

# Beside a node, or between the parentheses that are its own and hold nothing else.
Where = Literal["before", "after", "within"]

# One more of a list: its comma, the star of parameters that are passed by name alone, and itself.
_ADDED = re.compile(r"(,\s*)(\*,\s*)?(\w.*)", re.DOTALL)


def in_order(module: Module, node: ast.AST, given: list[tuple[Where, str]]) -> list[tuple[Where, str]]:
    """What is put beside a node, or into it, as it can stand there."""
    if given[0][0] == "within":
        texts = in_signature_order([text for _, text in given])
        texts[0] = texts[0].lstrip(", ")
        more = isinstance(node, ast.arguments) and node.kwarg is not None
        return [("within", text) for text in (*texts, *([", "] if more else []))]
    if not isinstance(module.parents.get(node), ast.arguments):
        return given
    after = in_signature_order([text for where, text in given if where == "after"])
    return [*((where, text) for where, text in given if where == "before"), *(("after", text) for text in after)]


def in_signature_order(texts: Sequence[str]) -> list[str]:
    """What is put after a part of a signature: text that belongs to that part, then the parameters."""
    parts = [(text, _ADDED.fullmatch(text)) for text in dict.fromkeys(texts)]
    own = [text for text, added in parts if added is None]
    placed = [added for _, added in parts if added is not None and not added[2]]
    named = [added for _, added in parts if added is not None and added[2]]
    ordered = [added[0] for added in sorted(placed, key=lambda added: "=" in added[3])]
    return own + ordered + [added[0] if i == 0 else added[1] + added[3] for i, added in enumerate(named)]
