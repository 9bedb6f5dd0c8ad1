"""What does a program look like in which one expression was touched?

Most mutations leave its value and change who has to understand it; `option` and `number` change values that Apex reads.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable
from typing import Any

from tests.fuzz.statements import MARKS, Mutation
from tests.metamorphic.program import COMPREHENSION, Reading, expression, statements

WRAPPED = (
    "({0} if True else None)",
    "(lambda: {0})()",
    "[{0}][0]",
    "({0},)[0]",
    "{{'it': {0}}}['it']",
    "next(iter([{0}]))",
    "(None or {0})",
    "(True and {0})",
    "(held_ := {0})",
    "max([{0}], key=id)",
    "dict(it={0}).get('it')",
    "[it for it in [{0}]][-1]",
    "(*[{0}],)[0]",
)
OPTIONS: dict[str, tuple[Any, ...]] = {
    "opt_level": ("O0", "O1", "O2", "O3", "O4"),
    "loss_scale": ("dynamic", 128.0, 1.0, 65536, "128.0", None, 2.0**20),
    "num_losses": (1, 2, 3),
    "loss_id": (0, 1, 2),
    "verbosity": (0, 1),
    "enabled": (True, False, 1, 0),
    "keep_batchnorm_fp32": (None, True, False, "True"),
    "min_loss_scale": (None, 1.0, 128.0),
    "max_loss_scale": (2.0**24, 2.0**10),
    "delay_unscale": (True, False),
    "delay_overflow_check": (True, False),
    "cast_model_type": (None,),
    "cast_model_outputs": (None,),
    "patch_torch_functions": (None, True, False),
    "master_weights": (None, True, False),
}
INITIALIZE = tuple(o for o in OPTIONS if o not in ("loss_id", "delay_unscale", "delay_overflow_check"))
SCALE_LOSS = ("loss_id", "delay_unscale")
LEVELS = re.compile(r"O[0-3]")


def pick(reading: Reading, chosen: random.Random, fits: Callable[[ast.expr], bool]) -> ast.expr | None:
    """An expression that is read, likelier one that has to do with training."""
    found = [n for n in ast.walk(reading.tree) if isinstance(n, ast.expr) and fits(n) and _free(reading, n)]
    weights = [6 if MARKS.search(ast.unparse(n)) else 1 for n in found]
    return chosen.choices(found, weights)[0] if found else None


def _free(reading: Reading, node: ast.expr) -> bool:
    """Whether something else may stand where an expression does."""
    parent = reading.parents[node]
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or isinstance(node, (ast.Slice, ast.Starred)):
        return False
    if isinstance(parent, (ast.JoinedStr, ast.FormattedValue, ast.AnnAssign, ast.arg, ast.pattern, ast.NamedExpr)):
        return False
    if isinstance(parent, ast.Expr) and isinstance(node, ast.Constant):
        return False  # a docstring
    return node not in getattr(parent, "decorator_list", ())


def wrap(reading: Reading, chosen: random.Random) -> bool:
    """The same value, by way of something."""
    node = pick(reading, chosen, lambda n: not isinstance(n, (ast.Yield, ast.YieldFrom, ast.Await)))
    if node is None:
        return False
    text = chosen.choice(WRAPPED)
    inner = {type(n) for n in ast.walk(node)}
    if inner & {ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr}:
        return False
    special = any(isinstance(n, COMPREHENSION) for n in reading.above(node)) or isinstance(
        reading.scope(node), ast.ClassDef
    )
    if special and (":=" in text or "lambda" in text or " for " in text):
        return False
    if any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "super" for n in ast.walk(node)):
        return False
    reading.swap(node, expression(text.format(f"({ast.unparse(node)})")))
    return True


def hoist(reading: Reading, chosen: random.Random) -> bool:
    """An argument, or what is called, given a name before the statement."""
    node = pick(reading, chosen, lambda n: isinstance(n, (ast.Call, ast.Attribute, ast.Name, ast.Constant)))
    if node is None or not isinstance(reading.parents[node], (ast.Call, ast.keyword, ast.Assign, ast.withitem)):
        return False
    statement = reading.statement(node)
    if isinstance(statement, (ast.While, ast.FunctionDef, ast.ClassDef)) or _conditional(reading, node, statement):
        return False
    name = reading.fresh("first")
    reading.insert(statement, *statements(f"{name} = {ast.unparse(node)}"))
    reading.swap(node, ast.Name(name, ast.Load()))
    return True


def _conditional(reading: Reading, node: ast.expr, statement: ast.stmt) -> bool:
    for above in reading.above(node):
        if above is statement:
            return False
        if isinstance(above, (*COMPREHENSION, ast.IfExp, ast.BoolOp)):
            return True
    return True


def starred(reading: Reading, chosen: random.Random) -> bool:
    """The arguments of a call as a list or a dict."""
    node = pick(reading, chosen, lambda n: isinstance(n, ast.Call) and bool(n.args or n.keywords))
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return False
    if isinstance(node.func, ast.Name) and node.func.id == "super":
        return False
    if node.args and chosen.random() < 0.5:
        at = chosen.randrange(len(node.args))
        node.args[at:] = [ast.Starred(ast.List(node.args[at:], ast.Load()), ast.Load())]
    elif node.keywords and all(k.arg for k in node.keywords):
        pairs = {k.arg: k.value for k in node.keywords}
        node.keywords = [ast.keyword(None, ast.Dict([ast.Constant(k) for k in pairs], list(pairs.values())))]
    else:
        return False
    return True


def looked_up(reading: Reading, chosen: random.Random) -> bool:
    """An attribute through `getattr`, or a bound method held first."""
    node = pick(reading, chosen, lambda n: isinstance(n, ast.Attribute))
    if not isinstance(node, ast.Attribute):
        return False
    reading.swap(node, expression(f"getattr({ast.unparse(node.value)}, {node.attr!r})"))
    return True


def called(reading: Reading, chosen: random.Random) -> bool:
    """A statement that is a call as something else than a statement that is a call."""
    found = [s for s in reading.all(ast.Expr) if isinstance(s.value, ast.Call)]
    if not found:
        return False
    weights = [6 if MARKS.search(ast.unparse(s)) else 1 for s in found]
    statement = chosen.choices(found, weights)[0]
    if any(isinstance(n, (ast.NamedExpr, ast.Yield, ast.Await)) for n in ast.walk(statement)):
        return False
    if any(isinstance(n, ast.Name) and n.id == "super" for n in ast.walk(statement)):
        return False
    forms = (
        "{0} if True else None",
        "True and {0}",
        "_ = {0}",
        "_, = [{0}]",
        "[{0} for _ in range(1)]",
        "(lambda: {0})()",
        "assert [{0}]",
        "for _ in [{0}]:\n    pass",
        "if {0}:\n    pass",
        "({0}, None)",
    )
    if isinstance(reading.scope(statement), ast.ClassDef):
        return False
    reading.replace(statement, *statements(chosen.choice(forms).format(ast.unparse(statement.value))))
    return True


def option(reading: Reading, chosen: random.Random) -> bool:
    """Another value of an option that Apex reads, or one more."""
    calls = [c for c in reading.all(ast.Call) if _name(c) in ("initialize", "scale_loss")]
    if not calls:
        return False
    call = chosen.choice(calls)
    names = INITIALIZE if _name(call) == "initialize" else SCALE_LOSS
    given = {k.arg: k for k in call.keywords}
    if None in given:
        return False
    name = chosen.choice(names)
    value = ast.Constant(chosen.choice(OPTIONS[name]))
    if name in given:
        given[name].value = value
    else:
        call.keywords.append(ast.keyword(name, value))
    return True


def default(reading: Reading, chosen: random.Random) -> bool:
    """Another default of what is read from the command line, and another level wherever one is written."""
    found = [n for n in reading.all(ast.Constant) if isinstance(n.value, str) and LEVELS.fullmatch(n.value)]
    found += [
        k.value
        for c in reading.all(ast.Call)
        if _name(c) == "add_argument"
        for k in c.keywords
        if k.arg == "default" and isinstance(k.value, ast.Constant)
    ]
    if not found:
        return False
    node = chosen.choice(found)
    if isinstance(node.value, str):
        node.value = chosen.choice(("O0", "O1", "O2", "O3"))
    else:
        node.value = chosen.choice((None, True, False, 0, 1, 2))
    return True


def number(reading: Reading, chosen: random.Random) -> bool:
    """Another number."""
    found = [n for n in reading.all(ast.Constant) if isinstance(n.value, (int, float)) and not isinstance(n.value, str)]
    if not found:
        return False
    node = chosen.choice(found)
    if isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node.value, int):
        node.value = chosen.choice((0, 1, 2, 3, node.value + 1))
    else:
        node.value = chosen.choice((0.0, 1.0, float(node.value) / 2))
    return True


def deep(reading: Reading, chosen: random.Random) -> bool:
    """An expression far down in others."""
    node = pick(reading, chosen, lambda n: isinstance(n, (ast.Call, ast.Name, ast.Constant)))
    if node is None or any(isinstance(n, (ast.Yield, ast.Await, ast.NamedExpr)) for n in ast.walk(node)):
        return False
    depth = chosen.choice((3, 20))
    reading.swap(node, expression("[" * depth + ast.unparse(node) + "]" * depth + "[0]" * depth))
    return True


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


MUTATIONS: dict[Mutation, int] = {
    wrap: 6,
    hoist: 5,
    starred: 2,
    looked_up: 2,
    called: 4,
    option: 5,
    default: 3,
    number: 2,
    deep: 1,
}
