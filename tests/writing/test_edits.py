"""Edits addressed by nodes, carried out on text: each kind alone, and those that meet."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import Literal, TypeVar

import pytest

from amp_migrate.reading.program.module import Module
from amp_migrate.writing.apply import apply
from amp_migrate.writing.dropped import dropped
from amp_migrate.writing.edits import Edits

Node = TypeVar("Node", bound=ast.AST)


def edits_of(text: str) -> Edits:
    return Edits(Module(Path("m.py"), textwrap.dedent(text).lstrip("\n")))


def statement(edits: Edits, line: int) -> ast.stmt:
    """The statement that begins on a line; the innermost of several."""
    return [n for n in ast.walk(edits.module.tree) if isinstance(n, ast.stmt) and n.lineno == line][-1]


def first(edits: Edits, kind: type[Node]) -> Node:
    return next(n for n in ast.walk(edits.module.tree) if isinstance(n, kind))


def check(edits: Edits, expected: str) -> None:
    after = apply(edits)
    assert after == textwrap.dedent(expected).lstrip("\n")
    ast.parse(after)


def test_no_edits_change_nothing() -> None:
    text = "x = 1 ;y=2\nif x :\n\tpass # z\n"
    edits = edits_of(text)
    assert not edits
    assert apply(edits) == text


def test_an_expression_is_replaced_by_text_that_quotes_parts_of_it() -> None:
    edits = edits_of("result = f(a + b, c)  # sum\n")
    call = first(edits, ast.Call)
    edits.replace(call, ("g(", call.args[0], ")"))
    check(edits, "result = g(a + b)  # sum\n")


def test_edits_inside_a_quoted_part_are_carried_out() -> None:
    edits = edits_of("result = f(a + b, c)\n")
    call = first(edits, ast.Call)
    edits.replace(call, ("g(", call.args[0], ")"))
    edits.replace(call.args[0].left, "z")  # type: ignore[attr-defined]
    check(edits, "result = g(z + b)\n")


def test_edits_inside_a_replaced_part_are_dropped() -> None:
    edits = edits_of("result = f(a + b)\n")
    call = first(edits, ast.Call)
    edits.replace(call, "g()")
    edits.replace(call.args[0], "z")
    check(edits, "result = g()\n")


def test_arguments_are_inserted_after_and_before_others() -> None:
    edits = edits_of("f(a, c)\n")
    call = first(edits, ast.Call)
    edits.insert("after", call.args[0], ", b")
    edits.insert("before", call.args[0], "z, ")
    check(edits, "f(z, a, b, c)\n")


def test_an_argument_and_a_parameter_go_where_nothing_else_of_the_statement_changes() -> None:
    edits = edits_of("def f(a, b=1):\n    return a\n\n\nf(1, b=2)\n")
    function, call = edits.module.tree.body[0], first(edits, ast.Call)
    assert isinstance(function, ast.FunctionDef)
    a, b = function.args.args
    for way in (
        dropped(edits, [(a, a), (b, function.args.defaults[0])], [b]),
        dropped(edits, [(call.args[0], call.args[0]), (call.keywords[0], call.keywords[0].value)], call.keywords),
    ):
        assert way is not None
        way.carry_out()
    check(edits, "def f(a):\n    return a\n\n\nf(1)\n")


def test_a_deleted_statement_goes_with_its_line() -> None:
    edits = edits_of("a = 1\nb = 2\nc = 3\n")
    edits.delete(statement(edits, 2))
    check(edits, "a = 1\nc = 3\n")


@pytest.mark.parametrize("header", ["if f():", "for f in x():", "with f():", "def f():", "class F:", "while f():"])
def test_a_block_left_empty_holds_a_pass(header: str) -> None:
    edits = edits_of(f"{header}\n    b = 2\nc = 3\n")
    edits.delete(statement(edits, 2))
    check(edits, f"{header}\n    pass\nc = 3\n")


@pytest.mark.parametrize("test", ["a", "a.b", "a[0]", "a and not b"])
def test_an_if_left_empty_goes_with_a_test_that_does_nothing(test: str) -> None:
    edits = edits_of(f"if {test}:\n    b = 2\nc = 3\n")
    edits.delete(statement(edits, 2))
    check(edits, "c = 3\n")


def test_an_if_left_empty_before_its_else_asks_for_the_opposite() -> None:
    edits = edits_of("if a:\n    b = 2\nelse:\n    c = 3\n")
    edits.delete(statement(edits, 2))
    check(edits, "if not a:\n    c = 3\n")


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ("a", "d", "not a and d"),
        ("not a", "d or e", "a and (d or e)"),
        ("a or f", "d == 2", "not (a or f) and d == 2"),
    ],
)
def test_an_if_left_empty_before_an_elif_joins_it(first: str, second: str, both: str) -> None:
    edits = edits_of(f"if {first}:\n    b = 2\nelif {second}:\n    c = 3\n")
    edits.delete(statement(edits, 2))
    check(edits, f"if {both}:\n    c = 3\n")


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("if a:\n    ", "elif d:\n    c = 3\nelse:\n    c = 4\n"),
        ("if a:\n    ", "# or else\nelif d:\n    c = 3\n"),
        ("if f():\n    ", "elif d:\n    c = 3\n"),
        ("if a:\n    ", f"elif {'d' * 90}:\n    c = 3\n"),
    ],
)
def test_an_if_left_empty_before_what_cannot_be_joined_holds_a_pass(start: str, end: str) -> None:
    edits = edits_of(f"{start}b = 2\n{end}")
    edits.delete(statement(edits, 2))
    check(edits, f"{start}pass\n{end}")


def test_an_else_left_empty_goes() -> None:
    edits = edits_of("if a:\n    b = 2\nelse:\n    c = 3\n")
    edits.delete(statement(edits, 4))
    check(edits, "if a:\n    b = 2\n")


def test_one_of_several_statements_on_a_line_goes() -> None:
    edits = edits_of("a = 1; b = 2; c = 3  # three\n")
    edits.delete(edits.module.tree.body[1])
    check(edits, "a = 1; c = 3  # three\n")


def test_a_statement_becomes_several() -> None:
    edits = edits_of("if x:\n    step()  # go\n")
    edits.replace(statement(edits, 2), "one()", "two()")
    after = apply(edits)
    assert [line.split("  #")[0] for line in after.splitlines()] == ["if x:", "    one()", "    two()"]
    assert "# go" in after


def test_statements_stand_before_and_after_another() -> None:
    edits = edits_of("for x in y:\n\n    # why\n    step(x)\n")
    edits.insert_before(statement(edits, 4), "before()")
    edits.insert_after(statement(edits, 4), "after()")
    check(edits, "for x in y:\n\n    # why\n    before()\n    step(x)\n    after()\n")


@pytest.mark.parametrize("branch", ["body", "orelse"])
def test_a_branch_takes_the_place_of_its_if(branch: str) -> None:
    edits = edits_of("if a:\n    b = 1\n    # c\n    c = 2\nelse:\n    d = 3\ne = 4\n")
    edits.splice(statement(edits, 1), branch)  # type: ignore[arg-type]
    check(edits, {"body": "b = 1\n# c\nc = 2\ne = 4\n", "orelse": "d = 3\ne = 4\n"}[branch])


def test_an_elif_branch_takes_the_place_of_the_chain() -> None:
    edits = edits_of("if a:\n    b = 1\nelif c:\n    d = 2\nelse:\n    e = 3\n")
    edits.splice(statement(edits, 1), "orelse")
    check(edits, "if c:\n    d = 2\nelse:\n    e = 3\n")


def test_a_run_of_statements_goes_under_a_with() -> None:
    edits = edits_of("x = 1\n\n# forward\na = f(x)  # one\nb = g(a)\nc = 2\n")
    edits.wrap(statement(edits, 4), statement(edits, 5), "region()")
    check(edits, "x = 1\n\n# forward\nwith region():\n    a = f(x)  # one\n    b = g(a)\nc = 2\n")


def test_compound_statements_are_wrapped_with_all_they_hold() -> None:
    edits = edits_of("a = f(x)\nif a:\n    b = '''\n  text\n'''\nelse:\n    b = 2\n")
    edits.wrap(statement(edits, 1), statement(edits, 2), "region()")
    check(
        edits,
        "with region():\n    a = f(x)\n    if a:\n        b = '''\n  text\n'''\n    else:\n        b = 2\n",
    )


def test_a_moved_statement_takes_its_edits_along() -> None:
    edits = edits_of("for x in y:\n    clip(a)\n    if last:\n        step()\n")
    call = statement(edits, 2)
    edits.move(call, statement(edits, 4))
    edits.replace(first(edits, ast.Call).args[0], "b")
    check(edits, "for x in y:\n    if last:\n        clip(b)\n        step()\n")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_emitted_lines_end_as_the_file_does(newline: str) -> None:
    edits = edits_of(f"a = 1{newline}b = 2{newline}")
    edits.insert_after(statement(edits, 1), "if x:\n    y()")
    assert apply(edits) == f"a = 1{newline}if x:{newline}    y(){newline}b = 2{newline}"


def test_emitted_blocks_are_indented_as_the_file_is() -> None:
    edits = edits_of("if a:\n\tb = 1\n")
    edits.insert_after(statement(edits, 2), "if x:\n\ty()")
    check(edits, "if a:\n\tb = 1\n\tif x:\n\t\ty()\n")


def test_gone_knows_what_the_result_still_holds() -> None:
    edits = edits_of("a = f(b, c)\nd = 1\nif e:\n    g = 2\nelse:\n    h = 3\n")
    call = first(edits, ast.Call)
    edits.replace(call, ("k(", call.args[0], ")"))
    edits.delete(statement(edits, 2))
    edits.splice(statement(edits, 3), "orelse")
    body = edits.module.tree.body
    assert not edits.gone(call.args[0])
    assert edits.gone(call.args[1])
    assert edits.gone(body[1])
    assert edits.gone(statement(edits, 4))
    assert not edits.gone(statement(edits, 6))


def test_edits_of_two_rules_are_merged() -> None:
    one, text = edits_of("a = 1\nb = 2\n"), "a = 1\nb = 2\n"
    two = Edits(one.module)
    one.delete(statement(one, 1))
    two.insert_after(statement(one, 2), "c = 3")
    one.merge(two)
    assert text != apply(one) == "b = 2\nc = 3\n"


def test_what_a_finally_does_survives_the_body() -> None:
    edits = edits_of("try:\n    b = 2\nfinally:\n    c = 3\n")
    edits.delete(statement(edits, 2))
    assert "c = 3" in apply(edits)


def test_a_finally_left_empty_is_no_error() -> None:
    edits = edits_of("try:\n    a()\nfinally:\n    b = 1\n")
    edits.delete(statement(edits, 4))
    after = apply(edits)
    ast.parse(after)
    assert "a()\n" in after


def test_else_and_finally_of_a_try_without_a_body_keep_their_order() -> None:
    edits = edits_of("try:\n    b = 2\nexcept E:\n    c = 3\nelse:\n    d()\nfinally:\n    e()\n")
    edits.delete(statement(edits, 2))
    check(edits, "try:\n    d()\nfinally:\n    e()\n")


def test_comments_of_a_try_that_is_dissolved_stay() -> None:
    edits = edits_of("x = 1\n# why\ntry:\n    b()  # c\n    # end\nfinally:\n    d = 4\ny = 2\n")
    edits.delete(statement(edits, 7))
    check(edits, "x = 1\n# why\nb()  # c\n# end\ny = 2\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("print(f'{run(1)}')\n", "print(f'{run(\"a\")}')\n"),
        ('print(rf"{run(1):.4f}")\n', "print(rf\"{run('a'):.4f}\")\n"),
        ('print(f"""{run(1)}""")\n', 'print(f"""{run("a")}""")\n'),
        ("print(run(1))\n", 'print(run("a"))\n'),
    ],
)
def test_code_within_an_f_string_does_not_end_it(before: str, after: str) -> None:
    edits = edits_of(before)
    argument = next(n for n in ast.walk(edits.module.tree) if isinstance(n, ast.Constant) and n.value == 1)
    edits.replace(argument, "'a'" if before.startswith("print(f'") else '"a"')
    check(edits, after)


@pytest.mark.parametrize("keyword", ["with", "if"])
def test_emitted_text_is_reworded_wherever_it_stands(keyword: Literal["with", "if"]) -> None:
    edits = edits_of("a = 1\nb = f(old)\nc = 3 + d\n")
    edits.wrap(statement(edits, 2), statement(edits, 2), "asks(old) and cold", keyword)
    edits.replace(first(edits, ast.BinOp), "old")
    edits.reword({"old": "new"})
    check(edits, f"a = 1\n{keyword} asks(new) and cold:\n    b = f(old)\nc = new\n")
