"""`amp.initialize` in other words or another place."""

from __future__ import annotations

import ast

from tests.metamorphic.program import Project, Reading, expression, statements
from tests.metamorphic.transforms.backwards import _module_level


def _assigned(reading: Reading) -> list[tuple[ast.Assign, ast.Call]]:
    """The statements `model, optimizer = amp.initialize(...)`."""
    calls = reading.initialized
    return [(s, s.value) for s in reading.all(ast.Assign) if s.value in calls and isinstance(s.value, ast.Call)]


def result_held(reading: Reading) -> Project | None:
    """`prepared = amp.initialize(...); model, optimizer = prepared`."""
    found = _assigned(reading)
    for statement, call in found:
        name = reading.fresh("prepared")
        reading.insert(statement, *statements(f"{name} = {ast.unparse(call)}"))
        statement.value = expression(name)
    return reading.project() if found else None


def result_indexed(reading: Reading) -> Project | None:
    """`prepared = amp.initialize(...); model = prepared[0]; optimizer = prepared[1]`."""
    changed = False
    for statement, call in _assigned(reading):
        (target,) = statement.targets
        if not isinstance(target, ast.Tuple) or not all(isinstance(t, (ast.Name, ast.Attribute)) for t in target.elts):
            continue
        name = reading.fresh("prepared")
        lines = [f"{ast.unparse(t)} = {name}[{i}]" for i, t in enumerate(target.elts)]
        reading.replace(statement, *statements("\n".join([f"{name} = {ast.unparse(call)}", *lines])))
        changed = True
    return reading.project() if changed else None


def result_dropped(reading: Reading) -> Project | None:
    """The result goes unused: Apex changes the optimizer and, below O3, the model in place."""
    changed = False
    for statement, call in _assigned(reading):
        level = next(
            (k.value.value for k in call.keywords if k.arg == "opt_level" and isinstance(k.value, ast.Constant)), ""
        )
        given = ", ".join(ast.unparse(a) for a in call.args)
        if level == "O1" and given == ast.unparse(statement.targets[0]).strip("()"):
            reading.replace(statement, ast.Expr(call))
            changed = True
    return reading.project() if changed else None


def by_keyword(reading: Reading) -> Project | None:
    """`amp.initialize(models=model, optimizers=optimizer)`."""
    changed = False
    for call in reading.initialized:
        if call.args:
            given = [ast.keyword(n, v) for n, v in zip(("models", "optimizers", "enabled"), call.args, strict=False)]
            call.args, call.keywords = [], [*given, *call.keywords]
            changed = True
    return reading.project() if changed else None


def options_in_dict(reading: Reading) -> Project | None:
    """`options = {"opt_level": "O1"}; amp.initialize(model, optimizer, **options)`."""
    changed = False
    for call in reading.initialized:
        if not call.keywords or not reading.plain(call) or any(k.arg is None for k in call.keywords):
            continue
        name = reading.fresh("amp_options")
        items = ", ".join(f"{k.arg!r}: {ast.unparse(k.value)}" for k in call.keywords)
        reading.insert(reading.statement(call), *statements(f"{name} = {{{items}}}"))
        call.keywords = [ast.keyword(None, expression(name))]
        changed = True
    return reading.project() if changed else None


def level_named(reading: Reading) -> Project | None:
    """The opt level under a name of its own."""
    changed = False
    for call in reading.initialized:
        for keyword in call.keywords:
            if keyword.arg == "opt_level" and reading.plain(call):
                name = reading.fresh("level")
                reading.insert(reading.statement(call), *statements(f"{name} = {ast.unparse(keyword.value)}"))
                keyword.value = expression(name)
                changed = True
    return reading.project() if changed else None


def level_computed(reading: Reading) -> Project | None:
    """The opt level put together at run time: `"O%d" % 1`."""
    changed = False
    for call in reading.initialized:
        for keyword in call.keywords:
            value = keyword.value
            if keyword.arg == "opt_level" and isinstance(value, ast.Constant) and reading.plain(call):
                name = reading.fresh("number")
                reading.insert(reading.statement(call), *statements(f"{name} = {int(str(value.value)[1])}"))
                keyword.value = expression(f"'O%d' % {name}")
                changed = True
    return reading.project() if changed else None


def in_helper(reading: Reading) -> Project | None:
    """`prepare(model, optimizer)`, a function of the module."""
    changed = False
    for statement, call in _assigned(reading):
        constant = all(isinstance(k.value, ast.Constant) for k in call.keywords)
        if not constant or len(call.args) != 2 or not _module_level(reading, call):
            continue
        name = reading.fresh("prepare")
        options = "".join(f", {ast.unparse(k)}" for k in call.keywords)
        reading.define(
            *statements(
                f"def {name}(model, optimizer):\n    return {ast.unparse(call.func)}(model, optimizer{options})\n"
            )
        )
        statement.value = expression(f"{name}({', '.join(map(ast.unparse, call.args))})")
        changed = True
    return reading.project() if changed else None


TRANSFORMS = {
    "result of initialize held": result_held,
    "result of initialize indexed": result_indexed,
    "result of initialize dropped": result_dropped,
    "initialize by keyword": by_keyword,
    "options of initialize in a dict": options_in_dict,
    "opt level named": level_named,
    "opt level computed": level_computed,
    "initialize in a helper": in_helper,
}
