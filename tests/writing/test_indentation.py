"""Statements that change their depth take their continuation lines along; new blocks are as deep as those around them."""

from __future__ import annotations

import ast
import textwrap

import pytest

from tests.writing.test_edits import check, edits_of, statement


def test_lines_continued_by_a_backslash_are_indented_with_their_statement() -> None:
    edits = edits_of(
        """
        def f():
            loss = a * \\
                b + \\
                c
            if loss:
                loss = loss \\
                    .mean()
        """
    )
    edits.wrap(statement(edits, 2), statement(edits, 5), "region")
    check(
        edits,
        """
        def f():
            with region:
                loss = a * \\
                    b + \\
                    c
                if loss:
                    loss = loss \\
                        .mean()
        """,
    )


def test_the_inside_of_a_string_stays_as_it_is() -> None:
    text = 'def f():\n    s = "a \\\n  b"\n    t = """\\\n  c\n"""\n'
    edits = edits_of(text)
    edits.wrap(statement(edits, 2), statement(edits, 4), "region")
    check(edits, 'def f():\n    with region:\n        s = "a \\\n  b"\n        t = """\\\n  c\n"""\n')


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("step", ["  ", "\t"])
def test_any_newline_and_step_will_do(newline: str, step: str) -> None:
    rows = ["def f():", f"{step}x = a + \\", f"{step * 2}b", ""]
    edits = edits_of(newline.join(rows))
    edits.wrap(statement(edits, 2), statement(edits, 2), "region")
    check(edits, newline.join(["def f():", f"{step}with region:", f"{step * 2}x = a + \\", f"{step * 3}b", ""]))


def test_continuation_lines_move_up_with_a_branch_that_is_the_only_one() -> None:
    edits = edits_of(
        """
        if flag:
            x = a + \\
                b
        else:
            x = 1
        """
    )
    edits.splice(statement(edits, 1))
    check(edits, "x = a + \\\n    b\n")


def test_continuation_lines_move_along_to_another_place() -> None:
    edits = edits_of(
        """
        for x in y:
            a = b + \\
                c
            if x:
                step()
        """
    )
    edits.move(statement(edits, 2), statement(edits, 5))
    check(
        edits,
        """
        for x in y:
            if x:
                a = b + \\
                    c
                step()
        """,
    )


FIRST_BODY_DEEP = """
def f(x):
            a = x
            for i in x:
                b(i)
                if i:
                    c(i)
            return a
"""


@pytest.mark.parametrize("line", [2, 4, 6])
def test_a_region_is_as_deep_as_the_blocks_around_it_and_not_as_the_first_body_of_the_file(line: int) -> None:
    edits = edits_of(FIRST_BODY_DEEP)
    stmt = statement(edits, line)
    edits.wrap(stmt, stmt, "region")
    rows = textwrap.dedent(FIRST_BODY_DEEP).lstrip("\n").splitlines()
    column = len(rows[line - 1]) - len(rows[line - 1].lstrip())
    rows[line - 1] = " " * (column + 4) + rows[line - 1].lstrip()
    rows.insert(line - 1, " " * column + "with region:")
    check(edits, "\n".join(rows) + "\n")


def test_a_function_without_blocks_follows_its_file() -> None:
    edits = edits_of("def f():\n        a()\n\nclass C:\n  x = 1\n  class D:\n    y = 1\n")
    edits.wrap(statement(edits, 2), statement(edits, 2), "region")
    after = "def f():\n        with region:\n          a()\n\nclass C:\n  x = 1\n  class D:\n    y = 1\n"
    check(edits, after)
    assert ast.parse(after)


def test_a_comment_right_above_a_statement_goes_where_it_goes_and_one_further_up_stays() -> None:
    edits = edits_of(
        """
        for x in y:
            # About the weather.

            # About a.
            a = x
            b = x

            if x:
                step()
        """
    )
    edits.move(statement(edits, 5), statement(edits, 9))
    check(
        edits,
        """
        for x in y:
            # About the weather.

            b = x

            if x:
                # About a.
                a = x
                step()
        """,
    )


def test_a_compound_statement_moves_with_the_comment_right_above_it() -> None:
    edits = edits_of("for x in y:\n    # Kept.\n\n    # Gone along.\n    if x:\n        a()\n    b()\n    c()\n")
    edits.move(statement(edits, 5), statement(edits, 8))
    check(edits, "for x in y:\n    # Kept.\n\n    b()\n    # Gone along.\n    if x:\n        a()\n    c()\n")
