"""A new parameter is told of in the docstring, where that tells of the others, and in its manner."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from amp_migrate.reading.program.definitions import Function
from amp_migrate.rules.migration import Migration
from amp_migrate.writing.edits import Edits

# An entry of a docstring for a parameter: `:param optimizer: ...`, `optimizer (Optimizer): ...`, `optimizer : Optimizer`.
ENTRY = re.compile(
    r"(?P<indent>[ \t]*)(?P<mark>:param(?: [\w.]+)? |@param |[-*] )?(?P<quote>`*)(?P<name>\w+)(?P=quote)(?P<rest>.*)$"
)


@dataclass(frozen=True)
class Told:
    """What a docstring says of a parameter: where types have a place of their own, and where they have none."""

    type: str
    text: str
    whole: str


USERS = Told(
    "torch.amp.GradScaler, optional",
    "of a caller that trains in mixed precision; float32 without one",
    "torch.amp.GradScaler of a caller that trains in mixed precision; float32 without one",
)
KEPT = Told(
    "torch.amp.GradScaler, optional",
    "whose state is saved or loaded; a disabled one, which has none, without it",
    "torch.amp.GradScaler whose state is saved or loaded; a disabled one, which has none, without it",
)
SCALER = Told(
    "torch.amp.GradScaler",
    "the loss scaler, disabled without mixed precision",
    "the torch.amp.GradScaler, disabled without mixed precision",
)
ALWAYS_ON = Told("torch.amp.GradScaler", "the loss scaler", "the torch.amp.GradScaler")
SWITCH = Told("bool, optional", "whether to run under autocast", "whether to run under autocast")


def document(m: Migration, function: Function, name: str, told: Told, before: str | None = None, old: str = "") -> None:
    """Tell of a parameter below the one that it follows in the signature (`before`), else below the last that the docstring
    of the function or of its class lists; in place of the one that it takes the place of (`old`)."""
    module, edits = function.module, m.edit(function.module)
    for node in (function.node, *([function.cls.node] if function.cls is not None else [])):
        docstring = docstring_of(node)
        if docstring is None:
            continue
        written = edits.expressions.get(docstring)
        lines = (written if isinstance(written, str) else module.source(docstring)).split("\n")
        found = {e["name"]: (i, e) for i, line in enumerate(lines) if (e := _entry_in(line, function)) is not None}
        if not found:
            continue
        like = next(iter(found.values()))[1]
        at, last = found.get(old) or found.get(before or "") or [*found.values()][-1]
        end = _end_of(lines, at, last)
        if end == len(lines):  # the closing quotes stand on its line
            continue
        new = _entry(like, name, told, lines[at + 1 : end])
        edits.replace(docstring, "\n".join([*lines[: at if old in found else end], *new, *lines[end:]]))
        return


def forget(function: Function, edits: Edits, name: str) -> None:
    """Take what is told of a parameter out of the docstring of a function."""
    docstring = docstring_of(function.node)
    if docstring is None:
        return
    written = edits.expressions.get(docstring)
    lines = (written if isinstance(written, str) else function.module.source(docstring)).split("\n")
    for at, line in enumerate(lines):
        entry = _entry_in(line, function)
        if entry is not None and entry["name"] == name and 0 < at < len(lines) - 1:
            end = _end_of(lines, at, entry)
            if end < len(lines):
                edits.replace(docstring, "\n".join([*lines[:at], *lines[end:]]))
            return


def _end_of(lines: list[str], at: int, entry: re.Match[str]) -> int:
    """Where an entry that begins at a line ends."""
    end = at + 1
    while end < len(lines) and (_continues(lines[end], entry) or f":type {entry['name']}:" in lines[end]):
        end += 1
    return end


def docstring_of(node: ast.AST) -> ast.Constant | None:
    """The docstring of a function or class."""
    body = getattr(node, "body", [])
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        return body[0].value if isinstance(body[0].value.value, str) else None
    return None


def _entry_in(line: str, function: Function) -> re.Match[str] | None:
    """The entry that a line begins, if it is one of the function's parameters."""
    entry = ENTRY.match(line)
    if entry is None or entry["name"] not in function.scope.params:
        return None
    return entry if entry["mark"] or entry["rest"].lstrip().startswith((":", "(")) else None


def _continues(line: str, entry: re.Match[str]) -> bool:
    return bool(line.strip()) and _indent(line) > len(entry["indent"].expandtabs())


def _entry(like: re.Match[str], name: str, told: Told, more: list[str]) -> list[str]:
    head = f"{like['indent']}{re.sub(r' .+ $', ' ', like['mark'] or '')}{like['quote']}{name}{like['quote']}"
    rest = like["rest"].lstrip()
    if rest.startswith("("):
        return [f"{head} ({told.type}): {told.text}"]
    if like["mark"] or (rest.startswith(":") and not like["rest"].startswith(" ")) or not more:
        return [f"{head}{' ' if like['rest'].startswith(' ') else ''}: {told.whole}"]
    inner = more[0][: len(more[0]) - len(more[0].lstrip())]
    return [f"{head} : {told.type}", f"{inner}{told.text}"]


def _indent(line: str) -> int:
    line = line.expandtabs()
    return len(line) - len(line.lstrip())
