"""Several backwards before one step, or of several optimizers before one update: what they mean for the scale.

Apex: https://nvidia.github.io/apex/advanced.html#gradient-accumulation-across-iterations
Native: https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
"""

from __future__ import annotations

import ast
import re
from collections import Counter

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import elements
from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, Module, Scope
from amp_migrate.reading.program.view import Block, Node, chain, find
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Loss, Step
from amp_migrate.rules.migration import Migration

Places = dict[Scope, list[ast.stmt]]
BOUNDARY = re.compile(r"accum|micro|update|boundary|sync|grad_?step", re.IGNORECASE)

CODES = (
    Code(
        "AMP207",
        "The scale changes once per step, not once per backward",
        "amp.scale_loss",
        apex="Every backward that ends without overflow counts towards the next doubling; every one that overflows halves "
        "the scale and skips the step.",
        native="update() counts steps: the scale doubles after growth_interval steps and halves once for a step that "
        "overflowed.",
        why="With N backwards per update (N micro-batches, or the losses of N optimizers) the scale grows N times more slowly, "
        "unless growth_interval is divided by N.",
        links=(
            "https://nvidia.github.io/apex/advanced.html#gradient-accumulation-across-iterations",
            "https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        ),
    ),
)


def apply(m: Migration) -> None:
    """Announce it for each loss that is scaled more often than its optimizer steps."""
    if not m.scales or (m.unit.inits and all(isinstance(static_scale(i), float) for i in m.unit.inits)):
        return  # what is static grows at no pace
    for loss in m.unit.losses:
        delayed = loss.delay_unscale
        if delayed is not None and not (isinstance(delayed, ast.Constant) and delayed.value is False):
            continue  # says so itself
        if loss.item is None:
            continue  # an FP16_Optimizer counts its steps
        if not m.live(loss.module, loss.with_stmt):
            continue
        each = "step" if any(_rarer(m, loss, s) for s in m.unit.steps) else "update" if _with_others(m, loss) else None
        if each is not None:
            m.output.note(
                loss.module,
                loss.call,
                "AMP207",
                "amp.scale_loss",
                f"several backwards per {each}: the scale grows per {each} now, not per backward (growth_interval=2000 // N "
                f"for N of them keeps Apex's pace), and an overflow halves it once per {each}",
            )


def _with_others(m: Migration, loss: Loss) -> bool:
    """Whether this is the last of several losses that one turn of a loop, or one call of a function, scales before the
    scale is updated: those of a generator and a discriminator, each with an optimizer."""
    if len(m.scalers) != 1:
        return False
    losses = [x for x in m.unit.losses if m.live(x.module, x.with_stmt)]
    steps = [s for s in m.unit.steps if m.live(s.module, s.call)]
    for scope, own in _scaled(m, loss).items():
        stepped = [
            (m.unit.optimizers.number(s.module, s.optimizer), p) for s in steps for p in _stepped(m, s).get(scope, ())
        ]
        scaled = [p for x in losses for p in _scaled(m, x).get(scope, ())]
        for stmt in own:
            turn = _turn(scope.module, stmt)
            here = {p for p in scaled if _turn(scope.module, p) is turn and not _apart(m, scope, stmt, p)}
            counts = Counter(number for number, p in stepped if _turn(scope.module, p) is turn)
            if turn is None or not counts or here & {p for _, p in stepped}:
                continue  # what steps as well updates by itself
            if len(here) > max(counts.values()) and max(p.lineno for p in here) == stmt.lineno:
                return True
    return False


def _turn(module: Module, stmt: ast.stmt) -> ast.AST | None:
    """The loop or function around a statement whose every turn, or call, may come to it."""
    return next((a for a in module.ancestors(stmt) if isinstance(a, (*LOOP_NODES, *FUNCTION_NODES))), None)


def _apart(m: Migration, scope: Scope, one: ast.stmt, other: ast.stmt) -> bool:
    """Whether two statements stand in different branches."""
    view = m.regions.view(scope)
    first, second = find(view, one), find(view, other)
    return first is None or second is None or _branched(first, second)


def _rarer(m: Migration, loss: Loss, step: Step) -> bool:
    """Whether a step of the loss's optimizer, or a call that leads to it, stands under a condition, or outside a loop, that
    the loss, or a call that leads to that, does not share."""
    own = [m.unit.optimizers.number(loss.module, o) for given in loss.optimizers for o in elements(given)]
    if own and None not in own and m.unit.optimizers.number(step.module, step.optimizer) not in (*own, None):
        return False
    scaled, stepped = _scaled(m, loss), _stepped(m, step)
    return any(
        _rarer_here(m, scope, one, other)
        for scope in scaled.keys() & stepped.keys()
        for one in scaled[scope]
        for other in stepped[scope]
        if m.live(scope.module, other) and not {one, other} <= {*scaled[scope]} & {*stepped[scope]}
    )


def _scaled(m: Migration, loss: Loss) -> Places:
    first = next((s for s in getattr(loss.with_stmt, "body", ())), loss.with_stmt)
    return {loss.module.scope_of(loss.call): [first], **_leading(m, loss.module, loss.call)}


def _stepped(m: Migration, step: Step) -> Places:
    return {step.scope: [step.stmt], **_leading(m, step.module, step.call)}


def _leading(m: Migration, module: Module, node: ast.AST, depth: int = 3) -> Places:
    """The statements with calls that lead to the function around a node."""
    found: Places = {}
    function = m.project.function_of(module, node)
    for other, call in m.project.calls.get(function, ()) if function is not None and depth else ():
        found.setdefault(other.scope_of(call), []).append(other.statement(call))
        for scope, places in _leading(m, other, call, depth - 1).items():
            found.setdefault(scope, []).extend(places)
    return found


def _rarer_here(m: Migration, scope: Scope, one: ast.stmt, other: ast.stmt) -> bool:
    view = m.regions.view(scope)
    scaled, stepped = find(view, one), find(view, other)
    if scaled is None or stepped is None:
        return False
    around, above = chain(scaled)[1:], chain(stepped)[1:]
    if _branched(scaled, stepped):
        return False
    if _left_out(scaled, stepped):
        return True
    looped = any(isinstance(n.stmt, LOOP_NODES) and n not in above for n in around)
    if looped and one.lineno < other.lineno:
        return any(isinstance(n.stmt, LOOP_NODES) for n in above)
    return any(isinstance(n.stmt, ast.If) and n not in around and _counts(n.stmt.test) for n in above)


def _branched(one: Node, other: Node) -> bool:
    """Whether two statements stand in different branches."""
    around = chain(one)[1:]
    shared = next((n for n in chain(other)[1:] if n in around), None)
    return shared is not None and not any(_holds(b, one) and _holds(b, other) for b in shared.blocks)


def _left_out(scaled: Node, stepped: Node) -> bool:
    """`if (i + 1) % 4 != 0: continue` between the scaled backward and the step."""
    around = chain(scaled)
    for link in chain(stepped):
        if isinstance(link.stmt, LOOP_NODES):
            return False
        start = next((n.index for n in around if n.parent is link.parent), 0)
        for node in link.parent.nodes[start : link.index]:
            if isinstance(node.stmt, ast.If) and _counts(node.stmt.test):
                if any(isinstance(n.stmt, (ast.Continue, ast.Return)) for n in node.walk()):
                    return True
    return False


def _holds(block: Block, node: Node) -> bool:
    return any(n.parent is block for n in chain(node))


def _counts(test: ast.expr) -> bool:
    """Whether a condition looks at the number of the iteration."""
    return any(isinstance(n, ast.Mod) for n in ast.walk(test)) or bool(BOUNDARY.search(ast.unparse(test)))
