"""`if amp:` where `amp` is None without mixed precision asks whether it is on: the scaler knows.

Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.is_enabled
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.definitions import is_none
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.tree import walk
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
        if not (isinstance(parent.comparators[0], ast.Constant) and parent.comparators[0].value is None):
            return
        asked, negated = parent, isinstance(parent.ops[0], (ast.Is, ast.Eq))
    elif not _is_test(parent, node):
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
        enabled = m.enabled_at(module, node) or "True"
        return f"not {enabled}" if negated else enabled
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


def _may_be_left_out(m: Migration, module: Module, node: ast.expr) -> bool:
    """Whether amp is a parameter that a call may leave out or give None for: so may it leave out the scaler."""
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
    child: ast.AST = node
    for parent in module.ancestors(node):
        if isinstance(parent, (*FUNCTION_NODES, ast.Lambda)):
            return False
        if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test:
            otherwise = child in parent.orelse if isinstance(parent, ast.If) else child is parent.orelse
            tests = (text, f"{text} is not None") if otherwise else (f"not {text}", f"{text} is None")
            if ast.unparse(parent.test) in tests:
                return not any(_binds(n, text) for n in walk(parent))
        child = parent
    return False


def _binds(node: ast.AST, name: str) -> bool:
    stored = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)
    return (stored and ast.unparse(node) == name) or (
        isinstance(node, ast.alias) and (node.asname or node.name) == name
    )


def _is_test(parent: ast.AST | None, node: ast.expr) -> bool:
    if isinstance(parent, (ast.If, ast.IfExp, ast.While)):
        return parent.test is node
    if isinstance(parent, ast.UnaryOp):
        return isinstance(parent.op, ast.Not)
    return isinstance(parent, ast.BoolOp)
