"""Long tables of numbers are cut short in trees, and nothing else is."""

from __future__ import annotations

import ast

import pytest

from amp_migrate import literals

ROWS = [
    "1,\n    -2.5e-3, 0x1F,\n",
    "    [1, 2],\n    (3, 4.5j),\n",
    "1, 2, 3, 4, 5, 6, 7, 8,\n",
]


@pytest.mark.parametrize("row", ROWS)
def test_a_long_table_keeps_its_beginning_and_all_else_its_place(row: str) -> None:
    text = f"é = 1; table = [\n{row * 4000}]; after = é\nlast = [{row}]\n"
    whole, tree = ast.parse(text), literals.parse(text)
    table = tree.body[1]
    assert isinstance(table, ast.Assign)
    assert isinstance(table.value, ast.List)
    assert len(table.value.elts) == literals.FIRST + 1
    assert isinstance(table.value.elts[-1], ast.Starred)
    places = [(n.lineno, n.col_offset, n.end_lineno, n.end_col_offset) for n in whole.body]
    assert [(n.lineno, n.col_offset, n.end_lineno, n.end_col_offset) for n in tree.body] == places
    assert [ast.dump(n) for n in tree.body[2:]] == [ast.dump(n) for n in whole.body[2:]]


@pytest.mark.parametrize(
    "text",
    [
        f"few = [{'1, ' * 500}]",
        f"names = [{'1, 2, name, ' * 4000}]",
        f"words = [{'1, 2, 3, 4, 5, 6, chr(7), ' * 2000}]",
        f"keys = {{{', '.join(f'{i}: {i}' for i in range(4000))}}}",
        "narrow = [\n" + "1,\n" * 9000 + "]",
    ],
)
def test_what_is_short_or_holds_names_stays(text: str) -> None:
    assert ast.dump(literals.parse(text)) == ast.dump(ast.parse(text))


def test_what_does_not_parse_is_said_of_the_text_itself() -> None:
    text = "x = [\n" + "1, 2, 3,\n" * 4000 + ")\n"
    with pytest.raises(SyntaxError) as found:
        literals.parse(text)
    assert found.value.lineno == 4002
