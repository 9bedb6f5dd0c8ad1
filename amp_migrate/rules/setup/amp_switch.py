"""`if amp:` where `amp` is None without mixed precision asks whether it is on: the scaler knows.

Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.is_enabled
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.definitions import is_none, is_off
from amp_migrate.reading.program.logic import is_asked
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.modules_held import only_given
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.scaler.amp_kept import may_be_none
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.constants import NOTHING
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP121",
        "amp as a switch becomes scaler.is_enabled",
        "if amp",
        apex="A module, or None where the program set it so: its truth says whether mixed precision is on.",
        native="A GradScaler is always there and knows whether it is enabled.",
        why="The code under the test was meant for mixed precision alone, and stays so.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.is_enabled",),
        examples=(Example("if amp is not None:\n    prepare()", "if scaler.is_enabled():\n    prepare()"),),
    ),
)


def apply(m: Migration) -> None:
    for site in m.unit.sites:
        if site.name == "apex.amp" and m.live(site.module, site.node):
            _migrate(m, site)
    for module in m.project.modules if m.scales else ():
        if module in m.unit.modules:
            for call, _ in module.calls_naming(("hasattr", "getattr")):
                if m.live(module, call):
                    _asked_by_name(m, module, call)


def _asked_by_name(m: Migration, module: Module, call: ast.Call) -> None:
    """`hasattr(self, "amp")` where the field is only ever given the module: it is there where mixed precision is set up."""
    if not isinstance(call.func, ast.Name) or len(call.args) < 2 or not isinstance(call.args[1], ast.Constant):
        return
    if call.func.id == "getattr" and not (len(call.args) == 3 and is_off(call.args[2])):
        return
    asked: ast.expr = call
    negated, parent = False, module.parents.get(call)
    if isinstance(parent, ast.Compare):
        none = len(parent.ops) == 1 and is_none(parent.comparators[0]) and parent.left is call
        if call.func.id == "hasattr" or not none or not isinstance(parent.ops[0], (ast.Is, ast.IsNot)):
            return
        asked, negated = parent, isinstance(parent.ops[0], ast.Is)
    elif not is_asked(parent, call):
        return
    if only_given(m.project, module, call.args[0], str(call.args[1].value)):
        m.edit(module).replace(asked, _enabled(m, module, call, asked, negated))
        m.output.note(module, call, "AMP121", "if amp", "asks whether mixed precision is on", "look")


def _migrate(m: Migration, site: Site) -> None:
    module, node = site.module, site.node
    parent = module.parents.get(node)
    if _known_none(module, node):
        m.edit(module).replace(node, "None")
        m.output.note(module, node, "AMP121", "amp", "is None here, and stays so")
        return
    asked: ast.expr = node
    negated = False
    if isinstance(parent, ast.Compare) and parent.left is node and len(parent.ops) == 1:
        if not is_none(parent.comparators[0]):
            return
        asked, negated = parent, isinstance(parent.ops[0], (ast.Is, ast.Eq))
    elif not is_asked(parent, node):
        return
    if availability(m.project, module).value(asked) is not None:
        return  # asks whether Apex is installed: the rule of the imports answers
    if any(asked is n or any(a is asked for a in module.ancestors(n)) for n in m.edit(module).expressions):
        return
    m.edit(module).replace(asked, _enabled(m, module, node, asked, negated))
    m.output.note(module, node, "AMP121", "if amp", "asks whether mixed precision is on", "look")


def _enabled(m: Migration, module: Module, node: ast.expr, asked: ast.expr, negated: bool) -> str:
    """What asks whether mixed precision is on, in the place of `asked`."""
    if not m.scales:
        enabled = m.switch.at(module, node) or "True"
        return f"not {enabled}" if negated else enabled
    if (test := _just_set(module, node)) is not None:
        return _instead(module, asked, test, negated)
    scaler = m.scaler_at(module, node)
    if not _may_be_left_out(m, module, node):
        return f"not {scaler}.is_enabled()" if negated else f"{scaler}.is_enabled()"
    text = (
        f"{scaler} is None or not {scaler}.is_enabled()"
        if negated
        else f"{scaler} is not None and {scaler}.is_enabled()"
    )
    parent = module.parents.get(asked)
    alone = not isinstance(parent, (ast.BoolOp, ast.UnaryOp))
    plain = isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.Or if negated else ast.And)
    return text if alone or plain else f"({text})"


def _just_set(module: Module, node: ast.expr) -> ast.expr | None:
    """The test under which the statements before have given a field the module, and nothing else sets it there but False or
    None: `if cfg.amp: self.amp = amp`, which is known before anything is set up."""
    function = module.scope_of(node).node
    if not isinstance(node, ast.Attribute) or not isinstance(function, FUNCTION_NODES):
        return None
    found: ast.expr | None = None
    for stmt in function.body:
        if any(n is node for n in walk(stmt)):
            return found
        stores = [n for n in walk(stmt) if _binds(n, ast.unparse(node))]
        if isinstance(stmt, ast.If) and stores and not stmt.orelse:
            given = [s for s in stmt.body if isinstance(s, ast.Assign) and s.targets[0] in stores]
            found = (
                stmt.test if len(stores) == len(given) == 1 and module.qualify(given[0].value) == "apex.amp" else None
            )
        elif stores:
            off = isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and is_off(stmt.value)
            found = None
            if not off:
                return None
        elif found is not None and any(_binds(n, ast.unparse(part)) for n in walk(stmt) for part in _parts(found)):
            found = None
    return None


def _instead(module: Module, asked: ast.expr, test: ast.expr, negated: bool) -> str:
    """A test in the place of another, or what it denies."""
    text = module.source(test)
    inner = not isinstance(test, (ast.Name, ast.Attribute, ast.Call))
    if negated:
        return f"not ({text})" if inner else f"not {text}"
    return f"({text})" if inner and isinstance(module.parents.get(asked), (ast.BoolOp, ast.UnaryOp)) else text


def _parts(test: ast.expr) -> list[ast.expr]:
    return [n for n in walk(test) if isinstance(n, (ast.Name, ast.Attribute))]


def _may_be_left_out(m: Migration, module: Module, node: ast.expr) -> bool:
    """Whether amp is a parameter that a call may leave out or give None for: so may it leave out the scaler; or an entry."""
    if may_be_none(m.project, module, node):
        return True
    owner = module.scope_of(node).lookup(node.id) if isinstance(node, ast.Name) else None
    function = m.project.functions.get(owner.node) if owner is not None else None
    if function is None or not isinstance(node, ast.Name) or function.parameter(node.id) is None:
        return False
    values, calls = m.project.once(Values), m.project.calls.get(function, ())
    without = (values.given(function, caller, call, node.id) == NOTHING for caller, call in calls)
    return is_none(function.defaults.get(node.id)) or any(without)


def _known_none(module: Module, node: ast.expr) -> bool:
    """Whether amp as a value stands in the branch of a test of it that a run comes to where amp is None."""
    text = ast.unparse(node)
    if isinstance(module.parents.get(node), (ast.Attribute, ast.Compare)):
        return False
    functions = {a for a in module.ancestors(node) if isinstance(a, (*FUNCTION_NODES, ast.Lambda))}
    for test, holds, _ in branches_around(module, node, functions):
        tests = (f"not {text}", f"{text} is None") if holds else (text, f"{text} is not None")
        if ast.unparse(test.test) in tests:
            return not any(_binds(n, text) for n in walk(test))
    return False


def _binds(node: ast.AST, name: str) -> bool:
    stored = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)
    return (stored and ast.unparse(node) == name) or (
        isinstance(node, ast.alias) and (node.asname or node.name) == name
    )
