"""What to change in one module, addressed by `ast` nodes; carried out by `amp_migrate.writing.apply`.

Nothing here imports libcst: a file without edits never pays for it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

from amp_migrate.reading.program.logic import pure
from amp_migrate.reading.program.module import Module
from amp_migrate.writing.parameters import Where, in_order
from amp_migrate.writing.parts import (
    Position,
    after_parentheses,
    between_parentheses,
    breaks_off,
    decorator_span,
    end_of,
    open_brackets,
    sliced,
    start_of,
)
from amp_migrate.writing.watched import Watched

# Emitted code: text, with nodes of the original standing for their own (edited) source.
Code = str | tuple["str | ast.expr | ast.stmt", ...]
# Texts in code, those of several lines in three quotes alone.
_TEXTS = re.compile(r"""("{3}|'{3})[\s\S]*?\1|(["']).*?\2""")


ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


def joined(parts: Iterable[ast.expr], between: str) -> tuple[str | ast.expr | ast.stmt, ...]:
    """Expressions of the original with a text between them."""
    code: list[str | ast.expr | ast.stmt] = []
    for part in parts:
        code += [between, part] if code else [part]
    return tuple(code)


@dataclass(frozen=True)
class Wrap:
    """Put a contiguous run of statements of one block under a header (without its keyword and the colon)."""

    first: ast.stmt
    last: ast.stmt
    header: Code
    keyword: Literal["with", "if"] = "with"


@dataclass
class StatementEdit:
    """What becomes of a statement itself: gone, other statements, or the contents of one of its branches."""

    kind: Literal["delete", "replace", "splice"]
    codes: list[Code] = field(default_factory=list)
    branch: Literal["body", "orelse"] = "body"
    about_apex: bool = False  # a comment above that names Apex goes with a spliced branch


class Edits:
    """The edits of one module. Later edits of the same node win; edits inside a replaced node are ignored,
    unless the replacement quotes the node that holds them."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.expressions: Watched[ast.AST, Code] = Watched()
        self.insertions: Watched[ast.AST, list[tuple[Where, Code]]] = Watched()
        self.cuts: Watched[ast.AST, tuple[Position, Position]] = Watched()  # items of lists that go, with a comma
        self.statements: Watched[ast.stmt, StatementEdit] = Watched()
        self.before: Watched[ast.stmt, list[Code]] = Watched()
        self.after: Watched[ast.stmt, list[Code]] = Watched()
        self.comments: dict[ast.stmt, list[str]] = {}  # lines to stand above a statement
        self.moves: dict[ast.stmt, ast.stmt] = {}
        self.conditions: dict[ast.stmt, str] = {}  # moved statement -> what it then stands under
        self.wraps: list[Wrap] = []
        self._known: tuple[object, set[ast.AST], set[str]] | None = None  # what `quoted` and `emitted_names` found last

    def __bool__(self) -> bool:
        return any((*self._by_node, self.wraps, self.moves, self.comments))

    @property
    def _by_node(self) -> tuple[Mapping[Any, object], ...]:
        """The kinds of edits that are kept by the node that they are about."""
        return self.expressions, self.insertions, self.cuts, self.statements, self.before, self.after

    def contents(self) -> tuple[object, ...]:
        """All that is asked for, in order: edits of one module whose contents are equal come to the same text."""
        maps = (*self._by_node, self.comments, self.moves, self.conditions)
        return (self.module, *(tuple(m.items()) for m in maps), tuple(self.wraps))

    @property
    def lines(self) -> set[int]:
        """The lines at which something is edited."""
        nodes = (*chain(*self._by_node), *self.moves, *(w.first for w in self.wraps))
        return {n.lineno for n in nodes if hasattr(n, "lineno")}

    # -- asking for edits ----------------------------------------------------------------------------------------

    def replace(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword, *codes: Code) -> None:
        """Put code in place of an expression (one code), or statements in place of a statement."""
        if isinstance(node, ast.stmt):
            self.statements[node] = StatementEdit("replace", list(codes))
        else:
            (self.expressions[node],) = codes

    def undecorate(self, decorator: ast.expr) -> None:
        """Take a decorator off its function or class."""
        self.expressions[decorator] = ""

    def delete(self, stmt: ast.stmt) -> None:
        if stmt in self.statements:
            self.statements[stmt] = StatementEdit("delete")
        else:  # emits nothing
            dict.__setitem__(self.statements, stmt, StatementEdit("delete"))

    def deleted(self, stmt: ast.stmt) -> bool:
        """Whether a statement is deleted itself."""
        return stmt in self.statements and self.statements[stmt].kind == "delete"

    def splice(self, stmt: ast.stmt, branch: Literal["body", "orelse"] = "body", *, about_apex: bool = False) -> None:
        """Leave only the statements of one branch of a compound statement; `about_apex`: a comment above that names Apex
        speaks of the choice, and goes with it."""
        self.statements[stmt] = StatementEdit("splice", branch=branch, about_apex=about_apex)

    def fold(self, stmt: ast.If, branch: Literal["body", "orelse"], *, about_apex: bool = False) -> None:
        """Leave one branch of an `if`; nothing of it where it has no `else` to leave."""
        if branch == "body" or stmt.orelse:
            self.splice(stmt, branch, about_apex=about_apex)
        else:
            self.delete(stmt)

    def insert(self, where: Where, anchor: ast.AST, code: Code) -> None:
        """Put text directly before or after an expression, argument or parameter; or between the parentheses of a call, or of
        a function given its `args`, that hold nothing else. What is added to others, as parameters are
        (`writing/parameters.py`), begins with its comma, also where it comes first."""
        self.insertions.setdefault(anchor, []).append((where, code))

    def insert_before(self, stmt: ast.stmt, *codes: Code) -> None:
        self.before.setdefault(stmt, []).extend(codes)

    def import_torch(self, stmt: ast.stmt) -> None:
        """Put `import torch` before a statement, or below a docstring, once."""
        below = isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
        codes = (self.after if below else self.before).setdefault(stmt, [])
        if "import torch" not in codes:
            codes.insert(0, "import torch")

    def insert_after(self, stmt: ast.stmt, *codes: Code) -> None:
        self.after.setdefault(stmt, []).extend(codes)

    def move(self, stmt: ast.stmt, target: ast.stmt, condition: str = "") -> None:
        """Take a statement, with the edits inside it, to directly before a later statement; under a condition."""
        self.moves[stmt] = target
        if condition:
            self.conditions[stmt] = condition

    def wrap(self, first: ast.stmt, last: ast.stmt, header: Code, keyword: Literal["with", "if"] = "with") -> None:
        self.wraps.append(Wrap(first, last, header, keyword))

    def reword(self, texts: dict[str, str]) -> None:
        """Write other text wherever emitted text holds one of these expressions."""
        ends = (
            re.escape(t) + (r"(?![\w.(\[])" if t[-1:].isalnum() else "") for t in sorted(texts, key=len, reverse=True)
        )
        pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(ends)})")

        def said(code: Code) -> Code:
            if isinstance(code, str):
                return pattern.sub(lambda found: texts[found.group()], code)
            return tuple(said(part) if isinstance(part, str) else part for part in code)  # type: ignore[misc]

        self.expressions.update({node: said(code) for node, code in self.expressions.items()})
        for anchor, items in self.insertions.items():
            self.insertions[anchor] = [(where, said(code)) for where, code in items]
        for edit in self.statements.values():
            edit.codes = [said(code) for code in edit.codes]
        for block in (self.before, self.after):
            block.update({stmt: [said(code) for code in codes] for stmt, codes in block.items()})
        self.wraps = [replace(w, header=said(w.header)) for w in self.wraps]

    def copy(self) -> Edits:
        """The same edits, to come back to."""
        same = Edits(self.module)
        same.merge(self)
        return same

    def merge(self, other: Edits) -> None:
        """Take over the edits of another unit in the same file; what both ask for at one place is done once."""
        self.expressions.update(other.expressions)
        for anchor, items in other.insertions.items():
            there = self.insertions.setdefault(anchor, [])
            there += [item for item in items if item not in there]
        self.cuts.update(other.cuts)
        self.statements.update(other.statements)
        for mine, theirs in ((self.before, other.before), (self.after, other.after)):
            for stmt, codes in theirs.items():
                kept = mine.setdefault(stmt, [])
                kept += [code for code in codes if code not in kept]
        self.moves.update(other.moves)
        self.conditions.update(other.conditions)
        self.comments.update(other.comments)
        if other.wraps:
            new = {w.first for w in other.wraps}
            new -= {w.first for w in self.wraps if w.first in new}
            self.wraps += [w for w in other.wraps if w.first in new]

    # -- what they come to ---------------------------------------------------------------------------------------

    def gone(self, node: ast.AST) -> bool:
        """Whether a node of the original is in the result neither where it stood nor quoted elsewhere."""
        quoted = self._emitted()[0]
        child: ast.AST = node
        current: ast.AST | None = node
        while current is not None:
            if current in self.expressions:
                return not self._requoted(current, node)
            if current in self.cuts or (
                isinstance(current, ast.If) and current.test is child and self._emptied(current)
            ):
                return True
            if current in quoted:
                return False
            if isinstance(current, ast.stmt) and current in self.statements:
                edit = self.statements[current]
                if edit.kind in ("delete", "replace"):
                    return not self._quoted_above(current, quoted)
                if not any(child is s for s in getattr(current, edit.branch)):
                    return True
            child, current = current, self.module.parents.get(current)
        return False

    def _emptied(self, stmt: ast.stmt) -> bool:
        """Whether nothing is left of a statement: it is deleted, or an `if` all of whose body is."""
        empty = self.deleted(stmt)
        if isinstance(stmt, ast.If) and not stmt.orelse and stmt not in self.statements:
            empty = pure(stmt.test) and all(map(self._emptied, stmt.body))
        return empty and not self.before.get(stmt) and not self.after.get(stmt)

    def _requoted(self, holder: ast.AST, node: ast.AST) -> bool:
        """Whether the code put in place of an expression quotes a part of it that holds a node."""
        code = self.expressions[holder]
        parts = {p for p in code if isinstance(p, ast.AST)} if isinstance(code, tuple) else set()
        current: ast.AST | None = node
        while current is not None and current is not holder:
            if current in parts:
                return True
            current = self.module.parents.get(current)
        return False

    def _quoted_above(self, node: ast.AST, quoted: set[ast.AST]) -> bool:
        return any(a in quoted for a in self.module.ancestors(node))

    def emitted_names(self) -> set[str]:
        """Identifiers that emitted text mentions."""
        return self._emitted()[1]

    def _emitted(self) -> tuple[set[ast.AST], set[str]]:
        """Nodes of the original that emitted code quotes, and identifiers that its text mentions. Asked for each use of
        each name, and found anew only after an edit."""
        one, two, three = self.expressions.version, self.insertions.version, self.statements.version
        state = (one, two, three, self.before.version, self.after.version, len(self.wraps), *self.wraps[-1:])
        if self._known is None or self._known[0] != state:
            parts = {part for code in self._codes() for part in ((code,) if isinstance(code, str) else code)}
            words: set[str] = set()
            for part in parts:
                if isinstance(part, str):
                    bare = _TEXTS.sub("", part)  # `config["amp"]` does not mention amp, nor does a docstring
                    if bare.startswith(("import ", "from ")):
                        bare = re.sub(r"[\w.]+\s+as\s", "", bare)  # `import amp as native` binds native alone
                    words.update(re.findall(r"(?<![\w.])[A-Za-z_]\w*", bare))
            self._known = state, {part for part in parts if isinstance(part, ast.AST)}, words
        return self._known[1], self._known[2]

    def emitted_text(self) -> Iterable[str]:
        """The text in emitted code, without what it quotes."""
        for code in self._codes():
            yield from (part for part in ((code,) if isinstance(code, str) else code) if isinstance(part, str))

    def mentions(self, word: str, within: ast.AST | None = None) -> bool:
        """Whether emitted text holds a word, be it a name, an attribute or a key; in the code of a node, if one is given."""
        pattern = re.compile(rf"\b{re.escape(word)}\b")
        return any(
            isinstance(part, str) and pattern.search(part)
            for place, code in self._placed()
            for part in ((code,) if isinstance(code, str) else code)
            if within is None or (within in self.module.ancestors(place) and not self._is_docstring(place))
        )

    def _is_docstring(self, place: ast.AST) -> bool:
        return isinstance(place, ast.Constant) and isinstance(self.module.parents.get(place), ast.Expr)

    def _codes(self) -> Iterable[Code]:
        return (code for _, code in self._placed())

    def _placed(self) -> Iterable[tuple[ast.AST, Code]]:
        """Emitted code and the node that it is put in place of, or beside."""
        yield from self.expressions.items()
        for anchor, items in self.insertions.items():
            yield from ((anchor, code) for _, code in items)
        for stmt, edit in self.statements.items():
            yield from ((stmt, code) for code in edit.codes)
        for stmt, codes in (*self.before.items(), *self.after.items()):
            yield from ((stmt, code) for code in codes)
        yield from ((w.first, w.header) for w in self.wraps)

    def render(self, code: Code) -> str:
        """Emitted code as text."""
        if isinstance(code, str):
            return code
        text = ""
        for part in code:
            text += part if isinstance(part, str) else self.quoted(part, text)
        return text

    def start(self, node: ast.AST) -> tuple[int, int]:
        """Where the text of a node begins: line and byte column."""
        return start_of(self.module.lines, node)

    def quoted(self, node: ast.AST, before: str = "") -> str:
        """The same, to stand anywhere after some text: an assignment in an expression needs its parentheses in most
        places, and so does what went on over lines only because something around it was in brackets."""
        text = self.text(node)
        if isinstance(node, ast.expr) and breaks_off(text) and not open_brackets(before):
            return f"({text})"
        return f"({text})" if isinstance(node, ast.NamedExpr) and node not in self.expressions else text

    def text(self, node: ast.AST, *, ignore_self: bool = False) -> str:
        """The source of a node with the edits inside it carried out."""
        if not ignore_self and node in self.expressions:
            return self.render(self.expressions[node])
        return self.text_between(self.start(node), end_of(node), [node], skip=node if ignore_self else None)

    def text_between(
        self, start: tuple[int, int], end: tuple[int, int], roots: Sequence[ast.AST], skip: ast.AST | None = None
    ) -> str:
        """The source between two (line, byte column) positions, with the expression edits below `roots`."""
        spans: list[tuple[tuple[int, int], tuple[int, int], str]] = []
        stack: list[ast.AST] = list(roots)
        while stack:
            node = stack.pop()
            if node in self.cuts:
                spans.append((*self.cuts[node], ""))
            for where, text in self._inserted(node):
                if where == "within":
                    at = between_parentheses(self.module, node)
                else:
                    at = self.start(node) if where == "before" else after_parentheses(self.module, node)
                spans.append((at, at, self._as_quoted(node, text)))
            if node in self.expressions and node is not skip:
                text = self._as_quoted(node, self.render(self.expressions[node]))
                spans.append((*(decorator_span(self.module, node) if not text else self._replaced(node, text)), text))
                continue
            stack.extend(ast.iter_child_nodes(node))
        lines = self.module.lines
        spans.sort(key=lambda s: (s[0], s[1]))
        out: list[bytes] = []
        at = start
        for first, last, text in spans:
            if first < at or last > end:
                continue
            out.append(sliced(lines, at, first))
            out.append(text.encode())
            at = last
        out.append(sliced(lines, at, end))
        return b"".join(out).decode()

    def _replaced(self, node: ast.AST, text: str) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where the text of an expression goes; `a or (b and c)` loses its parentheses with one of the two."""
        (row, column), (last, end) = self.start(node), end_of(node)
        if isinstance(node, ast.BoolOp) and isinstance(self.module.parents.get(node), (ast.BoolOp, ast.UnaryOp)):
            lines = self.module.lines
            before, after = sliced(lines, (row, 0), (row, column))[-2:], sliced(lines, (last, end), (last, end + 1))
            if before in (b" (", b"((") and after == b")" and type(ast.parse(text, mode="eval").body) in ATOMS:
                return (row, column - 1), (last, end + 1)
        return (row, column), (last, end)

    def _inserted(self, node: ast.AST) -> list[tuple[Where, str]]:
        """The texts that go beside a node or into it."""
        given = [(where, self.render(code)) for where, code in self.insertions.get(node, ())]
        return in_order(self.module, node, given) if given else given

    def _as_quoted(self, node: ast.AST, text: str) -> str:
        """Code with the other quotes where it goes into an f-string that its own would end: before Python 3.12 they do."""
        if "'" not in text and '"' not in text:
            return text
        for around in self.module.ancestors(node):
            if isinstance(around, ast.JoinedStr):
                mark = sliced(self.module.lines, self.start(around), end_of(around)).decode().lstrip("rRfF")
                quote, other = mark[:1], {"'": '"', '"': "'"}.get(mark[:1], "")
                if mark[:3] != 3 * quote and other and other not in text:
                    text = text.replace(quote, other)
        return text
