"""Exceptions of a step that the program survives, and what they leave the scaler in: AMP234."""

from __future__ import annotations

import textwrap

import pytest
import torch

from tests.audit.helpers import doubts, told
from tests.rules.helpers import rewrite

PROGRAM = """
import contextlib
import sys
import torch
from contextlib import contextmanager
HEAD

@contextmanager
def skip_errors():
    try:
        yield
    except RuntimeError:
        torch.cuda.empty_cache()

@contextmanager
def timed():
    try:
        yield
    finally:
        print("done")

def attempt(function, *args):
    try:
        return function(*args)
    except Exception as error:
        print(error)

def step(GIVEN, x):
    loss = model(x).sum()
    STEP

class Trainer:
    def one(self, x):
        return step(GIVEN, x)

INITIALIZE
trainer = Trainer()
BODY
"""
STEP = "with amp.scale_loss(loss, optimizer) as scaled:\n        scaled.backward()\n    optimizer.step()"
STEP_NOW = "scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()"


def found(body: str, now: str = STEP_NOW, program: str = PROGRAM) -> list[tuple[int, str]]:
    """The lines and verdicts told of a program that runs `step` as `body` says."""
    whole = program.replace("BODY", textwrap.dedent(body).strip())
    before = whole.replace("HEAD", "from apex import amp").replace("STEP", STEP).replace("GIVEN", "optimizer")
    before = before.replace("INITIALIZE", "model, optimizer = amp.initialize(model, optimizer)")
    after = whole.replace("HEAD\n", "").replace("STEP", now).replace("GIVEN", "optimizer, scaler")
    after = after.replace("INITIALIZE", "scaler = torch.amp.GradScaler()").replace(
        "(step, optimizer", "(step, optimizer, scaler"
    )
    return told(doubts(before, after), "AMP234")


@pytest.mark.parametrize(
    "body",
    [
        "for x in loader:\n    with skip_errors():\n        step(GIVEN, x)",
        "for x in loader:\n    with contextlib.suppress(RuntimeError):\n        step(GIVEN, x)",
        "for x in loader:\n    try:\n        step(GIVEN, x)\n    except:\n        continue",
        "for x in loader:\n    try:\n        step(GIVEN, x)\n    except RuntimeError as e:\n"
        "        if 'out of memory' not in str(e):\n            raise",
        "for x in loader:\n    try:\n        trainer.one(x)\n    except (ValueError, torch.cuda.OutOfMemoryError):\n        pass",
        "while True:\n    try:\n        for x in loader:\n            step(GIVEN, x)\n        break\n"
        "    except RuntimeError:\n        size //= 2",
        "for epoch in range(9):\n    for x in loader:\n        try:\n            step(GIVEN, x)\n"
        "        except RuntimeError:\n            break",
        "for x in loader:\n    attempt(step, optimizer, x)",
    ],
)
def test_a_program_that_goes_on(body: str) -> None:
    ((_, verdict),) = found(body)
    assert verdict == "look"


@pytest.mark.parametrize(
    "body",
    [
        "for x in loader:\n    with timed():\n        step(GIVEN, x)",
        "for x in loader:\n    try:\n        step(GIVEN, x)\n    except RuntimeError:\n        print('oh')\n        raise",
        "for x in loader:\n    try:\n        step(GIVEN, x)\n    except RuntimeError:\n        sys.exit(1)",
        "for x in loader:\n    try:\n        step(GIVEN, x)\n    except RuntimeError:\n        break",
        "def run():\n    for epoch in range(9):\n        for x in loader:\n            try:\n                step(GIVEN, x)\n"
        "            except RuntimeError:\n                return\nrun()",
        "for x in loader:\n    try:\n        step(GIVEN, x)\n    except (KeyboardInterrupt, StopIteration):\n        continue",
        "try:\n    for x in loader:\n        step(GIVEN, x)\nexcept RuntimeError:\n    print('over')",
        "for x in loader:\n    try:\n        x = next(loader)\n    except RuntimeError:\n        continue\n    step(GIVEN, x)",
        "for x in loader:\n    step(GIVEN, x)",
    ],
)
def test_a_program_that_does_not_or_that_catches_nothing_of_a_step(body: str) -> None:
    assert not found(body)


@pytest.mark.parametrize(
    ("made", "times"),
    [
        ("scaler = torch.amp.GradScaler()", 0),
        ("scaler = begin()", 1),
        ("global scaler; scaler = torch.amp.GradScaler()", 0),
        ("other = torch.amp.GradScaler()", 1),
    ],
)
def test_a_turn_that_makes_a_scaler_of_its_own_goes_on_with_that(made: str, times: int) -> None:
    line = made.partition("; ")[2] or made
    body = (
        f"def prepare():\n    {made}\nfor x in loader:\n    prepare()\n    try:\n        step(GIVEN, x)\n"
        "    except RuntimeError:\n        continue"
        if made.startswith("global")
        else f"for x in loader:\n    {line}\n    try:\n        step(GIVEN, x)\n    except RuntimeError:\n        continue"
    )
    assert len(found(body)) == times


@pytest.mark.parametrize(("given", "told"), [("False", 0), ("True", 1), ("x is not None", 1)])
def test_a_call_that_keeps_from_the_step_raises_nothing_there(given: str, told: int) -> None:
    body = "for x in loader:\n    try:\n        step(GIVEN, x, go=FLAG)\n    except RuntimeError:\n        continue"
    now = "scaler.scale(loss).backward()\n    if go:\n        scaler.step(optimizer)\n        scaler.update()"
    program = PROGRAM.replace("def step(GIVEN, x)", "def step(GIVEN, x, go=True)")
    assert len(found(body.replace("FLAG", given), now, program)) == told


def test_an_update_that_no_exception_leaves_out() -> None:
    body = "for x in loader:\n    with skip_errors():\n        step(GIVEN, x)"
    safe = "try:\n        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n    finally:\n        scaler.update()"
    assert not found(body, safe)
    behind = "try:\n        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n    except RuntimeError:\n        pass\n"
    assert not found("for x in loader:\n    step(GIVEN, x)", f"{behind}    scaler.update()")


def test_it_is_told_of_what_the_rules_write() -> None:
    loop = """
        import torch
        from apex import amp

        model = torch.nn.Linear(4, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in loader:
            try:
                loss = model(x).sum()
                optimizer.zero_grad()
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
                optimizer.step()
            except RuntimeError as e:
                END
    """
    assert [f.review for f in rewrite(loop.replace("END", "print(e)")).findings if f.code == "AMP234"] == ["look"]
    assert not [f for f in rewrite(loop.replace("END", "raise")).findings if f.code == "AMP234"]


BACKWARD = """
import torch
HEAD

def train(model, optimizer, loader, n):
    SETUP
    for i, x in enumerate(loader):
        done = True
        loss = model(x).sum()
        try:
            BACKWARD
        except HANDLED as error:
            HANDLER
        LATER
        if (i + 1) % n == 0TEST:
            STEP
            optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("handled", "handler", "test", "told_of"),
    [
        ("Exception", "print(error)", "", True),
        ("RuntimeError", "torch.cuda.empty_cache()", "", True),
        ("RuntimeError", "if 'memory' not in str(error): raise", "", True),
        ("Exception", "continue", "", False),
        ("Exception", "raise", "", False),
        ("KeyError", "print(error)", "", False),
        ("Exception", "done = False", " and done", False),
    ],
)
def test_a_backward_whose_exception_is_survived_may_leave_the_step_without_gradients(
    handled: str, handler: str, test: str, told_of: bool
) -> None:
    whole = BACKWARD.replace("HANDLED", handled).replace("HANDLER", handler).replace("TEST", test)
    whole = whole.replace("LATER", "torch.cuda.synchronize()")
    apex = "with amp.scale_loss(loss, optimizer) as scaled:\n                scaled.backward()"
    before = whole.replace("HEAD", "from apex import amp").replace("BACKWARD", apex)
    before = before.replace("SETUP", "model, optimizer = amp.initialize(model, optimizer)")
    before = before.replace("STEP", "optimizer.step()")
    after = whole.replace("HEAD", "").replace("BACKWARD", "scaler.scale(loss).backward()")
    after = after.replace("SETUP", "scaler = torch.amp.GradScaler('cuda')")
    after = after.replace("STEP", "scaler.step(optimizer)\n            scaler.update()")
    assert bool(told(doubts(before, after), "AMP236")) is told_of


APART = """
import torch
HEAD

def backward(loss, GIVEN):
    try:
        BACKWARD
    except RuntimeError as error:
        HANDLER

def run(loss, GIVEN, more=False):
    if more:
        run(loss, GIVEN)
    backward(loss, GIVEN)

def train(model, optimizer, loader):
    SETUP
    for x in loader:
        CALLED(model(x).sum(), GIVEN)
        STEP
        optimizer.zero_grad()
"""


def apart(program: str) -> bool:
    """Whether a step without gradients is told of a program that is migrated."""
    before = program.replace("HEAD", "from apex import amp").replace("GIVEN", "optimizer")
    before = before.replace(
        "BACKWARD", "with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()"
    )
    before = before.replace("SETUP", "model, optimizer = amp.initialize(model, optimizer)")
    after = program.replace("HEAD", "").replace("GIVEN", "scaler").replace("BACKWARD", "scaler.scale(loss).backward()")
    after = after.replace("SETUP", "scaler = torch.amp.GradScaler('cuda')")
    after = after.replace("STEP", "scaler.step(optimizer)\n        scaler.update()")
    return bool(told(doubts(before.replace("STEP", "optimizer.step()"), after), "AMP236"))


@pytest.mark.parametrize("called", ["backward", "run"])
@pytest.mark.parametrize(("handler", "told_of"), [("print(error)", True), ("raise", False)])
def test_a_step_of_the_callers_may_come_without_gradients(called: str, handler: str, told_of: bool) -> None:
    assert apart(APART.replace("HANDLER", handler).replace("CALLED", called)) is told_of


def test_what_is_only_defined_in_a_try_is_not_caught_by_it() -> None:
    body = "    try:\n        BACKWARD\n    except RuntimeError as error:\n        HANDLER\n"
    inner = "    def backward(loss, GIVEN):\n        BACKWARD\n"
    program = APART.replace(
        f"def backward(loss, GIVEN):\n{body}", f"try:\n{inner}except RuntimeError as error:\n    print(error)\n"
    )
    assert not apart(program.replace("CALLED", "backward"))


def test_what_a_step_without_gradients_raises() -> None:
    """torch's own GradScaler: what the finding says of it."""
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(parameter.sum())  # the backward did not come to a gradient
    with pytest.raises(AssertionError, match="No inf checks were recorded"):
        scaler.step(optimizer)
    torch.optim.SGD([parameter], lr=0.1).step()  # as under Apex: nothing
    assert parameter.item() == 1
