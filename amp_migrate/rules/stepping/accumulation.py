"""Several backwards before one step, or of several optimizers before one update: what they mean for the scale.

Apex: https://nvidia.github.io/apex/advanced.html#gradient-accumulation-across-iterations
Native: https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from amp_migrate.findings import Code, Review
from amp_migrate.reading.gradients.cleared import clears
from amp_migrate.reading.program.definitions import elements
from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, Module, Scope
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.program.view import Block, Node, chain, find
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Loss, Step
from amp_migrate.reading.values.analysis import Values
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.scale.shared import same_scaler
from amp_migrate.rules.stepping.leading import Leading, Places
from amp_migrate.rules.stepping.one_batch import of_one_batch

BOUNDARY = re.compile(r"accum|micro|update|boundary|sync|grad_?step", re.IGNORECASE)
DATA = re.compile(r"loader|dataset|data_?iter", re.IGNORECASE)


@dataclass(frozen=True)
class Pace:
    """How a step follows its backwards: one for each (`alone`), one for some of them, where `count` is above 1, or one
    after all that `loop` of a file runs. `several`: where one turn runs others, too, before the same step. `every`: where a
    step follows each of them in the same turn, of this optimizer or of another one of the loss."""

    alone: bool = False
    every: bool = False
    count: str = ""
    loop: Node | None = None
    module: Module | None = None
    several: str = ""


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
    # By where they are scaled, and per what they are several.
    found: dict[tuple[Scope, str], list[tuple[Loss, Pace]]] = {}
    for loss in m.unit.losses:
        delayed = loss.delay_unscale
        if delayed is not None and not (isinstance(delayed, ast.Constant) and delayed.value is False):
            continue  # says so itself
        if loss.item is None or _counts_alone(loss):
            continue  # an FP16_Optimizer counts its steps, a wrapped one has a scaler for each loss of a step
        if not m.live(loss.module, loss.with_stmt):
            continue
        rate = pace(m, loss)
        if rate is not None and rate.every:
            rate = None  # the update comes with that step
        if rate is not None and rate.loop is None and not rate.several and _begins_anew(loss):
            message = (
                "gradients are cleared before each backward: one that no step follows counted towards the scale's growth, and "
                "does not now"
            )
            m.output.note(loss.module, loss.call, "AMP207", "amp.scale_loss", message, "look")
            continue
        each = "step" if rate is not None else "update" if _with_others(m, loss) else None
        if each is not None:
            found.setdefault((loss.module.scope_of(loss.call), each), []).append((loss, rate or Pace()))
    for (_, each), told in found.items():
        each_alone = any(_told(m, loss, rate, each)[1] == "review" for loss, rate in told)
        for loss, rate in told if each_alone else _together(told):
            message, review = _told(m, loss, rate, each)
            m.output.note(loss.module, loss.call, "AMP207", "amp.scale_loss", message, review)


def _together(told: list[tuple[Loss, Pace]]) -> list[tuple[Loss, Pace]]:
    """Losses of one step that loops of several lengths scale, `for _ in range(args.parts)` beside the micro-batches, as one: N is
    of all of them."""
    counts = list(dict.fromkeys(rate.count for _, rate in told))
    if len(counts) < 2 or not all(rate.count and not rate.several for _, rate in told):
        return told
    loss = max((x for x, _ in told), key=lambda x: x.call.lineno)
    rate = min((rate for _, rate in told), key=lambda rate: rate.loop is not None)
    several = _lines(x.call for x, _ in told)
    return [(loss, replace(rate, several=several, count=" or ".join(map(str, counts))))]


def _lines(nodes: Iterable[ast.expr | ast.stmt]) -> str:
    """Where several nodes stand: `lines 4, 7 and 9`."""
    *lines, last = sorted(n.lineno for n in nodes)
    return f"lines {', '.join(map(str, lines))} and {last}"


def _counts_alone(loss: Loss) -> bool:
    """Whether the optimizer scales the loss itself, wrapped by the handle of `amp.init`: each of its `num_loss` losses of a step
    has a scaler of its own, and more of them raised."""
    return isinstance(loss.call.func, ast.Attribute) and loss.call.func.value in loss.optimizers


def _told(m: Migration, loss: Loss, pace: Pace, each: str) -> tuple[str, Review]:
    where = f" where {pace.count} is above 1" if pace.count else ""
    if pace.several:
        where = f" ({pace.several}{', and those of each micro-batch' * bool(where)}{where})"
    several, of = f"several backwards per {each}{where}", "of them"
    if each == "step" and _update_shared(m):
        several, each = f"{several}, and one update after the steps of several optimizers", "update"
        by_id = any(x.site.argument(2, "loss_id") is not None for x in m.unit.losses)
        of = f"of them per update, of {'one loss_id' if by_id else 'all the optimizers'},"
    message = (
        f"{several}: the scale grows per {each} now, not per backward (growth_interval=2000 // N "
        f"for N {of} keeps Apex's pace), and an overflow halves it once per {each}"
    )
    if pace.loop is None or not isinstance(pace.loop.stmt, LOOP_NODES):
        return message, "look"
    stmt = pace.loop.stmt
    whole = not any(isinstance(n.stmt, LOOP_NODES) for n in chain(pace.loop)[1:])
    through = stmt.iter if isinstance(stmt, (ast.For, ast.AsyncFor)) else None
    if not whole and not (through is not None and DATA.search(ast.unparse(through))):
        return message, "look"
    if through is not None and of_one_batch(m.project, pace.module or loss.module, through):
        return message, "look"
    return (
        f"{message}; one step for all that the loop at line {stmt.lineno} runs, which is lost where the gradients at its end "
        "are not finite. Apex found a scale that fits in the first run of it, native halves once in each: begin with a lower "
        "init_scale, or step inside the loop if that was meant",
        "review",
    )


def _update_shared(m: Migration) -> bool:
    """Whether one update of one scaler comes after steps of several optimizers."""
    steps = [s for s in m.unit.steps if m.live(s.module, s.call)]
    for scope, updates in m.updates.items():
        stepped = {m.unit.optimizers.number(s.module, s.optimizer) for s in steps if s.scope is scope} - {None}
        if len(m.scalers) == 1 and 0 < len(updates) < len(stepped):
            return True
    return False


def _begins_anew(loss: Loss) -> bool:
    """Whether the gradients of its optimizer are cleared in the turn of each backward, before it."""
    module = loss.module
    optimizers = [f"{ast.unparse(o)}." for given in loss.optimizers for o in elements(given)]
    child: ast.AST = loss.with_stmt
    while isinstance(child, ast.stmt) and not isinstance(child, (*LOOP_NODES, *FUNCTION_NODES)):
        block = module.block(child)
        for stmt in block[: block.index(child)]:
            if isinstance(stmt, (ast.Expr, ast.For)) and any(clears(n) for n in walk(stmt)):
                if any(o in ast.unparse(stmt) for o in optimizers):
                    return True
        child = module.parents[child]
    return False


def _with_others(m: Migration, loss: Loss) -> bool:
    """Whether this is the last of several losses of one scaler that one turn of a loop, or one call of a function, scales
    before the scale is updated: those of a generator and a discriminator, each with an optimizer."""
    if len(m.scalers) != 1:
        return False
    losses = [x for x in m.unit.losses if m.live(x.module, x.with_stmt) and same_scaler(loss, x)]
    steps = [s for s in m.unit.steps if m.live(s.module, s.call)]
    for scope, own in _scaled(m, loss).items():
        stepped = [
            (m.unit.optimizers.number(s.module, s.optimizer), p) for s in steps for p in _stepped(m, s).get(scope, ())
        ]
        scaled = [p for x in losses for p in _scaled(m, x).get(scope, ())]
        updates = [update.end_lineno or update.lineno for update in m.updates.get(scope, ())]
        for stmt in own:
            turn = _turn(scope.module, stmt)
            here = {p for p in scaled if _turn(scope.module, p) is turn and not _apart(m, scope, stmt, p)}
            here -= {p for p in here if any(p.lineno < line < stmt.lineno for line in updates)}
            counts = Counter(number for number, p in stepped if _turn(scope.module, p) is turn)
            if turn is None or not counts or here & {p for _, p in stepped}:
                continue  # what steps as well updates by itself
            if updates:  # those before the same one as this
                here -= {p for p in here if any(stmt.lineno < line < p.lineno for line in updates)}
                if len(here) > 1 and max(p.lineno for p in here) == stmt.lineno:
                    return True
            elif len(here) > max(counts.values()) and max(p.lineno for p in here) == stmt.lineno:
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


def pace(m: Migration, loss: Loss) -> Pace | None:
    """How the steps of a loss's optimizer, or calls that lead to them, follow the loss, or a call that leads to it, where
    they are fewer: under a condition, or outside of a loop, that the loss does not share. None where one follows each."""
    own = [m.unit.optimizers.number(loss.module, o) for given in loss.optimizers for o in elements(given)]
    steps = [
        _stepped(m, step)
        for step in m.unit.steps
        if not own or None in own or m.unit.optimizers.number(step.module, step.optimizer) in (*own, None)
    ]
    scaled, after = _scaled(m, loss), None
    for scope, starts in scaled.items():
        pairs = [
            (one, other, stepped)
            for stepped in steps
            for one in starts
            for other in stepped.get(scope, ())
            if m.live(scope.module, other) and one not in stepped[scope]  # else the function that it runs tells
        ]
        found = [
            (_pace_below(m, scope, (one, scaled), (other, stepped)) or p) if p.alone else p
            for one, other, stepped in pairs
            if (p := _pace_here(m, scope, one, other)) is not None
        ]
        if fewer := [p for p in found if not p.alone and p.loop is None]:
            return replace(fewer[0], several=_several(m, loss, scope, starts), every=any(p.every for p in found))
        if not any(p.alone for p in found):  # else a step after the loop takes what its last one left
            after = after or next(iter(found), None)
    return after


def _several(m: Migration, loss: Loss, scope: Scope, own: list[ast.stmt]) -> str:
    """The lines that scale losses of one optimizer in the turn that this one is scaled in, where there are several."""

    def numbers(of: Loss) -> set[int | None]:
        return {m.unit.optimizers.number(of.module, o) for given in of.optimizers for o in elements(given)}

    stmts: set[ast.stmt] = set()
    for other in m.unit.losses:
        if m.live(other.module, other.with_stmt) and numbers(other) & numbers(loss):
            stmts |= {
                p
                for p in _scaled(m, other).get(scope, ())
                for one in own
                if p is one or (_turn(scope.module, p) is _turn(scope.module, one) and not _apart(m, scope, p, one))
            }
    stmts = {p for p in stmts if any(p is not other and not _apart(m, scope, p, other) for other in stmts)}
    if not stmts:  # of one, or of several branches
        return ""
    text = _lines(stmts) + ("" if scope.module is loss.module else f" of {scope.module.display}")
    tests = [{a for a in scope.module.ancestors(p) if isinstance(a, ast.If)} for p in stmts]
    some = any(t != set.intersection(*tests) for t in tests)
    return text + ", those of them that run" * some


def _scaled(m: Migration, loss: Loss) -> Places:
    first = next((s for s in getattr(loss.with_stmt, "body", ())), loss.with_stmt)
    return {loss.module.scope_of(loss.call): [first], **_leading(m, loss.module, loss.call)}


def _stepped(m: Migration, step: Step) -> Places:
    return {step.scope: [step.stmt], **_leading(m, step.module, step.call)}


def _leading(m: Migration, module: Module, node: ast.AST) -> Places:
    return m.project.once(Leading).to(module, node)


def _pace_here(m: Migration, scope: Scope, one: ast.stmt, other: ast.stmt) -> Pace | None:
    """What two statements of one function say of it; None where nothing can be told."""
    view = m.regions.view(scope)
    scaled, stepped = find(view, one), find(view, other)
    if scaled is None or stepped is None or _branched(scaled, stepped):
        return None
    around, above = chain(scaled)[1:], chain(stepped)[1:]
    tests = [_left_out(chain(scaled), stepped)]
    loops = [n for n in around if isinstance(n.stmt, LOOP_NODES) and n not in above]
    if loops and one.lineno < other.lineno and tests[0] is None:
        turns = [_turns(m, scope.module, n.stmt) for n in loops]
        told = [count for count in turns if count is not None]
        count = told[-1] if len(told) == 1 else ""
        return Pace(count=count, loop=loops[-1], module=scope.module) if told else Pace(alone=True)
    tests += [n.stmt.test for n in above if isinstance(n.stmt, ast.If) and n not in around and _counts(n.stmt.test)]
    counts = [_count(m, scope.module, test) for test in tests if test is not None]
    fewer = [c for c in counts if c is not None]
    return Pace(count=fewer[0]) if fewer else None if loops else Pace(alone=True, every=True)


def _pace_below(
    m: Migration, scope: Scope, scaled: tuple[ast.stmt, Places], stepped: tuple[ast.stmt, Places]
) -> Pace | None:
    """How a step that follows each loss here is kept back by the functions that this one calls for either: by a boundary
    around the step in its own, by a loop of losses in theirs. None where nothing of it is seen."""
    for where, stmt in _below(m, scope, *stepped):
        if (node := find(m.regions.view(where), stmt)) is not None:
            above = chain(node)[1:]
            tests = [n.stmt.test for n in above if isinstance(n.stmt, ast.If) and _counts(n.stmt.test)]
            for test in (*tests, _left_out((), node)):
                if test is not None and (count := _count(m, where.module, test)) is not None:
                    return Pace(count=count)
    for where, stmt in _below(m, scope, *scaled):
        if (node := find(m.regions.view(where), stmt)) is not None:
            loops = [n.stmt for n in chain(node)[1:] if isinstance(n.stmt, LOOP_NODES)]
            told = [count for loop in loops if (count := _turns(m, where.module, loop)) is not None]
            if told:
                return Pace(count=told[-1] if len(told) == 1 else "")
    return None


def _below(m: Migration, scope: Scope, stmt: ast.stmt, places: Places) -> list[tuple[Scope, ast.stmt]]:
    """The statements of further functions on the ways that a statement leads to a step or a loss by."""
    found: list[tuple[Scope, ast.stmt]] = []
    todo = [(scope, stmt)]
    while todo:
        _, at = todo.pop()
        for call in (n for n in walk(at) if isinstance(n, ast.Call)):
            for function in m.project.resolved.get(call, ()):
                further = [(function.scope, s) for s in places.get(function.scope, ())]
                todo += [f for f in further if f not in found and f != (scope, stmt)]
                found += [f for f in further if f not in found and f != (scope, stmt)]
    return found


def _count(m: Migration, module: Module, test: ast.expr) -> str | None:
    """What a condition counts to, as it is written, empty where that is surely more than 1; None where it is surely 1,
    or nothing is counted: `update=True`."""
    if m.project.once(Values).truth(module, test) is not None:
        return None
    parts = [n.right for n in ast.walk(test) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)]
    return _number(m, module, parts[0]) if len(parts) == 1 else ""


def _turns(m: Migration, module: Module, loop: ast.stmt) -> str | None:
    """How often a counted loop turns, `n` of `for _ in range(n)`, as for `_count`; empty of any other."""
    counted = loop.iter if isinstance(loop, ast.For) else None
    if isinstance(counted, ast.Call) and ast.unparse(counted.func) in ("range", "tqdm.trange", "trange"):
        return _number(m, module, counted.args[0]) if len(counted.args) == 1 else ""
    return ""


def _number(m: Migration, module: Module, count: ast.expr) -> str | None:
    found = m.project.once(Values).constants(module, count)
    if found is not None and found <= {1}:
        return None
    return "" if found is not None and 1 not in found else module.source(count)


def _branched(one: Node, other: Node) -> bool:
    """Whether two statements stand in different branches."""
    around = chain(one)[1:]
    shared = next((n for n in chain(other)[1:] if n in around), None)
    return shared is not None and not any(_holds(b, one) and _holds(b, other) for b in shared.blocks)


def _left_out(around: Sequence[Node], stepped: Node) -> ast.expr | None:
    """The test of `if (i + 1) % 4 != 0: continue` between the scaled backward, with what is around it, and the step."""
    for link in chain(stepped):
        if isinstance(link.stmt, LOOP_NODES):
            return None
        start = next((n.index for n in around if n.parent is link.parent), 0)
        for node in link.parent.nodes[start : link.index]:
            if isinstance(node.stmt, ast.If) and _counts(node.stmt.test):
                if any(_leaves(n, node) for n in node.walk()):
                    return node.stmt.test
    return None


def _leaves(node: Node, outer: Node) -> bool:
    """Whether a statement leaves the turn that another stands in: a `continue` of a loop inside of that does not."""
    inner = chain(node)[1:]
    within = inner[: inner.index(outer)] if outer in inner else []
    looped = any(isinstance(n.stmt, LOOP_NODES) for n in within)
    return isinstance(node.stmt, ast.Return) or (isinstance(node.stmt, ast.Continue) and not looped)


def _holds(block: Block, node: Node) -> bool:
    return any(n.parent is block for n in chain(node))


def _counts(test: ast.expr) -> bool:
    """Whether a condition looks at the number of the iteration."""
    return any(isinstance(n, ast.Mod) for n in ast.walk(test)) or bool(BOUNDARY.search(ast.unparse(test)))
