"""Several edits of one signature, or of one call: each knows nothing of the others, and Python asks for an order."""

from __future__ import annotations

import ast
from itertools import permutations

import pytest

from tests.writing.test_edits import check, edits_of, first


@pytest.mark.parametrize("texts", list(permutations([", scaler", ", amp=False", ",\n    *,\n    scale"])))
def test_parameters_behind_one_come_in_the_order_that_python_asks_for(texts: tuple[str, ...]) -> None:
    edits = edits_of("def f(a): pass\n")
    for text in texts:
        edits.insert("after", first(edits, ast.arg), text)
    check(edits, "def f(a, scaler, amp=False,\n    *,\n    scale): pass\n")


def test_what_is_done_to_a_default_stays_with_it() -> None:
    edits = edits_of("def f(a=x): pass\n")
    default = first(edits, ast.FunctionDef).args.defaults[0]
    for text in (", *, scaler", ".float()", ", scale=None"):
        edits.insert("after", default, text)
    check(edits, "def f(a=x.float(), scale=None, *, scaler): pass\n")


@pytest.mark.parametrize(
    ("before", "texts", "after"),
    [
        ("def f(): pass", [", scaler"], "def f(scaler): pass"),
        ("def f(): pass", [", *, scale", ", scaler"], "def f(scaler, *, scale): pass"),
        ("def f(**kw): pass", [", *, scaler"], "def f(*, scaler, **kw): pass"),
        ("def f(**kw): pass", [", *, scaler", ", *, scale"], "def f(*, scaler, scale, **kw): pass"),
        (
            "def f(): pass",
            [",\n    *,\n    scaler", ",\n    *,\n    scale"],
            "def f(\n    *,\n    scaler,\n    scale): pass",
        ),
    ],
)
def test_an_empty_signature_takes_several(before: str, texts: list[str], after: str) -> None:
    edits = edits_of(f"{before}\n")
    for text in texts:
        edits.insert("within", first(edits, ast.arguments), text)
    check(edits, f"{after}\n")


@pytest.mark.parametrize(
    ("before", "after"), [("f()", "f(a=1, b=2)"), ("(f)( )", "(f)( a=1, b=2)"), ("f()()", "f()(a=1, b=2)")]
)
def test_a_call_without_arguments_takes_several(before: str, after: str) -> None:
    edits = edits_of(f"x = {before}\n")
    for text in (", a=1", ", b=2"):
        edits.insert("within", first(edits, ast.Call), text)
    check(edits, f"x = {after}\n")


def test_what_two_units_add_to_one_signature_stands_there_once() -> None:
    edits, others = edits_of("def f(a, b=1): pass\n"), edits_of("def f(a, b=1): pass\n")
    others.module = edits.module
    default = first(edits, ast.FunctionDef).args.defaults[0]
    edits.insert("after", default, ", *, scaler")
    others.insert("after", default, ", *, scale")
    others.insert("after", default, ", *, scaler")
    edits.merge(others)
    check(edits, "def f(a, b=1, *, scaler, scale): pass\n")


def test_beside_a_call_and_an_expression_nothing_is_put_in_order() -> None:
    edits = edits_of("x = f(a)\n")
    call = first(edits, ast.Call)
    for text in (", b=1", ", c"):
        edits.insert("after", call.args[0], text)
    assert edits.text(call) == "f(a, b=1, c)"
