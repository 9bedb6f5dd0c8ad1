"""What stands below a node, asked of `ast` in few steps: all that `ast` says but for what says nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import amp_migrate
from amp_migrate.audit.program import syntax
from amp_migrate.reading.program import tree

RARE = """
async def wait(a, /, b: int = 1, *c: str, d, e=2, **f) -> list[int]:
    global x
    async with a as (b, c), d: ...
    async for i in b: await i
    else: del a[b:c:-d, ...]
    return
match [*a]:
    case {"k": 1, **rest} | Point(x=0) | [_, *others] as whole if not rest: pass
try: assert (yield), f"{a!r:>{b}}"
except* (E, F) as error: raise G from error
x: int = {**a, b: c} if a < b <= c in d else {k: v for k in a for v in b if k}
"""
OPERATORS = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


@pytest.mark.parametrize(
    ("children", "without"), [(syntax.children, (ast.expr_context,)), (tree.children, (ast.expr_context, *OPERATORS))]
)
def test_below_a_node_is_what_ast_says(
    children: Callable[[ast.AST], Iterable[ast.AST]], without: tuple[type[ast.AST], ...]
) -> None:
    package = Path(amp_migrate.__file__).parent
    rare = RARE if hasattr(ast, "TryStar") else RARE.replace("except*", "except")
    for text in (rare, *(path.read_text(encoding="utf-8") for path in sorted(package.glob("*.py")))):
        for node in ast.walk(ast.parse(text)):
            told = [child for child in ast.iter_child_nodes(node) if not isinstance(child, without)]
            assert [id(child) for child in children(node)] == [id(child) for child in told], ast.dump(node)
