"""What is left of an `if` whose branches have become the same, and of one that holds an emitted `if` alone."""

from __future__ import annotations

import ast

import pytest

from amp_migrate.writing.apply import apply
from tests.rules.helpers import rewrite
from tests.writing.test_edits import check, edits_of

TWO = """
    # what follows
    if {test}:
        f(a, 1)  # the call
        g()
    else:
        f(b, 1)
        g()

    h()
    """


def alike(text: str) -> str:
    """The text after every `b` has become `a`."""
    edits = edits_of(text)
    for name in (n for n in ast.walk(edits.module.tree) if isinstance(n, ast.Name) and n.id == "b"):
        edits.replace(name, "a")
    return apply(edits)


def test_of_branches_that_have_become_the_same_one_is_left() -> None:
    assert alike(TWO.format(test="args.several")) == "# what follows\nf(a, 1)  # the call\ng()\n\nh()\n"


@pytest.mark.parametrize("test", ["take()", "(x := y)", "queue.pop(0) is None"])
def test_a_test_that_does_something_stays(test: str) -> None:
    assert f"if {test}:\n    f(a, 1)" in alike(TWO.format(test=test))


@pytest.mark.parametrize(
    "text",
    [
        "if t:\n    f(a)\nelse:\n    f(a)\nb\n",  # the program's own
        "if t:\n    f(a)\nelse:\n    # another reason\n    f(b)\n",
        "if t:  # why\n    f(a)\nelse:\n    f(b)\n",
        "if t:\n    f(a)\nelse:\n    f(b)\n    g()\n",
        "if t:\n    f(a)\nelif u:\n    f(b)\n",
    ],
)
def test_branches_that_say_more_stay(text: str) -> None:
    assert alike(text) == text.replace("b)", "a)").replace("\nb\n", "\na\n")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("if t:\n    f(a)\nelif u:\n    f(b)\nelse:\n    f(a)\n", "f(a)\n"),
        ("if t:\n    f(c)\nelif u:\n    f(b)\nelse:\n    f(a)\n", "if t:\n    f(c)\nelse:\n    f(a)\n"),
        ("if t: f(a)\nelse: f(b)\nx\n", "f(a)\nx\n"),
        ("if t:\n    f(a,\n      c)\nelse:\n    f(b, c)\n", "f(a,\n      c)\n"),
        ("if t:\n    if u:\n        f(a)\n    else:\n        f(b)\n", "if t:\n    f(a)\n"),
    ],
)
def test_branches_in_every_place(text: str, wanted: str) -> None:
    after = alike(text)
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(wanted))
    assert after.count("\n") == wanted.count("\n")


def test_an_emitted_if_alone_in_another_is_asked_for_there() -> None:
    edits = edits_of("if t or u:\n    f()  # once\n\nx\n")
    edits.replace(edits.module.tree.body[0].body[0], "if v:\n    g()")  # type: ignore[attr-defined]
    check(edits, "if (t or u) and v:\n    g()\n\nx\n")


def test_one_backward_is_left_of_two_for_one_or_several_optimizers() -> None:
    result = rewrite(
        """
        import torch
        from apex import amp
        from project import args, build, loader

        model = build()
        one = torch.optim.SGD(model.body.parameters(), lr=0.1)
        two = torch.optim.SGD(model.head.parameters(), lr=0.1)
        if args.several:
            model, [one, two] = amp.initialize(model, [one, two], opt_level="O1")
        else:
            model, one = amp.initialize(model, one, opt_level="O1")
        for x in loader:
            model.zero_grad()
            loss = model(x).sum()
            if args.several:
                with amp.scale_loss(loss, [one, two]) as scaled_loss:
                    scaled_loss.backward()
            else:
                with amp.scale_loss(loss, one) as scaled_loss:
                    scaled_loss.backward()
            one.step()
            if args.several:
                two.step()
        """
    )
    assert result.after is not None
    assert "    scaler.scale(loss).backward()\n    scaler.step(one)\n    if args.several:\n" in result.after
