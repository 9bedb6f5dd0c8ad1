"""The optimizer under another name, and its step made in other words."""

from __future__ import annotations

import ast
from collections.abc import Callable

from tests.metamorphic.program import Project, Reading, expression, is_optimizer, statements


def _local(reading: Reading, step: ast.Expr) -> ast.stmt | None:
    """The statement from which on the optimizer of a step is the same object: None if it is bound inside the loop."""
    assert isinstance(step.value, ast.Call)
    assert isinstance(step.value.func, ast.Attribute)
    start = reading.start(step)
    text = ast.unparse(step.value.func.value)
    for node in ast.walk(start):
        if (
            isinstance(node, (ast.Name, ast.Attribute))
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node) == text
        ):
            return None
    return start


def _optimizer(step: ast.Expr) -> ast.expr:
    assert isinstance(step.value, ast.Call)
    assert isinstance(step.value.func, ast.Attribute)
    return step.value.func.value


def in_place(make: Callable[[str], str]) -> Callable[[Reading], Project | None]:
    """Every step written as the statements `make` returns for the optimizer's expression."""

    def transform(reading: Reading) -> Project | None:
        for step in reading.steps:
            reading.replace(step, *statements(make(ast.unparse(_optimizer(step)))))
        return reading.project()

    def applicable(reading: Reading) -> Project | None:
        return transform(reading) if reading.steps else None

    return applicable


def prepared(name: str, before: str, step: str, define: str = "") -> Callable[[Reading], Project | None]:
    """A line put before the loop, and each step in it written with what that line made.

    `{name}` is a fresh name, `{optimizer}` the optimizer's expression.
    """

    def transform(reading: Reading) -> Project | None:
        done: dict[tuple[ast.stmt, str], str] = {}
        changed = False
        for statement in reading.steps:
            start = _local(reading, statement)
            if start is None:
                continue
            optimizer = ast.unparse(_optimizer(statement))
            if start is statement:
                made = reading.fresh(name)
                reading.insert(start, *statements(before.format(name=made, optimizer=optimizer)))
            elif (start, optimizer) not in done:
                made = done[start, optimizer] = reading.fresh(name)
                reading.insert(start, *statements(before.format(name=made, optimizer=optimizer)))
            else:
                made = done[start, optimizer]
            reading.replace(statement, *statements(step.format(name=made, optimizer=optimizer)))
            changed = True
        if not changed:
            return None
        if define:
            reading.define(*statements(define))
        return reading.project()

    return transform


def alias_everywhere(reading: Reading) -> Project | None:
    """The whole loop speaks of the optimizer under another name."""
    done: dict[tuple[ast.stmt, str], str] = {}
    for statement in reading.steps:
        start = _local(reading, statement)
        if start is None or start is statement:
            continue
        optimizer = ast.unparse(_optimizer(statement))
        if (start, optimizer) in done:
            continue
        name = done[start, optimizer] = reading.fresh("trainable")
        for node in list(ast.walk(start)):
            if isinstance(node, (ast.Name, ast.Attribute)) and is_optimizer(node) and ast.unparse(node) == optimizer:
                reading.swap(node, expression(name))
        reading.insert(start, *statements(f"{name} = {optimizer}"))
    return reading.project() if done else None


HELPER = "def apply_gradients(optimizer):\n    optimizer.step()\n"
CLASS = "class Updater:\n    def __init__(self, optimizer):\n        self.optimizer = optimizer\n"

TRANSFORMS = {
    "alias": prepared("opt_alias", "{name} = {optimizer}", "{name}.step()"),
    "alias everywhere": alias_everywhere,
    # Taken just before it is called: Apex puts another `step` in the optimizer's place after an overflow.
    "step as a value": in_place("advance = {}.step\nadvance()".format),
    "step by getattr": in_place('getattr({}, "step")()'.format),
    "step in a lambda": prepared("advance", "{name} = lambda: {optimizer}.step()", "{name}()"),
    "step in a loop of one": in_place("for _ in range(1):\n    {}.step()".format),
    "step in a helper": prepared("apply", "", "apply_gradients({optimizer})", HELPER),
    "step in a method": prepared(
        "updater",
        "{name} = Updater({optimizer})",
        "{name}.update()",
        CLASS + "    def update(self):\n        self.optimizer.step()\n",
    ),
    "step in a callable object": prepared(
        "updater",
        "{name} = Updater({optimizer})",
        "{name}()",
        CLASS + "    def __call__(self):\n        self.optimizer.step()\n",
    ),
    "step of a static method": prepared(
        "updater",
        "",
        "Updater.update({optimizer})",
        "class Updater:\n    @staticmethod\n    def update(optimizer):\n        optimizer.step()\n",
    ),
}
