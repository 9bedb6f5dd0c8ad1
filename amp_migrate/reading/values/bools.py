"""Whether a switch is a bool, as autocast wants it: options of a command line are text and numbers too, and what a
configuration file holds is anything."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.logic import in_parentheses
from amp_migrate.reading.program.module import Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.table import BESIDE, Value

# Calls that give a bool, whatever they are methods of. Names that ask (`is_main_process`) count too.
ASKING = frozenset(
    "bool isinstance issubclass hasattr callable any all startswith endswith exists isfile isdir".split()
)


def as_bool(project: Project, scope: Scope, text: str) -> str:
    """The condition, read in a scope, made a real bool unless the program shows that it is one: autocast refuses None,
    numbers and text."""
    # `device and cfg.fp16` gives the device where that is empty: what people may set otherwise is not all that is seen.
    if all(_may_only_be_bool(project, scope, part) for part in _operands(scope.module.imagine(text, scope))):
        return text
    return f"bool{text}" if in_parentheses(text) else f"bool({text})"


def _operands(expr: ast.expr) -> list[ast.expr]:
    """What an expression may come to be, as it is written: each side of `and` and `or`."""
    return [o for v in expr.values for o in _operands(v)] if isinstance(expr, ast.BoolOp) else [expr]


def _may_only_be_bool(project: Project, scope: Scope, expr: ast.expr) -> bool:
    told = [_is_bool(v) for v in project.once(Values).may_be(scope.module, expr) if v.name != BESIDE]
    return bool(told) and all(told)


def _is_bool(value: Value) -> bool:
    node = value.node
    if value.kind == "option" and isinstance(node, ast.Call):
        return _switch(node)
    if value.kind == "call" and isinstance(node, ast.Call):
        name = called_name(node)
        return name in ASKING or name.startswith(("is_", "has_"))
    if value.kind == "bool" and _looked_up(value):
        return False
    asked = isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
    return value.kind == "bool" or isinstance(value.constant, bool) or (value.kind == "computed" and asked)


def _looked_up(value: Value) -> bool:
    """Whether only the default of what is looked up in a mapping tells of a bool, `config.get("amp", False)`: a file that it is
    read from may say 0, or nothing. What is handed on to Apex as its `enabled` is one."""
    call = value.module.parents.get(value.node)
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or value.node not in call.args[1:]:
        return False
    key = call.args[0]
    return call.func.attr in ("get", "pop", "setdefault") and not (
        isinstance(key, ast.Constant) and key.value == "enabled"
    )


def _switch(call: ast.Call) -> bool:
    """Whether a command-line option is a switch: what it is without being given counts too."""
    given = {k.arg: k.value for k in call.keywords}
    action, default, kind = given.get("action"), given.get("default"), given.get("type")
    if default is not None and isinstance(default, ast.Constant) and not isinstance(default.value, bool):
        made = isinstance(default.value, str) and kind is not None  # argparse gives text to the type, nothing else
        if not made:
            return False
    if isinstance(action, ast.Constant):
        return action.value in ("store_true", "store_false")
    if action is not None:
        return "Boolean" in ast.unparse(action) and default is not None
    return kind is not None and "bool" in ast.unparse(kind).lower() and default is not None
