"""What a program makes half itself does not meet float32 weights outside of any region.

`x = x.half()` and then `model(x)`: under O2 and O3 the weights were half too, and O1's patched functions cast both. Asked of
every file that runs in one process with a changed one, for networks that are seen to be called with such a value in the same
function. `escapes.py` follows values further, from the regions of the files that changed. Not proved: what is made half in
another function, networks that are made half elsewhere under another name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.dtypes import HALF_TYPES
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.sites.setups import Identity
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.ways.within import may_follow
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP535: see `escapes.py`


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not both.removed or review.wish.dtype != "float16":
        return
    names = None
    for module in both.after.modules:
        if not module.words & {"half", "float16"} or not both.near_setups(module):
            continue
        if module.path in review.changes and "autocast" in module.text and both.floats(module):
            continue  # followed by `escapes.py`
        made = _made_half(review, module)
        names = names or _halved(both)
        for forward in both.after.forwards.of(module):
            if forward.method is not None or last_name(forward.model) not in both.network_names | both.start:
                continue
            if last_name(forward.model) in names or _opens_one(both, forward):
                continue
            given = [*syntax.given(forward.call)]
            half = next((v for v in given if _is_half(review, module, forward, v, made)), None)
            if half is not None and _outside(both, forward):
                message = (
                    f"{forward.text} is given {syntax.text(half)}, which is made half here: its weights were half under O2, and O1 "
                    "cast what it needed; they are float32 now, and no autocast region is around it: it raises where the first "
                    "layer is a linear or convolution. Put it in a region, or leave the value as it is"
                )
                yield review.doubt(
                    module, forward.call, "AMP535", "a call of the model", message, "review", ("AMP535",)
                )


def _made_half(review: Review, module: Module) -> dict[str, list[tuple[ast.stmt, bool]]]:
    """What is assigned to each name, as text, that is made half somewhere: whether it is there."""
    found: dict[str, list[tuple[ast.stmt, bool]]] = {}
    for stmt in syntax.walk(module.tree):
        if isinstance(stmt, ast.Assign):
            half = _casts(review, module.scope_of(stmt), stmt.value)
            for target in stmt.targets:
                if isinstance(target, (ast.Name, ast.Attribute)):
                    found.setdefault(syntax.text(target), []).append((stmt, half))
    return {name: made for name, made in found.items() if any(half for _, half in made)}


def given_half(both: Mixed, forward: Forward) -> str:
    """What a call of a model as it is now is given that is made half in its function."""
    made = _made_half(both.review, forward.module)
    given = syntax.given(forward.call)
    return next((syntax.text(v) for v in given if _is_half(both.review, forward.module, forward, v, made)), "")


def _casts(review: Review, scope: Scope, expr: ast.expr) -> bool:
    """Whether an expression is half, at least where a flag says so."""
    if isinstance(expr, ast.IfExp):
        return _casts(review, scope, expr.body) or _casts(review, scope, expr.orelse)
    if not isinstance(expr, ast.Call) or not isinstance(expr.func, ast.Attribute):
        return False
    if expr.func.attr == "half" and not expr.args:
        return isinstance(expr.func.value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
    if expr.func.attr in ("to", "type"):
        kinds = [*expr.args, *(k.value for k in expr.keywords if k.arg == "dtype")]
        return any(review.after.dotted(scope, k) in HALF_TYPES for k in kinds)
    if expr.func.attr in ("cuda", "contiguous", "clone", "detach"):
        return _casts(review, scope, expr.func.value)
    return False


def _is_half(
    review: Review, module: Module, forward: Forward, value: ast.expr, made: dict[str, list[tuple[ast.stmt, bool]]]
) -> bool:
    if _casts(review, module.scope_of(value), value):
        return True
    here = module.function_around(forward.call)
    before = [
        (stmt, half)
        for stmt, half in made.get(syntax.text(value), ())
        if module.function_around(stmt) is here and stmt.lineno < forward.call.lineno
    ]
    if not before or not may_follow(module, before[-1][0], forward.call):
        return False
    return before[-1][1]


def _halved(both: Mixed) -> set[str]:
    """Names of what is still made half: its weights are, too."""
    found: set[str] = set()
    for module in both.after.modules:
        for _, holder in module.method_calls("half"):
            found.update(_names(holder))
    return found & (both.network_names | both.start)


def _names(expr: ast.expr) -> Iterator[str]:
    for node in syntax.walk(expr):
        name = last_name(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if name is not None:
            yield name


def _opens_one(both: Mixed, forward: Forward) -> bool:
    """Whether the network opens a region itself."""
    return both.after.wrapped(forward) is not None or any(
        "autocast" in f.module.source(f.node) for f in both.after.forwards.runs(forward)
    )


def _outside(both: Mixed, forward: Forward) -> bool:
    model = both.before.forwards.identities(forward) if forward.module.path not in both.review.changes else frozenset()
    return outside(both, forward.module, forward.call, model or both.initialized)


def outside(both: Mixed, module: Module, call: ast.Call, model: frozenset[Identity]) -> bool:
    """Whether no way to a call that runs a model is in a region, and one of them came after Apex was set up."""
    mixed_before = False
    for chain in both.after.chains.to(module, call):
        if both.in_region(chain) is not False:
            return False
        old = both.chain_before(chain)
        if old is not None:
            was = both.under_apex(old, model)
            mixed_before = mixed_before or was.half is not False or not was.sure
    return mixed_before
