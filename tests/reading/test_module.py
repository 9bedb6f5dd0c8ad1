"""What a name stands for in one file, and the text and scope of its nodes."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from amp_migrate.reading.program.module import Module


def module(text: str, name: str = "m") -> Module:
    return Module(Path(f"{name}.py"), textwrap.dedent(text).lstrip("\n"), name)


def meaning(text: str) -> str | None:
    """What the last expression of a file stands for."""
    m = module(text)
    last = [n for n in ast.walk(m.tree) if isinstance(n, ast.Expr)][-1]
    return m.qualify(last.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from apex import amp\namp.initialize", "apex.amp.initialize"),
        ("from apex import amp as mixed\nmixed.initialize", "apex.amp.initialize"),
        ("import apex\napex.amp.scale_loss", "apex.amp.scale_loss"),
        ("import apex.amp as a\na.scale_loss", "apex.amp.scale_loss"),
        ("import apex.amp\napex.amp.scale_loss", "apex.amp.scale_loss"),
        ("from apex.amp import scale_loss as scaled\nscaled", "apex.amp.scale_loss"),
        ("from apex.amp import *\nscale_loss", "apex.amp.scale_loss"),
        ("from apex.parallel import *\nDistributedDataParallel", "apex.parallel.DistributedDataParallel"),
        ("try:\n    from apex import amp\nexcept ImportError:\n    amp = None\namp.initialize", "apex.amp.initialize"),
        ("def f():\n    from apex import amp\n    amp.initialize", "apex.amp.initialize"),
        ("def f():\n    global amp\n    from apex import amp\ndef g():\n    amp.initialize", "apex.amp.initialize"),
        (
            "if x:\n from apex import amp\nelse:\n global amp\n amp = None\ndef g():\n amp.initialize",
            "apex.amp.initialize",
        ),
    ],
)
def test_names_are_resolved_through_every_form_of_import(text: str, name: str) -> None:
    assert meaning(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "amp = 3\namp.initialize",
        "from apex import amp\ndef f(amp):\n    amp.initialize",
        "from apex import amp\ndef f():\n    amp = thing()\n    amp.initialize",
        "from apex import amp\nself.amp.initialize",
        "import apex\ndef f(apex):\n    apex.amp",
        "initialize",
        "from apex.amp import *\nsomething_else",
    ],
)
def test_names_bound_nearer_are_others(text: str) -> None:
    assert meaning(text) is None


def test_relative_imports_are_resolved_in_their_package() -> None:
    m = Module(Path("pkg/train/loop.py"), "from ..tools import amp\nfrom . import step\n", "pkg.train.loop")
    assert m.root.imports == {"amp": "pkg.tools.amp", "step": "pkg.train.step"}


def test_a_class_body_is_not_seen_from_its_methods() -> None:
    assert meaning("class A:\n    from apex import amp\n    def f(self, amp):\n        amp.initialize") is None


@pytest.mark.parametrize("text", ["x = f(a,  b )", "x = f(\n  a, # why\n  b)", "π = g('é', b)", "x = '''a\n\tb'''"])
def test_the_text_of_a_node_is_byte_for_byte(text: str) -> None:
    m = module(f"if True:\n    pass\n{text}\n")
    assert m.source(m.tree.body[1]) == text


def test_columns_count_characters_that_take_several_bytes() -> None:
    m = module("s = 'ü'; t = f(x)\n")
    call = next(n for n in ast.walk(m.tree) if isinstance(n, ast.Call))
    assert m.source(call) == "f(x)"


def test_decorators_and_defaults_are_evaluated_outside_the_function() -> None:
    m = module("def f():\n    @deco(x)\n    def g(a=y):\n        return z\n")
    scopes = {n.id: m.scope_of(n).name for n in ast.walk(m.tree) if isinstance(n, ast.Name)}
    assert scopes["z"] == "g"
    assert scopes["x"] == "f"
    assert scopes["deco"] == "f"


def test_self_is_the_first_parameter_of_the_method_also_from_nested_functions() -> None:
    m = module("class A:\n    def f(this):\n        def g():\n            return this.x\n")
    inner = next(s for s in m.scopes.values() if s.name == "g")
    assert inner.self_name == "this"
    assert inner.owner_class is not None
    assert inner.owner_class.name == "A"


@pytest.mark.parametrize("text", ["def f(:\n", "print 'two'\n", "x = (\n"])
def test_what_does_not_parse_raises(text: str) -> None:
    with pytest.raises(SyntaxError):
        module(text)


def test_deeply_nested_expressions_are_read_without_recursion() -> None:
    m = module("x = " + "+".join(["f(1)"] * 800) + "\n")
    assert len([n for n in m.parents if isinstance(n, ast.Call)]) == 800


@pytest.mark.parametrize(
    ("written", "quoted"),
    [
        ("args\n    .level", "args.level"),
        ("args . level", "args.level"),
        ("args.level[\n    0]", "args.level[\n    0]"),
        ("a\n    or b  # both", "a or b"),
        ("𝐚rgs.level", "args.level"),
        ("args . level  ( 1 )", "args . level  ( 1 )"),
        ("'𝐚'", "'𝐚'"),
    ],
)
def test_an_expression_is_quoted_so_that_it_reads_as_itself_anywhere(written: str, quoted: str) -> None:
    found = module(f"x = ({written}\n)\n")
    (statement,) = found.tree.body
    assert isinstance(statement, ast.Assign)
    assert found.source(statement.value) == quoted
    assert found.verbatim(statement.value) == written.partition("  #")[0]
