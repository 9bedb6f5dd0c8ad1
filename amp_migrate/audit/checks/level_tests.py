"""Code that picks a dtype by the opt level says so: O2 and O3 mean something else after the migration.

`if args.opt_level == "O1": x = x.half()` matched what O1's patched functions gave; at O2 the weights were half. Now both run
under autocast, and only the test still knows one from the other. Asked of every file that runs in one process with a changed
one, for tests that compare what a removed `amp.initialize` reads its level from, by name, and come out otherwise at O1 than
at O2 or O3. Not proved: tests of what was computed from the level (`half = level == "O2"`), and levels kept under other names.
What certainly raises is told of the statement, by `escapes.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.dtypes import FLOAT_TYPES, HALF_TYPES
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.levels import level_names, truth
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP539",
        title="the program picks a dtype by the opt level",
        construct="a test of the opt level",
        apex="O1 patched functions and left weights in float32; O2 and O3 cast the weights and patched nothing.",
        native="Every level but O0 runs under autocast over float32 weights, as O1 did. What is cast at O1 has to be cast at O2 and "
        "O3 too; what was cast for half weights has none to meet.",
        why='In-place writes (scatter_, masked assignments) raise on float32 and float16 together: where `== "O1"` guards the cast '
        "they need, O2 runs fail.",
    ),
)


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if review.wish.dtype != "float16":
        return
    open_ = [s for s in both.removed if not s.known or s.levels & {"O2", "O3"}]
    names = level_names(both) if open_ else frozenset()
    for module in both.after.modules if names else ():
        if module.words.isdisjoint(names) or not any(s in open_ for s in both.near_setups(module)):
            continue
        for test, parts in _branches(module):
            first = truth(test, names, "O1")
            other = next((o for o in ("O2", "O3") if truth(test, names, o) is not first), None)
            cast = next((c for part in parts for c in _casts(review, module, part)), None)
            if other is None or cast is None:
                continue
            message = (
                f"{syntax.text(cast)} depends on {syntax.text(test)}: {other} runs under autocast now, as O1 did, over float32 "
                "weights, and this still tells them apart. See that what is cast at O1 is cast there too"
            )
            yield review.doubt(module, test, "AMP539", "a test of the opt level", message, "review")


def _branches(module: Module) -> Iterator[tuple[ast.expr, list[ast.AST]]]:
    for node in syntax.walk(module.tree):
        if isinstance(node, ast.If):
            yield node.test, [*node.body, *node.orelse]
        elif isinstance(node, ast.IfExp):
            yield node.test, [node.body, node.orelse]


def _casts(review: Review, module: Module, part: ast.AST) -> Iterator[ast.Call]:
    """The calls that cast to half or to float32."""
    for call in syntax.walk(part):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr in ("half", "float") and not call.args:
            yield call
        elif call.func.attr in ("to", "type"):
            given = [*syntax.given(call)]
            names = {review.after.dotted(module.scope_of(g), g) for g in given}
            if names & (HALF_TYPES | FLOAT_TYPES):
                yield call
