"""What the text of single expressions and headers says to the writer: where strings span lines, which tests may go."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import cast

from amp_migrate.reading.program.module import Module

# Strings and comments, in which brackets say nothing.
_SILENT = re.compile(r'''("""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#[^\n]*)''')


Position = tuple[int, int]  # line and byte column


def string_lines(text: str) -> set[int]:
    """Indices of lines that start inside a multi-line string."""
    try:
        tree = ast.parse(f"({text})")
    except SyntaxError:
        try:
            tree = ast.parse(text)
        except SyntaxError:
            return set()
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and getattr(node, "end_lineno", 0) != getattr(
            node, "lineno", 0
        ):
            value = getattr(node, "value", "")
            if isinstance(node, ast.JoinedStr) or isinstance(value, (str, bytes)):
                inside.update(range(node.lineno, cast(int, node.end_lineno)))
    return inside


def after_parentheses(module: Module, node: ast.AST) -> tuple[int, int]:
    """Where an argument, or the default of a parameter, ends, with the parentheses around it: `f((x))`."""
    value = node.value if isinstance(node, ast.keyword) else node
    end: tuple[int, int] = value.end_lineno, value.end_col_offset  # type: ignore[attr-defined]
    holder = module.parents.get(node)
    if isinstance(holder, ast.Call):
        first: ast.AST = holder.func
        start = (holder.func.end_lineno or 1, holder.func.end_col_offset or 0)
    elif isinstance(holder, ast.arguments):
        first = module.parents[holder]
        start = (first.lineno, first.col_offset)  # type: ignore[attr-defined]
    else:
        return end
    before = source_between(module, start, (value.lineno, value.col_offset))  # type: ignore[attr-defined]
    for _ in range(open_brackets(before) - 1):
        line = module.lines[end[0] - 1]
        while not (match := re.compile(rb"[^)#]*\)").match(line, end[1])):
            end = end[0] + 1, 0
            line = module.lines[end[0] - 1]
        end = end[0], match.end()
    return end


def source_between(module: Module, start: Position, end: Position) -> str:
    """What a file holds between two positions."""
    rows = module.lines[start[0] - 1 : end[0]]
    rows[-1] = rows[-1][: end[1]]
    rows[0] = rows[0][start[1] :]
    return b"".join(rows).decode()


def open_brackets(text: str) -> int:
    """How many brackets a text leaves open."""
    bare = _SILENT.sub("", text)
    return sum(bare.count(c) for c in "([{") - sum(bare.count(c) for c in ")]}")


def breaks_off(text: str) -> bool:
    """Whether an expression is one only in brackets: it goes on in lines that nothing in it holds together."""
    if "\n" not in text and "\r" not in text:
        return False
    return not _parses(text) and _parses(f"({text})")


def _parses(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


def negate(test: ast.expr, text: str) -> str:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ast.unparse(test.operand)
    simple = isinstance(test, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Compare))
    return f"not {text}" if simple else f"not ({text})"


def plain_with(stmt: ast.With) -> bool:
    return all("no_grad" in ast.unparse(item) or "autocast" in ast.unparse(item) for item in stmt.items)


def decorator_sign(lines: Sequence[bytes], decorator: ast.expr) -> tuple[int, int]:
    """Where the @ of a decorator stands: space, a backslash or a parenthesis may come between."""
    line, before = decorator.lineno, lines[decorator.lineno - 1][: decorator.col_offset]
    while b"@" not in before and line > 1:
        line, before = line - 1, lines[line - 2]
    return line, max(before.rfind(b"@"), 0)


def decorator_span(module: Module, decorator: ast.AST) -> tuple[Position, Position]:
    """From the sign of a decorator to what follows: the next one, or the definition."""
    holder = module.parents[decorator]
    assert isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)), "a decorator"
    after = holder.decorator_list[holder.decorator_list.index(decorator) + 1 :]  # type: ignore[arg-type]
    begin = decorator_sign(module.lines, cast(ast.expr, decorator))
    return begin, decorator_sign(module.lines, after[0]) if after else (holder.lineno, holder.col_offset)


def between_parentheses(module: Module, node: ast.AST) -> Position:
    """The position before the closing parenthesis of a call, or after the opening one of a function with these `args`."""
    if isinstance(node, ast.Call):
        line, column = end_of(node)
        return line, column - 1
    function = module.parents[node]
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)), "a lambda has no parentheses"
    line, column = function.lineno, function.col_offset
    while b"(" not in module.lines[line - 1][column:]:
        line, column = line + 1, 0
    return line, module.lines[line - 1].index(b"(", column) + 1


def start_of(lines: Sequence[bytes], node: ast.AST) -> Position:
    """Line and byte column of a node; of what has decorators, those of the first one's sign."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.decorator_list:
        return decorator_sign(lines, node.decorator_list[0])
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def end_of(node: ast.AST) -> Position:
    """Line and byte column after the last character of a node."""
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def sliced(lines: Sequence[bytes], start: Position, end: Position) -> bytes:
    """What stands between two places of a file."""
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    return b"".join([lines[start[0] - 1][start[1] :], *lines[start[0] : end[0] - 1], lines[end[0] - 1][: end[1]]])
