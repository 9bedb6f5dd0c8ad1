"""Which small faults may a file have?

Each mutant is one place of the source written otherwise: a comparison, a connective, a constant, a condition, a returned
value, a statement less. Docstrings, annotations, imports, messages and the documented codes are left alone: tests do not
hold their wording.

A mutant is known by its function, the expression or statement it stands in and what is written there instead: never by
a line, so that it stays the same one, chosen or not, whatever is edited elsewhere in the file, and however it is formatted.
"""

from __future__ import annotations

import ast
import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
}
NAMES = {"any": "all", "all": "any", "min": "max", "max": "min"}
MESSAGES = ("message", "what", "why", "said", "title", "construct", "way", "where")


@dataclass(frozen=True)
class Mutant:
    """One place of a source, from and to which offset (in characters), and what stands there instead."""

    line: int
    start: int
    end: int
    new: str
    kind: str
    function: str = ""  # qualified name
    ident: str = ""  # ten hexadecimal digits, unique in its file

    def of(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]

    def told(self, text: str) -> str:
        """The mutant in one line, for people."""
        row = text.splitlines()[self.line - 1].strip()
        old = " ".join(text[self.start : self.end].split())
        return f"{self.function or 'module'}: {self.kind} {_short(old)} -> {_short(self.new)} in {_short(row, 70)}"

    def chosen(self, rate: float) -> bool:
        """Whether it is among those that are tried, of which there are `rate` (0 to 1)."""
        return int(self.ident, 16) < rate * 16 ** len(self.ident)


def _short(text: str, most: int = 30) -> str:
    return f"`{text if len(text) <= most else text[: most - 3] + '...'}`"


class _Places:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.parents = {c: n for n in ast.walk(self.tree) for c in ast.iter_child_nodes(n)}
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.lines = [line.encode() for line in text.splitlines(keepends=True)]

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.lines[line - 1][:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        line, column, last, end = (getattr(node, n) for n in ("lineno", "col_offset", "end_lineno", "end_col_offset"))
        return self.at(line, column), self.at(last, end)

    def mutant(self, node: ast.AST, new: str, kind: str) -> Mutant:
        return Mutant(getattr(node, "lineno", 1), *self.span(node), new, kind)

    def between(self, left: ast.AST, right: ast.AST, old: str, new: str, kind: str) -> Iterator[Mutant]:
        """An operator between two operands."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = self.text[start:end]
        if gap.count(old) == 1:
            at = start + gap.index(old)
            yield Mutant(self.text.count("\n", 0, at) + 1, at, at + len(old), new, kind)

    def function(self, node: ast.AST) -> str:
        """The qualified name of the function or class around a node, none at module level."""
        names: list[str] = []
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.insert(0, node.name)
        return ".".join(names)

    def whole(self, mutant: Mutant) -> str:
        """The statement of the module in which a mutant stands, with it."""
        starts = [min(n.lineno for n in (s, *getattr(s, "decorator_list", ()))) for s in self.tree.body]
        at = bisect_right(starts, mutant.line) - 1
        first, last = self.starts[starts[at] - 1], self.starts[self.tree.body[at].end_lineno or -1]
        return self.text[first : mutant.start] + mutant.new + self.text[mutant.end : last]

    def around(self, node: ast.AST) -> ast.AST:
        """The whole expression or simple statement in which a node stands: no block."""
        while node in self.parents and not isinstance(getattr(self.parents[node], "body", None), list):
            node = self.parents[node]
        return node

    def left_alone(self, node: ast.AST) -> bool:
        """Whether a place only says something to people, to type checkers or to the interpreter."""
        while node in self.parents:
            parent = self.parents[node]
            if isinstance(parent, (ast.JoinedStr, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom)):
                return True
            if isinstance(parent, ast.Call) and getattr(parent.func, "id", "") in ("Code", "field", "cast", "TypeVar"):
                return True
            if isinstance(parent, ast.keyword) and parent.arg == "strict":  # of zip: what is asserted by it is so
                return True
            if isinstance(parent, ast.AnnAssign) and node is parent.annotation:
                return True
            if isinstance(parent, (ast.FunctionDef, ast.arg)) and node is getattr(parent, "returns", None):
                return True
            if isinstance(parent, (ast.FunctionDef, ast.ClassDef)) and node in parent.decorator_list:
                return True
            if isinstance(parent, ast.arg) and node is parent.annotation:
                return True
            if isinstance(parent, ast.Assign) and any(getattr(t, "id", "") in MESSAGES for t in parent.targets):
                return True
            if isinstance(parent, ast.If) and "TYPE_CHECKING" in ast.unparse(parent.test):
                return True
            node = parent
        return False


def mutants(text: str) -> list[Mutant]:
    """All of them, in the order of the source."""
    places = _Places(text)
    found = [(m, n) for n in ast.walk(places.tree) if not places.left_alone(n) for m in _of(places, n)]
    found.sort(key=lambda f: (f[0].start, f[0].end, f[0].new))
    met: Counter[str] = Counter()
    named: list[Mutant] = []
    for mutant, node in found:
        if _compiles(places.whole(mutant)):
            function = places.function(node)
            said = repr((function, _written(places.around(node)), _written(node), mutant.kind, mutant.new))
            met[said] += 1  # several alike are told apart by their order
            ident = hashlib.sha256(f"{said} {met[said]}".encode()).hexdigest()[:10]
            named.append(replace(mutant, function=function, ident=ident))
    return named


def _written(node: object) -> object:
    """What a piece of source says, without where and how it is formatted; the same on every Python."""
    if isinstance(node, ast.AST):
        fields = [(n, _written(v)) for n, v in ast.iter_fields(node) if v is not None and v != []]
        return type(node).__name__, *fields
    return [_written(n) for n in node] if isinstance(node, list) else node


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _of(places: _Places, node: ast.AST) -> Iterator[Mutant]:
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            yield from places.between(left, right, *COMPARISONS[type(op)], "comparison")
    elif isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from places.between(left, right, old, new, "connective")
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield from places.between(node.left, node.right, *OPERATORS[type(node.op)], "operator")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield places.mutant(node, f"bool({places.text[slice(*places.span(node.operand))]})", "negation")
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in NAMES:
        yield places.mutant(node, NAMES[node.id], "function")
    elif isinstance(node, ast.Constant):
        yield from _constant(places, node)
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield places.mutant(node.test, "True", "condition")
        if not isinstance(node, ast.While):
            yield places.mutant(node.test, "False", "condition")
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield places.mutant(test, "True", "condition")
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield places.mutant(node.value, "None", "result")
    elif isinstance(node, (ast.Continue, ast.Break, ast.AugAssign)):
        yield places.mutant(node, "pass", "statement")
    elif isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Yield, ast.YieldFrom)):
        if isinstance(node.value, ast.Call):
            yield places.mutant(node, "pass", "statement")
        else:  # a generator it stays
            yield places.mutant(node, "yield from ()", "statement")


def _constant(places: _Places, node: ast.Constant) -> Iterator[Mutant]:
    value = node.value
    if isinstance(places.parents.get(node), ast.Expr):
        return
    if isinstance(value, bool):
        yield places.mutant(node, repr(not value), "constant")
    elif isinstance(value, (int, float)):
        yield places.mutant(node, repr(value + 1), "constant")
    elif isinstance(value, str) and value and " " not in value.strip():
        yield places.mutant(node, repr(value + "_"), "constant")
