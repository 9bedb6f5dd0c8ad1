"""Whether a switch is a bool, as autocast wants it: options of a command line are text and numbers too."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.reading.program.command_line import declared
from amp_migrate.reading.program.module import FUNCTION_NODES, FunctionNode, Module


def as_bool(module: Module, text: str, others: Sequence[Module] = ()) -> str:
    """The condition made a real bool where the code shows that it may be something else: autocast refuses None.

    `others`: where options may be declared that a file without a parser reads.
    """
    tree = ast.parse(text, mode="eval").body
    return text if _is_bool(module, others, tree) else f"bool({text})"


def _is_bool(module: Module, others: Sequence[Module], node: ast.expr) -> bool:
    if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return True
    if isinstance(node, ast.BoolOp):
        compared = {ast.unparse(side) for v in node.values for side in _compared(v)}
        return all(_is_bool(module, others, v) and ast.unparse(v) not in compared for v in node.values)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool)
    if isinstance(node, ast.IfExp):
        return _is_bool(module, others, node.body) and _is_bool(module, others, node.orelse)
    if isinstance(node, ast.Call):
        return not _call_no_bool(node)
    if _no_bool(node):
        return False
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
    if name is None:
        return True
    if isinstance(node, ast.Attribute) and "add_argument" not in module.text:  # the parser is in another file
        if any(_declared_not_bool(other, name) for other in others):
            return False
    return not _option_not_bool(module, name)


def _compared(value: ast.expr) -> list[ast.expr]:
    """What a test compares with text or a number: `args.amp != "O0"`."""
    if not isinstance(value, ast.Compare):
        return []
    sides = [value.left, *value.comparators]
    plain = [s.value for s in sides if isinstance(s, ast.Constant)]
    return sides if any(isinstance(v, (str, int)) and not isinstance(v, bool) for v in plain) else []


def _declared_not_bool(module: Module, name: str) -> bool | None:
    """Whether a command-line option of that name is declared with something other than a switch; None: there is none."""
    for option, call in declared(module):
        if option == name:
            given = {k.arg: k.value for k in call.keywords}
            action = given.get("action")
            if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
                default = given.get("default")
                return isinstance(default, ast.Constant) and not isinstance(default.value, bool)
            kind = given.get("type")
            return not (action is not None or (isinstance(kind, ast.Name) and "bool" in kind.id.lower()))
    return None


def _option_not_bool(module: Module, name: str) -> bool:
    """Whether a command-line option of that name is declared with something other than a switch, or a name or attribute
    so called is given what is no bool."""
    if (option := _declared_not_bool(module, name)) is not None:
        return option
    for node in ast.walk(module.tree):
        if isinstance(node, FUNCTION_NODES) and _default_no_bool(node, name):
            return True
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        if not _no_bool(node.value) and not _names_no_bool(module, node.value, name):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            bound = (
                target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
            )
            if bound == name:
                return True
    return False


def _default_no_bool(function: FunctionNode, name: str) -> bool:
    """Whether a function has a parameter of that name whose default is no bool: `def main(opt_level=None)`."""
    a = function.args
    positional = [*a.posonlyargs, *a.args]
    defaults = [
        *zip(reversed(positional), reversed(a.defaults), strict=False),
        *zip(a.kwonlyargs, a.kw_defaults, strict=True),
    ]
    return any(arg.arg == name and default is not None and _no_bool(default) for arg, default in defaults)


def _names_no_bool(module: Module, value: ast.expr, name: str) -> bool:
    """Whether a value is an option that is no switch: `mixed = args.fp16`."""
    return (
        isinstance(value, ast.Attribute)
        and value.attr != name
        and any(option == value.attr and _option_not_bool(module, option) for option, _ in declared(module))
    )


COUNTS = frozenset("len int float str sum abs round max min list dict set tuple".split())


def _call_no_bool(call: ast.Call) -> bool:
    """Whether a call shows itself that it may give something else than a bool: `len(level)`, `config.get("fp16")`."""
    if isinstance(call.func, ast.Name) and call.func.id in COUNTS:
        return True
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if last not in ("get", "getenv"):
        return False
    default = call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "default"), None)
    return default is None or _no_bool(default)


def _no_bool(value: ast.expr) -> bool:
    """Whether a value shows itself that it may be something else than a bool: `1 if amp else 0`, None, `"O%d" % n`."""
    if isinstance(value, ast.Constant):
        return not isinstance(value.value, bool)
    if isinstance(value, ast.IfExp):
        return _no_bool(value.body) or _no_bool(value.orelse)
    if isinstance(value, ast.BoolOp):
        return any(_no_bool(v) for v in value.values)
    return isinstance(value, (ast.BinOp, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set))
