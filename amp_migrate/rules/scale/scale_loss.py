"""`with amp.scale_loss(loss, optimizer) as scaled_loss:` becomes `scaler.scale(loss)`.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.scale_loss
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.scale
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from difflib import get_close_matches

from amp_migrate.findings import Code, Example
from amp_migrate.reading.conditions.conjunctions import conjuncts
from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.program.definitions import is_none
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import identifiers, walk
from amp_migrate.reading.program.view import find
from amp_migrate.reading.regions.refused import refuses
from amp_migrate.reading.switch.flags import asked_around, guard_parts
from amp_migrate.reading.units.naming import unbound
from amp_migrate.reading.units.one_held import holds_one
from amp_migrate.reading.units.places import holds_several
from amp_migrate.reading.units.unit import Blocked, Loss
from amp_migrate.rules.migration import Migration

APEX = "https://nvidia.github.io/apex/amp.html#apex.amp.scale_loss"
NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.scale"

CODES = (
    Code(
        "AMP201",
        "amp.scale_loss becomes scaler.scale",
        "amp.scale_loss",
        apex="Yields the loss times the scale; on exit unscales the gradients and checks them for overflow.",
        native="scaler.scale(loss) multiplies; gradients stay scaled until unscale_ or step.",
        why="The with statement goes; an if-fp16/else pair around it is folded into one path.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()",
                "scaler.scale(loss).backward()",
            ),
        ),
    ),
    Code(
        "AMP202",
        "amp.scale_loss is not used as a plain with statement",
        "amp.scale_loss",
        apex="A context manager; anything may be built around it.",
        native="Two calls, scale and step, with the gradients scaled in between.",
        why="A wrapper whose callers are out of sight cannot be split in two without guessing where the gradients are read.",
        links=(APEX,),
    ),
    Code(
        "AMP203",
        "Code inside the with statement saw scaled gradients",
        "amp.scale_loss",
        apex="Inside the with statement gradients are still scaled: clipping there clipped the scaled ones.",
        native="The gradients are unscaled first, so clipping now means what it says.",
        why="The curve rightly differs where the clip binds.",
        links=("https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping",),
    ),
    Code(
        "AMP204",
        "delay_unscale has no counterpart and needs none",
        "amp.scale_loss",
        apex="Gradients of earlier micro-batches stay scaled until the last one.",
        native="Gradients always stay scaled until the step.",
        why="The argument goes. A backward with delay_unscale=True did not count for the scale, nor did its overflow: both go by "
        "the step, as they do now.",
        links=("https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",),
    ),
    Code(
        "AMP221",
        "An overflow skips the optimizers one by one",
        "amp.scale_loss",
        apex="With a list of optimizers, an overflow in any gradient of the loss skips the step of every one.",
        native="scaler.step looks at the gradients of its own optimizer only.",
        why="After an overflow in one model's gradients the other optimizer steps with its own, which are finite.",
        links=(
            APEX,
            "https://pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers",
        ),
    ),
)


def apply(m: Migration) -> None:
    """Take every `with amp.scale_loss` of the unit apart."""
    reader = m.gradients
    for loss in m.unit.losses:
        if loss.item is not None and m.live(loss.module, loss.with_stmt):
            _migrate(m, loss)
            _readers(m, loss, reader)


def _migrate(m: Migration, loss: Loss) -> None:
    module = loss.module
    edits = m.edit(module)
    if not isinstance(loss.with_stmt, ast.With) or len(loss.with_stmt.items) != 1:
        raise Blocked(
            module,
            loss.call,
            "AMP202",
            "amp.scale_loss",
            "scale_loss shares its with statement with another context manager; give it a statement of its own",
        )
    if loss.alias is None:
        raise Blocked(
            module, loss.call, "AMP202", "amp.scale_loss", "the scaled loss is not given a name, so nothing is scaled"
        )
    if _scaled_again(m, loss):
        raise Blocked(
            module,
            loss.call,
            "AMP202",
            "amp.scale_loss",
            "scales a loss that is scaled already: with Apex the gradients of both optimizers stayed multiplied by a scale; "
            "scale the loss once, for all of its optimizers",
        )
    uses = _uses(loss)
    if (misspelt := _misspelt(module, uses)) is not None:
        raise Blocked(
            module,
            misspelt,
            "AMP202",
            "amp.scale_loss",
            f"no backward runs here: a tensor has no {misspelt.attr}, with Apex this raises, too",
        )
    value = scaled(m, loss, vector=any(_reduced(module, use) for use in uses))
    alone = len(uses) == 1 and isinstance(uses[0].ctx, ast.Load)
    if alone:
        edits.replace(uses[0], value)
    elif uses and not (value == (loss.loss,) and loss.alias == module.source(loss.loss)):
        edits.insert_before(loss.with_stmt, (f"{loss.alias} = ", *value))
    edits.splice(loss.with_stmt)
    message = "the scaled backward" if m.scales else m.plain
    m.output.done(module, loss.call, "AMP201", "amp.scale_loss", message, "as-is" if alone else "look")
    if (read := _left_before(m, loss, uses)) is not None:
        was = f"{loss.alias} is {module.source(loss.loss)} at line {read.lineno} in all runs now: it was left as it was without"
        m.output.note(module, loss.call, "AMP201", "amp.scale_loss", f"{was} mixed precision", "review")
    _explain(m, loss)


def _left_before(m: Migration, loss: Loss, uses: Sequence[ast.Name]) -> ast.Name | None:
    """A read below a folded pair whose plain branch left the name alone that the scaled loss has, which is another value:
    `scale_loss(loss / n, optimizer) as loss`."""
    if isinstance(loss.loss, ast.Name) and loss.loss.id == loss.alias:
        return None
    around = loss.module.ancestors(loss.with_stmt)
    pair = next((a for a in around if isinstance(a, ast.If) and a in m.pairs), None)
    bound = (n for s in pair.body + pair.orelse for n in walk(s)) if pair is not None else ()
    stored = [n for n in bound if isinstance(n, ast.Name) and n.id == loss.alias and isinstance(n.ctx, ast.Store)]
    if pair is None or len(stored) != 1:
        return None
    # What is read under the same test is not read in other runs.
    only = {*asked_around(m.project, loss.module, loss.with_stmt)} - {*asked_around(m.project, loss.module, pair)}
    below = (use for use in uses if pair not in set(loss.module.ancestors(use)))
    return next((u for u in below if not only or not only <= {*asked_around(m.project, loss.module, u)}), None)


def scaled(m: Migration, loss: Loss, *, vector: bool = False) -> tuple[str | ast.expr | ast.stmt, ...]:
    """The scaled loss as code; a forward inside it is first put under autocast, in a statement of its own.

    A vector of losses is made float32 first, as Apex did: in float16 it would be infinite times the scale.
    """
    module = loss.module
    value: tuple[str | ast.expr | ast.stmt, ...] = (loss.loss,)
    if _computes_here(m, loss):
        header = m.autocast(module, loss.with_stmt)
        indent = m.style(module).indent
        name = module.source(loss.loss.target) if isinstance(loss.loss, ast.NamedExpr) else _fresh(loss)
        computed = loss.loss.value if isinstance(loss.loss, ast.NamedExpr) else loss.loss
        m.edit(module).insert_before(loss.with_stmt, (f"with {header}:\n{indent}{name} = ", computed))
        m.computed_apart = True
        value = (name,)
    simple = isinstance(loss.loss, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) or value != (loss.loss,)
    if m.scales:
        if vector:
            value = (*value, ".float()") if simple else ("(", *value, ").float()")
        scaler = m.scaler_at(module, loss.with_stmt, loss.optimizers[0] if loss.optimizers else None)
        return (f"{scaler}.scale(", *value, ")")
    return value if simple else ("(", *value, ")")


def _misspelt(module: Module, uses: Sequence[ast.Name]) -> ast.Attribute | None:
    """What all that is done with a scaled loss asks for in place of its backward, by a slip of the hand."""
    asked = [a for use in uses if isinstance(a := module.parents.get(use), ast.Attribute)]
    meant = [a for a in asked if a.attr != "backward" and get_close_matches(a.attr, ["backward"], cutoff=0.85)]
    return meant[0] if meant and len(meant) == len(uses) else None


def _scaled_again(m: Migration, loss: Loss) -> bool:
    """Whether what is scaled is the scaled loss of a with statement around this one."""
    names = identifiers(loss.loss)
    around = set(loss.module.ancestors(loss.with_stmt))
    return any(x.with_stmt in around and x.alias in names for x in m.unit.losses if x.module is loss.module)


def _reduced(module: Module, use: ast.Name) -> bool:
    """Whether a use shows that the scaled loss is a vector: it is reduced, or given a gradient of its own."""
    outer = module.parents.get(use)
    if isinstance(outer, ast.Call) and module.qualify(outer.func) == "torch.autograd.backward":
        return len(outer.args) > 1 or any(k.arg == "grad_tensors" for k in outer.keywords)
    method = module.parents.get(use)
    call = module.parents.get(method) if isinstance(method, ast.Attribute) else None
    if not isinstance(method, ast.Attribute) or not isinstance(call, ast.Call) or call.func is not method:
        return False
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "gradient")]
    return method.attr in ("mean", "sum") or (
        method.attr == "backward" and any(not isinstance(g, ast.Starred) and not is_none(g) for g in given)
    )


def _readers(m: Migration, loss: Loss, reader: GradientReader) -> None:
    """Say where code inside the with statement read gradients that were still scaled."""
    assert isinstance(loss.with_stmt, ast.With)
    for stmt in loss.with_stmt.body if m.scales else ():
        node = find(m.regions.view(loss.module.scope_of(loss.with_stmt)), stmt)
        if node is not None and reader.reads(loss.module, node):
            m.output.note(
                loss.module,
                stmt,
                "AMP203",
                "amp.scale_loss",
                "read gradients that were still scaled; they are unscaled first now, so a threshold here means what it "
                "says and binds where it did not, or no longer where it always did",
                "review",
            )
            return


def _uses(loss: Loss) -> list[ast.Name]:
    """Reads of the scaled loss, inside the with statement and after it in the same function; also where it is changed
    in place or deleted, which a name of its own must survive."""
    module = loss.module
    found: list[ast.Name] = []
    others: list[ast.AST] = []  # where another scale_loss binds the same name
    for node in (n for s in module.scope_of(loss.with_stmt).body for n in walk(s)):
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            if node.optional_vars.id == loss.alias and node is not loss.item:
                others.append(module.parents[node])
        if isinstance(node, ast.Name) and node.id == loss.alias and _reads(module, node):
            if not any(a is loss.item for a in module.ancestors(node)):
                found.append(node)
    inside = [n for n in found if any(a is loss.with_stmt for a in module.ancestors(n))]
    after = [n for n in found if n not in inside and n.lineno > loss.with_stmt.lineno]
    return inside + [n for n in after if not any(_bound_anew(module, loss, n, other) for other in others)]


def _bound_anew(module: Module, loss: Loss, read: ast.Name, other: ast.AST) -> bool:
    """Whether each way from a scaled loss to a read comes by another statement that binds the name."""
    around = set(module.ancestors(read))
    if other in around:
        return True
    between = loss.with_stmt.lineno < getattr(other, "lineno", 0) < read.lineno
    return between and all(a in around for a in module.ancestors(other))


def _reads(module: Module, name: ast.Name) -> bool:
    """Whether a mention of a name needs its value: a plain assignment does not."""
    parent = module.parents.get(name)
    return not isinstance(name.ctx, ast.Store) or (isinstance(parent, ast.AugAssign) and parent.target is name)


def _computes_here(m: Migration, loss: Loss) -> bool:
    """Whether the loss is computed in the argument of scale_loss itself: by a forward or by a criterion, whose result
    would be float16 outside of a region.

    Raises Blocked where that is a loss that autocast refuses.
    """
    module = loss.module
    calls = [n for n in walk(loss.loss) if isinstance(n, ast.Call)]
    for call in calls:
        if refuses(m.project, module, call):
            raise Blocked(
                module,
                call,
                "AMP505",
                "BCELoss",
                "autocast refuses binary_cross_entropy: give this loss a statement of its own above scale_loss",
            )
    outputs = m.regions.read(module.scope_of(loss.with_stmt)).outputs
    return any(m.regions.is_forward(module, c) or m.regions.computes_loss(module, c) or outputs.sums(c) for c in calls)


def _fresh(loss: Loss) -> str:
    """A name for a loss that had none."""
    names = ("loss", "batch_loss", "computed_loss", "unscaled_loss")
    return unbound(loss.module.scope_of(loss.with_stmt), names, but=loss.alias)


def _explain(m: Migration, loss: Loss) -> None:
    module = loss.module
    delayed = loss.delay_unscale
    if all(isinstance(d := x.delay_unscale, ast.Constant) and d.value is True for x in m.unit.losses) and m.scales:
        m.output.note(
            module,
            loss.call,
            "AMP204",
            "amp.scale_loss",
            "every loss here is scaled with delay_unscale=True: Apex never unscaled, and stepped with gradients that were too "
            "large by the loss scale; now they are unscaled",
            "look",
        )
    elif delayed is not None and not (isinstance(delayed, ast.Constant) and delayed.value is False):
        m.output.note(
            module,
            loss.call,
            "AMP204",
            "amp.scale_loss",
            "delay_unscale is dropped: gradients stay scaled until the step now, as they did where it was True",
            "as-is",
        )
    unscaled = bool(m.unit.inits) and all(i.levels == {"O0"} for i in m.unit.inits)
    never = isinstance(delayed, ast.Constant) and delayed.value is True  # there Apex looked for none
    held = (
        len(loss.optimizers) == 1
        and holds_several(m.project, module, loss.optimizers[0])
        and not holds_one(m.project, module, loss.optimizers[0])
    )
    if m.scales and (held or len(loss.optimizers) > 1) and not unscaled and not never:
        which = f"all optimizers in {module.source(loss.optimizers[0])}" if held else "all these optimizers"
        m.output.note(
            module,
            loss.call,
            "AMP221",
            "amp.scale_loss",
            f"an overflow skipped the steps of {which} with Apex; scaler.step skips only those whose own gradients are not "
            "finite",
        )
    more = _asked_besides(m, loss)
    if more:
        message = f"the loss is scaled now wherever mixed precision is on; it was not where {more} is false"
        m.output.note(module, loss.call, "AMP201", "amp.scale_loss", message, "look")


def _asked_besides(m: Migration, loss: Loss) -> str:
    """What the pair around a loss, which is folded, asks besides the switch: `if distributed and fp16:`."""
    module = loss.module
    switch = m.switch.read_in(module.scope_of(loss.with_stmt)) if m.scales else None
    known = {ast.unparse(part) for part in conjuncts(ast.parse(switch or "True", mode="eval").body)}
    for stmt, parts in guard_parts(m.project, module, loss.with_stmt):
        asked = [ast.unparse(ast.parse(part, mode="eval")) for part in parts or ()] if stmt in m.pairs else []
        if known.intersection(asked):
            return " and ".join(part for part in asked if part not in known)
    return ""
