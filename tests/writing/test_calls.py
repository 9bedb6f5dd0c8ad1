from __future__ import annotations

import ast
from pathlib import Path

import pytest

from amp_migrate.reading.program.module import Module
from amp_migrate.writing.calls import Argument, arguments_of, call_code
from amp_migrate.writing.edits import Edits


def again(source: str, function: str, keep: str, add: str = "", label: str = "", suffix: str = "") -> str:
    """The call that `source` holds, written again with the arguments whose positions are in `keep`."""
    module = Module(Path("x.py"), source)
    call = next(n for n in ast.walk(module.tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name))
    order = arguments_of(call)
    arguments = [Argument(order[int(i)], label if i == keep[-1] else "") for i in keep]
    if add:
        arguments.append(Argument(None, add))
    code = call_code(module, call, function, arguments, suffix)
    return Edits(module).render(code)


@pytest.mark.parametrize(
    ("source", "keep", "add", "wanted"),
    [
        ("f(a, b, c)", "012", "", "gg(a, b, c)"),
        ("f(a, b, c)", "02", "", "gg(a, c)"),
        ("f(a, b, c)", "12", "", "gg(b, c)"),
        ("f(a, b, c)", "210", "", "gg(c, b, a)"),
        ("f(a, b)", "01", "d=1", "gg(a, b, d=1)"),
        ("f( a , b )", "01", "", "gg( a, b )"),
        ("f((a), k=(b + 1))", "01", "", "gg((a), k=(b + 1))"),
        ("f(a, *b, k=1, **c)", "03", "", "gg(a, **c)"),
        ("f('(,', {1: 2}, [3, 4])", "02", "", "gg('(,', [3, 4])"),
        ("f(é, 'ü', b)", "02", "", "gg(é, b)"),
        ("f(x for x in y)", "0", "", "gg((x for x in y))"),
        ("f(x for x in y)", "0", "k=1", "gg((x for x in y), k=1)"),
        ("f(lambda a, b: (a, b), c)", "0", "", "gg(lambda a, b: (a, b))"),
    ],
)
def test_arguments_on_one_line(source: str, keep: str, add: str, wanted: str) -> None:
    assert again(source, "gg", keep, add) == wanted
    ast.parse(wanted)


@pytest.mark.parametrize(
    ("source", "keep", "add", "wanted"),
    [
        ("f(a,\n  b,\n  c)", "02", "", "longer(a,\n       c)"),  # aligned with the parenthesis: moves with it
        ("f(a,\n    b,\n    c)", "02", "", "longer(a,\n    c)"),  # indented: stays
        ("f(\n    a,\n    b,\n)", "01", "k=1", "longer(\n    a,\n    b,\n    k=1,\n)"),
        ("f(\n    a,\n    b,\n)", "0", "", "longer(a)"),
        ("f(\n    a,\n)", "0", "", "longer(\n    a,\n)"),
        ("f(\n    a,  # one\n    b,  # two\n    c,  # three\n)", "02", "", None),
        ("f(a,  # one\n  b,\n  c)", "02", "", "longer(a,  # one\n       c)"),
        ("f(a,\n  # about b\n  b,\n  c)", "02", "", "longer(a,\n       c)"),
        ("f(a,\r\n  b,\r\n  c)", "02", "", "longer(a,\r\n       c)"),
        ("f(a \\\n  , \\\n  b, c \\\n)", "01", "k=1", "longer(a, \\\n       b, \\\n       k=1 \\\n)"),
        ("f(a  # one\n  , b)", "01", "k=1", "longer(a  # one\n  , b, k=1)"),
        ("f(a  # one\n  , b  # '#'\n)", "01", "k=1", "longer(a  # one\n  , b  # '#'\n, k=1)"),
        ("f('#', '#'\n)", "01", "k=1", "longer('#', '#', k=1\n)"),
        ("f(x for x in y\n)", "0", "k=1", "longer((x for x in y\n), k=1)"),
        ("f(a \\\r\n  , b)", "01", "k=1", "longer(a, b, k=1)"),
        ("f('\x0c\u2028', a,\n  b)", "012", "k=1", "longer('\x0c\u2028', a,\n       b,\n       k=1)"),
    ],
)
def test_arguments_on_several_lines(source: str, keep: str, add: str, wanted: str | None) -> None:
    got = again(source, "longer", keep, add)
    ast.parse(got)
    if wanted is not None:
        assert got == wanted
    else:
        assert "# two" not in got
        assert got.startswith("longer(\n    a,  # one\n    c,")


def test_a_label_turns_a_position_into_a_keyword() -> None:
    assert again("f(a, (b))", "g", "01", label="k=") == "g(a, k=(b))"


def test_what_follows_the_call() -> None:
    assert again("f(\n    a\n)", "g", "0", suffix="[0]") == "g(a)[0]"


def test_edits_inside_an_argument_are_carried_out() -> None:
    module = Module(Path("x.py"), "f(a, old.name)\n")
    call = next(n for n in ast.walk(module.tree) if isinstance(n, ast.Call))
    edits = Edits(module)
    edits.replace(call.args[1], "new.name")
    edits.replace(call, call_code(module, call, "g", [Argument(a) for a in call.args]))
    assert edits.text(call) == "g(a, new.name)"
