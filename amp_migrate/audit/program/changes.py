"""What a migration changed in one file: which statements stand on both sides, which came and which went."""

from __future__ import annotations

import ast
import itertools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cached_property, lru_cache

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module

LONG = 100  # statements from which on a file is compared piece by piece
ENOUGH = 0.5  # of what two lines have in common, for one to have taken the other's place


class Change:
    """One file before and after. Statements are paired by what their own line says: the bodies of compound statements
    and how deep a statement stands do not count, so that a loss that moved under `with torch.autocast` is the same loss.
    """

    def __init__(self, before: Module, after: Module) -> None:
        self.before = before
        self.after = after
        self.path = before.path
        self.heads = _Heads()

    @cached_property
    def _pairs(self) -> tuple[dict[ast.stmt, ast.stmt], dict[ast.stmt, ast.stmt]]:
        same: dict[ast.stmt, ast.stmt] = {}
        rewritten: dict[ast.stmt, ast.stmt] = {}
        for old, new in self._pieces(statements(self.before.tree), statements(self.after.tree), same):
            for tag, i1, i2, j1, j2 in self._steps(old, new):
                if tag == "equal":
                    same |= dict(zip(new[j1:j2], old[i1:i2], strict=True))
                elif tag == "replace":
                    rewritten |= dict(_likely(old[i1:i2], new[j1:j2], self.heads))
        return same, rewritten

    def _steps(self, old: list[ast.stmt], new: list[ast.stmt]) -> Iterator[tuple[str, int, int, int, int]]:
        """How one list of statements becomes the other. Where a line is there more often on one side, those that stand
        under the same tests on both are paired first: of two lines that are alike it is the other one that went."""
        keys = self._keys(old, new)
        counts = [Counter(side) for side in keys]
        if not any(counts[1][key] not in (0, n) for key, n in counts[0].items()):
            yield from _opcodes(*keys)
            return
        placed = [
            [f"{key}\n{conditions(module, s)}" for key, s in zip(of_side, side, strict=True)]
            for of_side, side, module in zip(keys, (old, new), (self.before, self.after), strict=True)
        ]
        for tag, i1, i2, j1, j2 in _opcodes(*placed):
            if tag == "equal":
                yield tag, i1, i2, j1, j2
            else:
                for inner, a1, a2, b1, b2 in _opcodes(keys[0][i1:i2], keys[1][j1:j2]):
                    yield inner, i1 + a1, i1 + a2, j1 + b1, j1 + b2

    def _keys(self, old: list[ast.stmt], new: list[ast.stmt]) -> tuple[list[str], list[str]]:
        """What tells the own lines of statements apart: their text, where all that have the same words have the same text;
        else what they say, for which they must be spelled out."""
        texts = [[_own_text(m, s) for s in side] for m, side in ((self.before, old), (self.after, new))]
        alike: dict[str, set[str]] = {}
        words = {text: _NO_WORD.sub("", text) for side in texts for text in side if text is not None}
        for text, short in words.items():
            alike.setdefault(short, set()).add(text)
        keys = [
            [
                self.heads[s] if t is None or len(alike[words[t]]) > 1 else f"\n{t}"
                for s, t in zip(side, found, strict=True)
            ]
            for side, found in zip((old, new), texts, strict=True)
        ]
        return keys[0], keys[1]

    def _pieces(
        self, old: list[ast.stmt], new: list[ast.stmt], same: dict[ast.stmt, ast.stmt]
    ) -> Iterator[tuple[list[ast.stmt], list[ast.stmt]]]:
        """What is to be compared with what, for which time grows with the square: all of a short file; of a long one what
        is between the functions and classes that are unmistakably on both sides. What is alike is filed as the same."""
        if len(old) <= LONG:
            yield old, new
            return
        i = j = 0
        for at, to in [*self._anchors(old, new), (len(old), len(new))]:
            mine, theirs = old[i:at], new[j:to]
            if self._alike(mine, theirs):
                same.update(zip(theirs, mine, strict=True))
            elif mine or theirs:
                yield mine, theirs
            i, j = at, to

    def _anchors(self, old: list[ast.stmt], new: list[ast.stmt]) -> list[tuple[int, int]]:
        """Where both sides have a function or class whose header is there once, in the same order on both."""
        places: list[dict[str, list[int]]] = []
        for side in (old, new):
            found: dict[str, list[int]] = {}
            for index, stmt in enumerate(side):
                if isinstance(stmt, _NAMED):
                    found.setdefault(self.heads[stmt], []).append(index)
            places.append(found)
        once = [(at[0], places[1][h][0]) for h, at in places[0].items() if len(at) == len(places[1].get(h, ())) == 1]
        return _rising(once)

    def _alike(self, old: list[ast.stmt], new: list[ast.stmt]) -> bool:
        """Whether both have the same statements. They are written alike, as a rule, so that nothing need be spelled out."""
        if len(old) != len(new):
            return False
        return all(
            type(a) is type(b) and (self._written(a, b) or self.heads[a] == self.heads[b])
            for a, b in zip(old, new, strict=True)
        )

    def _written(self, old: ast.stmt, new: ast.stmt) -> bool:
        """Whether two statements without a block stand on lines that are written alike."""
        if isinstance(old, _BLOCKS) or old.col_offset != new.col_offset:
            return False
        first, last = old.lineno, old.end_lineno or old.lineno
        shift = new.lineno - first
        return (
            (new.end_lineno or new.lineno) - shift == last
            and old.end_col_offset == new.end_col_offset
            and self.before.lines[first - 1 : last] == self.after.lines[first - 1 + shift : last + shift]
        )

    @property
    def same(self) -> dict[ast.stmt, ast.stmt]:
        """Statements after whose own line is unchanged, to what they were before."""
        return self._pairs[0]

    @property
    def rewritten(self) -> dict[ast.stmt, ast.stmt]:
        """Statements after that most likely took the place of one before."""
        return self._pairs[1]

    @cached_property
    def back(self) -> dict[ast.stmt, ast.stmt]:
        """Statements before, to the same or the rewritten one after."""
        return {old: new for new, old in {**self.rewritten, **self.same}.items()}

    @cached_property
    def added(self) -> list[ast.stmt]:
        """Statements after that have nothing before."""
        return [s for s in statements(self.after.tree) if s not in self.same and s not in self.rewritten]

    @cached_property
    def removed(self) -> list[ast.stmt]:
        """Statements before that have nothing after."""
        return [s for s in statements(self.before.tree) if s not in self.back]

    def changed(self, node: ast.AST) -> bool:
        """Whether the own line of the statement around a node (after) is not as it was."""
        return self.after.statement(node) not in self.same

    def moved(self, stmt: ast.stmt) -> bool:
        """Whether a statement (after) is new, or is reached under other conditions than before."""
        old = self.same.get(stmt)
        return old is None or conditions(self.after, stmt) != conditions(self.before, old)

    def was(self, stmt: ast.stmt) -> ast.stmt | None:
        """What a statement after was before: the same, or the one it took the place of."""
        return self.same.get(stmt) or self.rewritten.get(stmt)

    @cached_property
    def _order(self) -> list[ast.stmt]:
        return statements(self.after.tree)

    @cached_property
    def _places(self) -> dict[ast.stmt, int]:
        return {stmt: i for i, stmt in enumerate(self._order)}

    def above(self, stmt: ast.stmt) -> Iterator[ast.stmt]:
        """The new statements right above one (after), into which the migration may have taken parts of it."""
        above = (self._order[i] for i in range(self._places.get(stmt, 0) - 1, -1, -1))
        return itertools.takewhile(lambda s: self.was(s) is None, above)

    def below(self, stmt: ast.stmt) -> ast.stmt:
        """The first statement from a place on (after) that was there before, or the place itself."""
        places = range(self._places.get(stmt, len(self._order)), len(self._order))
        return next((self._order[i] for i in places if self.was(self._order[i]) is not None), stmt)

    def line(self, node: ast.AST) -> int:
        """The line before that a place after belongs to: its own, else that of the nearest statement that has one."""
        stmt = self.after.statement(node)
        if (old := self.was(stmt)) is not None:
            return old.lineno
        order = self._order
        at = self._places.get(stmt, 0)
        if (given := self._given_anew(stmt, order, at)) is not None:
            return given.lineno
        for distance in range(1, len(order)):
            for i in (at - distance, at + distance):
                if 0 <= i < len(order) and (found := self.was(order[i])) is not None:
                    return found.lineno
        return 1

    def _given_anew(self, stmt: ast.stmt, order: list[ast.stmt], at: int) -> ast.stmt | None:
        """The one statement, of those that went between what is around a new one, that gave a call's result to what this one does,
        whatever else the calls have in common: `model = DDP(model)`."""
        if (target := _given(stmt)) is None:
            return None
        above = next((old for s in reversed(order[:at]) if (old := self.was(s)) is not None), None)
        below = next((old for s in order[at + 1 :] if (old := self.was(s)) is not None), None)
        first, last = above.lineno if above is not None else 0, below.lineno if below is not None else None
        went = (s for s in self.removed if s.lineno > first and (last is None or s.lineno < last))
        same = [s for s in went if _given(s) == target]
        return same[0] if len(same) == 1 else None

    @cached_property
    def _functions(self) -> dict[Function, Function]:
        return dict(_by_name(self.after.functions, self.before.functions))

    def function_before(self, function: Function) -> Function | None:
        """A function as it was before the migration, if it was there."""
        return self._functions.get(function)


def _opcodes(old: list[str], new: list[str]) -> list[tuple[str, int, int, int, int]]:
    """As SequenceMatcher has them, of what stands between the lines that both begin and end with: it takes the square of how
    often a line stands there."""
    short = min(len(old), len(new))
    head = next((i for i in range(short) if old[i] != new[i]), short)
    tail = next((i for i in range(short - head) if old[-1 - i] != new[-1 - i]), short - head)
    matcher = SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False)
    inner = [(tag, i + head, to_i + head, j + head, to_j + head) for tag, i, to_i, j, to_j in matcher.get_opcodes()]
    first = [("equal", 0, head, 0, head)] if head else []
    last = [("equal", len(old) - tail, len(old), len(new) - tail, len(new))] if tail else []
    return [*first, *inner, *last]


class _Heads(dict[ast.stmt, str]):
    """The own line of each statement that was asked about."""

    def __missing__(self, stmt: ast.stmt) -> str:
        self[stmt] = head(stmt)
        return self[stmt]


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BLOCKS = (
    *(*_NAMED, ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match),
    *([ast.TryStar] if hasattr(ast, "TryStar") else []),
)


_NO_WORD = re.compile(r"#[^\n]*|\W+")


def _own_text(module: Module, stmt: ast.stmt) -> str | None:
    """The text of the own line of a statement; None for one whose header says more than `head` does."""
    if isinstance(stmt, (ast.If, ast.While)):
        return f"{type(stmt).__name__} {_text(module, stmt.test, stmt.test)}"
    if isinstance(stmt, (ast.For, ast.AsyncFor)):
        return f"For {_text(module, stmt.target, stmt.iter)}"
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        last = stmt.items[-1]
        return f"With {_text(module, stmt.items[0].context_expr, last.optional_vars or last.context_expr)}"
    return None if isinstance(stmt, _BLOCKS) else f"{type(stmt).__name__} {_text(module, stmt, stmt)}"


def _text(module: Module, first: ast.stmt | ast.expr, last: ast.stmt | ast.expr) -> str:
    """The text from the beginning of a node to the end of another, by their columns in bytes."""
    rows = module.lines[first.lineno - 1 : last.end_lineno]
    start, end = first.col_offset, last.end_col_offset
    if rows[-1].isascii() and rows[0].isascii():
        rows[-1] = rows[-1][:end]
        rows[0] = rows[0][start:]
    else:
        rows[-1] = rows[-1].encode()[:end].decode()
        rows[0] = rows[0].encode()[start:].decode()
    return "\n".join(rows)


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest series of pairs, in order of their first numbers, whose second numbers rise too."""
    ends: list[int] = []  # the least number that a series of each length ends with
    chosen: list[tuple[int, int | None]] = []  # of each pair: how long a series it ends, and the pair before it there
    tips: list[int] = []  # the pair that each of `ends` is of
    for number, (_, to) in enumerate(sorted(pairs)):
        length = bisect_left(ends, to)
        ends[length : length + 1] = [to]
        tips[length : length + 1] = [number]
        chosen.append((length, tips[length - 1] if length else None))
    found: list[tuple[int, int]] = []
    at = tips[-1] if tips else None
    ordered = sorted(pairs)
    while at is not None:
        found.append(ordered[at])
        at = chosen[at][1]
    return found[::-1]


@kept
def conditions(module: Module, stmt: ast.stmt) -> list[str]:
    """The tests that a statement stands under, outermost first, and how they came out."""
    parent = module.parents.get(stmt)
    outer = module.statement(parent) if parent is not None and not isinstance(parent, ast.Module) else None
    if outer is None or isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return []
    if isinstance(outer, (ast.If, ast.While)):
        return [*conditions(module, outer), f"{syntax.text(outer.test)} {stmt in outer.body}"]
    if isinstance(outer, ast.Try):
        return [*conditions(module, outer), f"try {stmt in outer.body}"]
    return conditions(module, outer)


_INNER = (ast.stmt, ast.ExceptHandler, ast.match_case)


@kept
def statements(tree: ast.AST) -> list[ast.stmt]:
    """Every statement, in source order."""
    found: list[ast.stmt] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            if node is not tree:
                found.append(node)
            if not isinstance(node, _BLOCKS):
                continue
        waiting += [child for child in syntax.children(node) if isinstance(child, _INNER)][::-1]
    return found


def head(stmt: ast.stmt) -> str:
    """The own line of a statement: a compound one without its body."""
    if isinstance(stmt, (ast.If, ast.While)):
        return f"{type(stmt).__name__} {syntax.text(stmt.test)}"
    if isinstance(stmt, (ast.For, ast.AsyncFor)):
        return f"For {syntax.text(stmt.target)} in {syntax.text(stmt.iter)}"
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return "With " + ", ".join(syntax.text(i) for i in stmt.items)
    if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
        decorators = " ".join(syntax.text(d) for d in stmt.decorator_list)
        return f"{decorators} def {stmt.name}({syntax.text(stmt.args)})"
    if isinstance(stmt, ast.ClassDef):
        return f"class {stmt.name}({', '.join(syntax.text(b) for b in stmt.bases)})"
    if isinstance(stmt, ast.Try):
        return "try " + ", ".join(syntax.text(h.type) if h.type else "" for h in stmt.handlers)
    return syntax.text(stmt)


# A function of which one call runs with autocast off is the same function: `torch.autocast("cuda", enabled=False)(f)(x)`.
_CAST = re.compile(r"\.to\(dtype=[\w.]*float32 if .*? else None\)")  # where something is made float32 in some runs
_APART = re.compile(r"\b[\w.]+\.autocast\([^()]*\)\(([\w.]+)\)(?=\()")


def _likely(old: list[ast.stmt], new: list[ast.stmt], heads: _Heads) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Pairs within a replaced stretch, in order: statements of one kind whose texts have most in common."""
    start = 0
    for n in new:
        best, score = None, ENOUGH
        alike = [i for i in range(start, len(old)) if type(old[i]) is type(n)]
        now = _CAST.sub("", _APART.sub(r"\1", heads[n])) if alike else ""
        for i in alike:
            was = heads[old[i]]
            call = was.removesuffix(")")
            if call != was and now.startswith(call if call.endswith("(") else f"{call}, "):
                if not call.endswith("("):
                    best = i  # the same call, given more, however long that is
                    break
                best = i if best is None else best  # where no line is liker
            likeness = _likeness(was, now)
            if likeness > score:
                best, score = i, likeness
        if best is not None:
            yield n, old[best]
            start = best + 1


def _given(stmt: ast.stmt) -> str | None:
    """What an assignment gives the result of a call to."""
    if not isinstance(stmt, ast.Assign) or not isinstance(stmt.value, ast.Call):
        return None
    return ", ".join(syntax.text(t) for t in stmt.targets)


@lru_cache(maxsize=4096)  # lines are alike in many functions
def _likeness(one: str, other: str) -> float:
    """How much two texts have in common; 0 where that cannot be enough."""
    matcher = SequenceMatcher(None, one, other)
    if matcher.real_quick_ratio() <= ENOUGH or matcher.quick_ratio() <= ENOUGH:
        return 0.0
    return matcher.ratio()


def _by_name(new: list[Function], old: list[Function]) -> Iterator[tuple[Function, Function]]:
    """Functions of one qualified name, the first with the first and so on."""
    waiting: dict[str, list[Function]] = {}
    for function in old:
        waiting.setdefault(function.qualname, []).append(function)
    for function in new:
        if waiting.get(function.qualname):
            yield function, waiting[function.qualname].pop(0)
