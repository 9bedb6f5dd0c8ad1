"""What is made float32 for what Apex did stays as it was in runs without Apex in which the program has half weights itself.

Proves: no `.float()` that the migration wrote stands on a way that a run may go without Apex after it made a network half, by
`.half()` or a cast to a half type; what only goes to the host is not asked about. Followed are conditions along ways through
functions and files. Cannot prove: what networks are that libraries make half, and what is kept half in files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amp_migrate.audit.checks.half_weights import comes_first, half_type
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.made_half import made_half
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.ways.chains import Chain
from amp_migrate.audit.ways.formulas import Formula, conjunction, example, negation, spelled
from amp_migrate.audit.ways.trails import Place
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP546",
        title="a cast for Apex's sake also runs where the program is half by itself",
        construct="Tensor.float",
        apex="Casts what operations are given, in runs that had set it up, and in no others.",
        native="The `.float()` written in place of Apex's cast is there in every run: write "
        "`x.to(dtype=torch.float32 if args.apex else None)`, or cast under the flag.",
        why="A program may make its model half itself where it does not use Apex (`elif args.fp16: model.half()`): half layers "
        "raise on a float32 input.",
    ),
)
TO_HOST = frozenset("cpu numpy item tolist".split())


@dataclass(frozen=True)
class Half:
    """What makes a network half, and when, beside what leads there."""

    module: Module
    call: ast.Call
    model: ast.expr
    when: Formula


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not both.removed or review.wish.dtype != "float16":
        return
    halves: list[Half] | None = None
    for change in review.changes.values():
        module = change.after
        for call, value in module.method_calls("float"):
            if not change.changed(call) or both.was(module, call) is not None or _to_host(module, call):
                continue
            halves = list(_halves(both)) if halves is None else halves
            half = next((h for h in halves if (when := _without_apex(both, module, call, h)) is not None), None)
            if half is not None:
                at = f"line {review.line(half.module, half.call)}" + (
                    f" of {half.module.path}" if half.module is not module else ""
                )
                message = (
                    f"{syntax.text(value)} is made float32 in runs without Apex, too, and in one of those the program makes "
                    f"{syntax.text(half.model)} half itself ({at}){spelled(when or {})}: what takes it there beside half "
                    "weights raises. Cast it only where mixed precision is on"
                )
                yield review.doubt(module, call, "AMP546", "Tensor.float", message, "review")


def _to_host(module: Module, cast: ast.Call) -> bool:
    """Whether what is cast goes to the host at once, as it is: `x.float().cpu()`."""
    node: ast.AST = cast
    while isinstance(around := module.parents.get(node), (ast.Attribute, ast.Call)) and node in (
        getattr(around, "value", None),
        getattr(around, "func", None),
    ):
        if isinstance(around, ast.Attribute) and around.attr in TO_HOST:
            return True
        node = around
    return False


def _halves(both: Mixed) -> Iterator[Half]:
    """What the program after makes half of its networks."""
    names = both.network_names | both.start
    for module in both.after.modules:
        if not module.words & {"half", "float16"}:
            continue
        found: list[tuple[ast.Call, ast.expr, Formula]] = [(call, model, True) for call, model in made_half(module)]
        for method in ("to", "type"):
            for call, model in module.method_calls(method):
                place = Place(module.scope_of(call))
                asked = [*call.args, *(k.value for k in call.keywords if k.arg == "dtype")]
                found += [(call, model, w) for dtype in asked if (w := half_type(both, dtype, place)) is not False]
        for call, model, when in found:
            if {last_name(n) for n in syntax.walk(model) if isinstance(n, (ast.Name, ast.Attribute))} & names:
                yield Half(module, call, model, when)


def _without_apex(both: Mixed, module: Module, cast: ast.Call, half: Half) -> dict[str, bool] | None:
    """The flags of a run without Apex that makes a network half and comes to a cast after that."""
    made, given = _ways(both, half.module, half.call), both.before.predicates.given
    for way in _ways(both, module, cast):
        off = negation(both.under_apex(way, both.initialized).half)
        for first in made:
            asked = [given(first, loops=False), half.when, given(way, loops=False), off]
            if comes_first(first, way) and (found := example(conjunction(asked))) is not None:
                return found
    return None


def _ways(both: Mixed, module: Module, node: ast.AST) -> tuple[Chain, ...]:
    """The ways to where the statement around a place of the program after stood before."""
    was = both.review.statement_before(module, node)
    return both.before.chains.to(*was) if was is not None else ()
