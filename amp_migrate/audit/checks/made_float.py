"""No network runs in a region that the migration wrote which the program made float32 before, where only weights were half.

Proves: of a forward in such a region whose network is a variable, no statement of its body above makes that network float32
(`net = net.float()`) with none below it that gives the variable another or makes it half. Cannot prove anything of networks in
fields, nor of what is done to them under a condition; O1 ran them in half all the same, and is not asked about.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.values.same import SELF_RETURNING
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP531: see `precision.py`
CASTING = frozenset("half double bfloat16 apply type".split())  # what may give weights another dtype
KEPT = SELF_RETURNING - CASTING


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    for change in review.changes.values():
        module = change.after
        if ".float" not in change.before.text or "autocast" not in module.text or both.patches(change.before):
            continue
        told: set[ast.stmt] = set()
        for forward, _, _ in both.in_written_regions(module):
            was = review.statement_before(module, forward.call)
            if was is None or not isinstance(forward.model, ast.Name):
                continue
            cast = _cast(*was, forward.model.id)
            if cast is not None and was[1] not in told:
                told.add(was[1])
                message = (
                    f"{forward.text} runs under autocast now, and {forward.model.id} is made float32 above (line {cast.lineno}), "
                    "with nothing that makes it half after that: it ran in float32. Leave the region out"
                )
                yield review.doubt(module, forward.call, "AMP531", "a call of the model", message, "review")


def _cast(module: Module, stmt: ast.stmt, name: str) -> ast.stmt | None:
    """The statement that made a network float32, if that is the last thing that was done to its weights above another."""
    scope = module.scope_of(stmt)
    body = getattr(scope.node, "body", [])
    found: ast.stmt | None = None
    inside = (s for s in syntax.walk(scope.node) if isinstance(s, ast.stmt) and s is not scope.node)
    for above in sorted((s for s in inside if s.lineno < stmt.lineno), key=lambda s: s.lineno):
        if module.scope_of(above) is not scope:
            continue
        value = above.value if isinstance(above, (ast.Assign, ast.Expr)) else None
        methods = _methods(value, name) if value is not None else None
        if methods is not None and "float" in methods and KEPT.issuperset(methods) and above in body:
            found = above
        elif _may_change(above, name) and (methods is None or not KEPT.issuperset(methods)):
            found = None
    return found


def _methods(value: ast.expr, name: str) -> list[str] | None:
    """The methods that are called on a variable, one on what the other gives; None for what is something else, or may give
    it another dtype than is written."""
    methods: list[str] = []
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        methods.append(value.func.attr)
        if value.func.attr == "to" and not all(
            _is_device(a) for a in (*value.args, *(k.value for k in value.keywords))
        ):
            return None
        value = value.func.value
    return methods if methods and isinstance(value, ast.Name) and value.id == name else None


def _is_device(given: ast.expr) -> bool:
    text = syntax.text(given).lower()
    return isinstance(given, ast.Constant) or any(word in text for word in ("device", "cuda", "cpu", "gpu", "rank"))


def _may_change(stmt: ast.stmt, name: str) -> bool:
    """Whether a statement gives a variable something, makes what it holds half, or hands that to what may do so."""
    nodes = syntax.own_line(stmt)
    named = [n for n in nodes if isinstance(n, ast.Name) and n.id == name]
    half = any(
        "half" in syntax.text(n.func).lower() or "16" in syntax.text(n) for n in nodes if isinstance(n, ast.Call)
    )
    calls = (n for n in nodes if isinstance(n, ast.Call))
    handed = any(arg in named for n in calls for arg in (*n.args, *(k.value for k in n.keywords)))
    cast = any(isinstance(n, ast.Attribute) and n.attr in CASTING | {"to"} and n.value in named for n in nodes)
    return any(isinstance(n.ctx, ast.Store) for n in named) or (bool(named) and half) or handed or cast
