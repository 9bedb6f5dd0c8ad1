"""Code that asks of which class an object is gets the same answer, where torch's class took the place of Apex's.

`isinstance(module, torch.nn.LayerNorm)` was false of a FusedLayerNorm, which derives from `Module` alone, and is true of the
LayerNorm in its place: a function handed to `apply` draws its weights anew, or it changes its group of weight decay. Asked of
`isinstance`, `issubclass`, `type(x)` and names of classes in every file that runs in one process with the one that changed;
also the other way round, where what asked for Apex's class finds torch's own objects too. Nothing is said of code that sets
weights to 1 and biases to 0, which they are. Not proved: that such an object comes there.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import CLASS_TESTS, Module, Scope
from amp_migrate.audit.program.near import Near
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review, mentions
from amp_migrate.audit.values.values import Values
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP653",
        title="a test of a class answers otherwise, now that it is torch's",
        construct="normalization.FusedLayerNorm",
        apex="Its layers, wrappers and optimizers derive from torch's Module and Optimizer, not from the classes of torch that "
        "do the same.",
        native="An isinstance of torch's class is true of them now. Take that class out of the test where what follows is not meant "
        "for them.",
        why="Weights drawn anew, a group without weight decay, a frozen or unwrapped module: nothing fails.",
    ),
)
TORCH = {
    "FusedLayerNorm": ("LayerNorm",),
    "MixedFusedLayerNorm": ("LayerNorm",),
    "FusedRMSNorm": ("RMSNorm",),
    "MixedFusedRMSNorm": ("RMSNorm",),
    "SyncBatchNorm": ("SyncBatchNorm",),
    "convert_syncbn_model": ("SyncBatchNorm",),
    "DistributedDataParallel": ("DistributedDataParallel",),
    "FusedAdam": ("Adam", "AdamW"),
    "FusedSGD": ("SGD",),
    "FusedAdagrad": ("Adagrad",),
}
DRAWING = re.compile(r"^(?:(?:trunc_)?normal_?|uniform_?|(?:xavier|kaiming)_\w+|orthogonal_?|sparse_)$")
MADE_BY = {"convert_syncbn_model": "SyncBatchNorm", "convert_sync_batchnorm": "SyncBatchNorm"}


class Replaced(NamedTuple):
    """A class of Apex's that objects were made of, torch's in its place, and where."""

    apex: str
    torch: str
    module: Module
    line: int


def check(review: Review) -> Iterable[Doubt]:
    replaced = list(_replaced(review))
    if not replaced:
        return
    both = mixed(review)
    near = {m.path for m in both.near}
    files = partial(both.nearness.files, guess=False)
    with_it = {r: {m.path for m in files([r.module])} for r in replaced}  # the files of its programs
    for path in sorted(near):
        module = review.after.modules.get(path)
        if module is None or module.words.isdisjoint((*CLASS_TESTS, "type", "__class__")):
            continue
        asking: list[ast.Call | ast.Compare] = [*module.calls(), *syntax.every(module.tree, ast.Compare)]
        here = [r for r in replaced if path in with_it[r]]
        for node in asking if here else ():
            yield from _asked(review, module, node, here, both.nearness)


def _replaced(review: Review) -> Iterator[Replaced]:
    """The classes of Apex's that a changed file used for more than questions, and does not name any more."""
    seen: set[tuple[str, str, Module]] = set()
    for change in review.changes.values():
        named = [(n, name.rpartition(".")[2]) for n, name in mentions(review.before, change.before, "apex.")]
        named = [(node, last) for node, last in named if last in TORCH and not change.before.only_asked(node)]
        if not named:
            continue
        after = {name.rpartition(".")[2] for _, name in mentions(review.after, change.after, "torch.")}
        left = {name.rpartition(".")[2] for _, name in mentions(review.after, change.after, "apex.")}
        for node, last in named:
            if last in left:
                continue
            for other in TORCH[last]:
                if (
                    after & {other, *(k for k, v in MADE_BY.items() if v == other)}
                    and (last, other, change.before) not in seen
                ):
                    seen.add((last, other, change.before))
                    yield Replaced(MADE_BY.get(last, last), other, change.before, getattr(node, "lineno", 1))


def _own(review: Review, nearness: Near, path: str, name: str) -> tuple[Module, int] | None:
    """Where the programs before that come by a file made objects of torch's class themselves."""
    asking = review.before.modules.get(path)
    near = set(nearness.files([asking])) if asking is not None else set()
    for module in review.before.having(name):
        for call in module.calls() if module in near else ():
            dotted = review.before.dotted(module.scope_of(call), call.func) or ""
            if dotted.startswith("torch.") and dotted.rpartition(".")[2] == name:
                return module, call.lineno
    return None


def _asked(
    review: Review,
    module: Module,
    node: ast.Call | ast.Compare,
    replaced: list[Replaced],
    nearness: Near,
) -> Iterator[Doubt]:
    asked = _classes(node)
    if asked is None:
        return
    now = _names(review.after, review.values_after, module.scope_of(node), asked)
    was = _names_before(review, module, node)
    text = syntax.text(node)
    text = text if len(text) < 80 else text[:77] + "..."
    for r in replaced:
        true_now = not now.isdisjoint((r.torch, f"torch.{r.torch}"))
        true_was = not was.isdisjoint((r.apex, f"apex.{r.apex}"))
        if true_now and not true_was and not _as_made(module, node) and not _before_converted(review, module, node, r):
            verdict: Verdict = "review" if r.torch.endswith("Norm") else "look"
            place = f"(line {r.line} of {r.module.path})"
            message = f"{text}: Apex's {r.apex} was no {r.torch} of torch, which takes its place {place}: this is true of it now"
            if verdict == "review" and (drawn := _drawn(module, node)) is not None:
                message += f", and its weight, 1 as it is made, is drawn anew ({drawn}). Take torch's {r.torch} out of the test"
            else:
                message += ". See that what follows is meant for it"
            doubt = Doubt(module.path, review.line(module, node), "AMP653", r.apex, message, verdict)
            yield replace(doubt, alike=message.replace(text, "", 1).replace(place, "", 1))
            return
        alone = was.isdisjoint((r.torch, f"torch.{r.torch}"))
        if not true_now or not true_was or not alone or _as_made(module, node):
            continue
        if (where := _own(review, nearness, module.path, r.torch)) is not None:
            place = f"(line {where[1]} of {where[0].path})"
            message = (
                f"{text}: this was true of Apex's {r.apex} alone, and is of each {r.torch} of torch now, of which the program makes "
                f"some itself {place}"
            )
            doubt = Doubt(module.path, review.line(module, node), "AMP653", r.apex, message, "look")
            yield replace(doubt, alike=message.replace(text, "", 1).replace(place, "", 1))
            return


def _before_converted(review: Review, module: Module, node: ast.Call | ast.Compare, replaced: Replaced) -> bool:
    """Whether a test runs before the conversion that alone makes objects of the class: of networks as they are built."""
    if replaced.apex != "SyncBatchNorm":
        return False
    if any(True for _ in review.calls_before("apex.parallel.SyncBatchNorm")):
        return False
    calls = [(m, c) for m, c, _ in review.calls_before("apex.parallel.convert_syncbn_model")]
    place = review.statement_before(module, node)
    asked: ast.AST | None = node
    if place is None or place[0] is not module:
        line = syntax.own_line(place[1]) if place is not None else ()
        asked = next((n for n in line if syntax.text(n) == syntax.text(node)), None)
    return place is not None and asked is not None and mixed(review).precedes(place[0], asked, calls)


def _classes(node: ast.Call | ast.Compare) -> ast.expr | None:
    """What a test compares a class with: `isinstance(x, HERE)`, `type(x) is HERE`, `x.__class__.__name__ == HERE`."""
    if isinstance(node, ast.Call):
        asks = isinstance(node.func, ast.Name) and node.func.id in CLASS_TESTS
        return node.args[1] if asks and len(node.args) == 2 else None
    if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.Eq, ast.NotEq, ast.In, ast.NotIn)):
        return None
    sides = [(node.left, node.comparators[0]), (node.comparators[0], node.left)]
    for side, other in sides[:1] if isinstance(node.ops[0], (ast.In, ast.NotIn)) else sides:
        kind = side.value if isinstance(side, ast.Attribute) and side.attr == "__name__" else side
        if isinstance(kind, ast.Attribute) and kind.attr == "__class__":
            return other
        if isinstance(kind, ast.Call) and syntax.text(kind.func) == "type" and len(kind.args) == 1:
            return other
    return None


def _names(
    program: Program, values: Values, scope: Scope, expr: ast.expr, seen: frozenset[ast.AST] = frozenset()
) -> set[str]:
    """The classes of torch's and Apex's as `torch.Name` and `apex.Name`, and names in quotes. `seen`: the lists that the
    expression stands in, of which it may be one: `kinds = (kinds,)`."""
    if isinstance(expr, (ast.Tuple, ast.List, ast.Set)):
        return {name for e in expr.elts for name in _names(program, values, scope, e, seen | {expr})}
    if isinstance(expr, ast.BinOp):
        return _names(program, values, scope, expr.left, seen) | _names(program, values, scope, expr.right, seen)
    if isinstance(expr, ast.Constant):
        return {expr.value} if isinstance(expr.value, str) else set()
    name = program.dotted(scope, expr)
    if name is not None and name.startswith(("torch.", "apex.")):
        return {f"{name.partition('.')[0]}.{name.rpartition('.')[2]}"}
    found: set[str] = set()
    if isinstance(expr, (ast.Name, ast.Attribute)):
        for origin in values.origins(scope, expr):
            if isinstance(origin.node, (ast.Tuple, ast.List, ast.Set)) and origin.node not in seen:
                found |= _names(program, values, origin.module.scope_of(origin.node), origin.node, seen)
    return found


def _names_before(review: Review, module: Module, node: ast.Call | ast.Compare) -> set[str]:
    """The same of the test as it stood before."""
    place = review.statement_before(module, node)
    if place is None:
        return set()
    home, old = place
    found: set[str] = set()
    for part in syntax.own_line(old) if home is not module else (node,):
        if isinstance(part, (ast.Call, ast.Compare)) and (asked := _classes(part)) is not None:
            found |= _names(review.before, review.values_before, home.scope_of(part), asked)
    return found


def _as_made(module: Module, node: ast.expr) -> bool:
    """Whether what a test leads to sets weights to 1 and biases to 0, as they are made."""
    child: ast.AST = node
    for at in module.ancestors(node):
        if isinstance(at, ast.If):
            return at.test is child and all(_sets_defaults(s) for s in at.body)
        if not isinstance(at, ast.BoolOp) or not isinstance(at.op, ast.And):
            return False
        child = at
    return False


def _drawn(module: Module, node: ast.expr) -> str | None:
    """How what a test leads to draws a weight, if it does."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.IsNot, ast.NotEq, ast.NotIn)):
        return None
    for child, at in itertools.pairwise((node, *module.ancestors(node))):
        if isinstance(at, ast.If):
            calls = (c for s in at.body for c in syntax.every(s, ast.Call)) if at.test is child else ()
            drawing = (c for c in calls if DRAWING.search(syntax.last(c.func)) and "weight" in syntax.text(c))
            return next((syntax.text(c) for c in drawing), None)
        if not isinstance(at, ast.BoolOp):
            return None
    return None


def _sets_defaults(stmt: ast.stmt) -> bool:
    if isinstance(stmt, ast.Pass):
        return True
    if isinstance(stmt, ast.If) and not stmt.orelse:
        return all(_sets_defaults(s) for s in stmt.body)
    if not isinstance(stmt, ast.Expr) or not isinstance(stmt.value, ast.Call):
        return False
    func, args = stmt.value.func, stmt.value.args
    last = syntax.last(func)
    weight = "weight" in syntax.text(stmt)
    if last in ("constant_", "constant", "fill_"):
        value = args[-1].value if args and isinstance(args[-1], ast.Constant) else None
        return value == 1 if weight else value == 0 and "bias" in syntax.text(stmt)
    if last == "ones_":
        return weight
    return last in ("zero_", "zeros_") and not weight and "bias" in syntax.text(stmt)
