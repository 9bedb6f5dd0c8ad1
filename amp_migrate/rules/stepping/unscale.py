"""`scaler.unscale_` before the first reader of gradients, `scaler.update` after the last step: where the plan has them.

Apex: https://nvidia.github.io/apex/advanced.html#gradient-clipping
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.unscale_
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.gradients.additions import adds_to_gradients
from amp_migrate.reading.gradients.divisible import divisible
from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.gradients.positions import Gradients
from amp_migrate.reading.gradients.served import tpu_steps
from amp_migrate.reading.gradients.spread import receiver
from amp_migrate.reading.gradients.updates import given_one_of_several
from amp_migrate.reading.gradients.uses import reads_by_name
from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.definitions import called_name, literal
from amp_migrate.reading.program.handed_back import only_looks_up
from amp_migrate.reading.program.module import LOOP_NODES, Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.units.naming import unbound
from amp_migrate.reading.units.unit import AddsToEach, Blocked, Step
from amp_migrate.reading.values.bound import bound_before, written_before
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.scale.clamp import clamps
from amp_migrate.rules.scale.held_scale import held_scale
from amp_migrate.rules.setup.when_on import only_on
from amp_migrate.rules.stepping.chosen import as_branches, asked_of_each, chosen_list, noted

UPDATE = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update"
CLIPPING = "https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping"
ACCUMULATION = "https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation"

NOTED = ("stepped", "any_stepped", "has_stepped")

CODES = (
    Code(
        "AMP301",
        "Gradients are unscaled before they are read",
        "clip_grad_norm_",
        apex="Gradients are unscaled when the with statement ends.",
        native="scaler.unscale_(optimizer), once, before the first reader of .grad; the step then does not unscale again.",
        why="Otherwise clipping and logging see gradients times the scale.",
        links=(CLIPPING,),
        examples=(
            Example(
                "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)\noptimizer.step()",
                "scaler.unscale_(optimizer)\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
                "scaler.step(optimizer)\nscaler.update()",
            ),
        ),
    ),
    Code(
        "AMP302",
        "A gradient reader moved from every micro-batch to the step",
        "clip_grad_norm_",
        apex="Gradients are unscaled after every backward, so they could be clipped after each micro-batch.",
        native="Gradients can be unscaled once per step, when they are complete.",
        why="Clipping partial sums of gradients is rarely meant; the curve differs where the clip binds. What adds to "
        "gradients, such as a penalty on the weights, stays where it is, times the scale (AMP309); where it cannot, it adds once "
        "per step then, and the finding says so.",
        links=(ACCUMULATION, CLIPPING),
    ),
    Code(
        "AMP303",
        "The scale is updated on early exits too",
        "scaler.update",
        apex="Unscaling and updating happen together.",
        native="After unscale_, update must run before the next unscale_, also when the step is left out.",
        why="Otherwise the next iteration raises: unscale_() has already been called on this optimizer.",
        links=(UPDATE,),
    ),
    Code(
        "AMP308",
        "Only the direction of gradients is read, between two backwards",
        "grad",
        apex="Gradients are unscaled when the with statement ends, so they are read unscaled.",
        native="They stay scaled until the last backward of the step: grad / grad.norm() and grad.sign() are the same.",
        why="Adversarial training (FGM, PGD) moves weights along the gradient's direction before a second backward. The "
        "backward that follows is scaled as well (AMP217), and an overflow in either skips the step.",
        links=("https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",),
    ),
)


def write(m: Migration, module: Module, plan: Gradients, entries: list[ast.stmt]) -> None:
    """Unscale, move the readers that wait for the step, and update, as a plan for one scope says."""
    _unscale(m, module, plan, entries)
    _move(m, module, plan)
    _update(m, module, plan)


def note_directions(m: Migration, reader: GradientReader) -> None:
    """Name the functions that read gradients while they carry the scale, and why they may."""
    for function, calls in m.project.calls.items():
        if not calls or function.module not in m.unit.tied or "grad" not in function.module.text:
            continue
        found = reader.uses.grads.directions(function.module, function.scope)
        if found.free and any(reader.uses.grads.of_parameter(function.module, n) for n in found.grads):
            m.output.note(
                function.module,
                found.grads[0],
                "AMP308",
                "grad",
                f"{function.name} may read gradients before they are unscaled: only their direction matters to it",
                "look",
            )


def _unscale(m: Migration, module: Module, plan: Gradients, entries: list[ast.stmt]) -> None:
    edits = m.edit(module)
    seen: set[tuple[ast.stmt, str]] = set()
    for stmt, step in plan.unscale:
        text = step.name
        if (stmt, text) in seen:
            continue
        seen.add((stmt, text))
        edits.insert_before(stmt, *_unscaling(m, module, plan, stmt, step))
        message = f"gradients of {text} are unscaled before they are read"
        if stmt in plan.fired:
            message = f"gradients of {text} are unscaled before this event: what listens to it may read them"
        if stmt in entries:
            message += (
                "; nothing in sight calls this: call it once per step, after the last backward, and step after it"
            )
        m.output.note(module, stmt, "AMP301", "unscale_", message, "review" if stmt in entries else "as-is")
    for stmt in dict.fromkeys(plan.heard):
        message = (
            "what listens to this event sees gradients times the scale now, which Apex had unscaled by then: GradScaler unscales "
            "once a step, and this comes with every backward. Let what reads them listen to the step, or divide by "
            "scaler.get_scale()"
        )
        m.output.note(module, stmt, "AMP301", "unscale_", message, "review")
    for stmt, step in plan.update_before:
        line = _update_line(m, module, stmt, step)
        edits.insert_before(stmt, *line)
        m.output.note(
            module, stmt, "AMP303", "scaler.update", "leaving here skips the step; the scale is updated first"
        )


def _unscaling(m: Migration, module: Module, plan: Gradients, stmt: ast.stmt, step: Step) -> list[str]:
    """The unscaling of an optimizer before a statement; of each where a later loop steps them."""
    scaler = _scaler(m, module, stmt, step)
    loop = plan.loops.get(stmt)
    if loop is not None:
        header = f"for {module.source(loop.target)} in {_before(m, module, stmt, step, module.source(loop.iter))}:"
    else:
        header = step.each or comprehension(m, stmt, step)
    if not header:
        _looked_up(m, stmt, step)
    name = step.name if header else _before(m, module, stmt, step, step.name)
    root = scaler.partition(".")[0]
    if not bound_before(module, module.scope_of(stmt), root, stmt):  # what keeps it is made further down
        scaler = m.scaler_at(module, stmt)
    line = f"{scaler}.unscale_({name})"
    return [f"{header}\n{m.style(module).indent}{line}"] if header else [line]


def _looked_up(m: Migration, stmt: ast.stmt, step: Step) -> None:
    """Refuse to ask twice for an optimizer where that may do more than look it up."""
    calls = [n for n in walk(step.optimizer) if isinstance(n, ast.Call)]
    if not all(only_looks_up(f) for call in calls for f in m.project.resolved.get(call, ())):
        raise Blocked(
            step.module,
            stmt,
            "AMP307",
            "unscale_",
            f"gradients are read here, so {step.name} would be called twice, to unscale and to step, and it does more than "
            "look the optimizer up: give the optimizer a name first",
        )


def _before(m: Migration, module: Module, stmt: ast.stmt, step: Step, source: str) -> str:
    """An optimizer as it can be written before a statement, which may stand above what gives it the name it has at its
    step: by what the name stands for, or as the scaled loss of the same function names it."""
    text = written_before(module, source, stmt)
    if text is not None:
        return text
    scope = module.scope_of(stmt)
    named = {
        module.source(o)
        for x in m.unit.losses
        if x.module is module and module.scope_of(x.call) is scope
        for o in x.optimizers
    }
    if len(named) == 1 and source == step.name:
        return named.pop()
    raise Blocked(
        module,
        stmt,
        "AMP307",
        "unscale_",
        f"gradients are read here, above the statement that makes {source}, which is stepped: unscaling has to "
        "name the optimizer, so make it further up",
    )


def comprehension(m: Migration, stmt: ast.stmt, step: Step) -> str:
    """The loop over the optimizers of a comprehension that steps: `for optimizer in optimizers:`."""
    module = step.module
    for around in module.around(step.call):
        if isinstance(around, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            *more, last = around.generators
            if more or last.ifs:
                raise Blocked(
                    module,
                    step.call,
                    "AMP216",
                    "optimizer.step",
                    "what is written for each optimizer that is stepped here needs a loop: write the steps as a loop of "
                    "statements",
                )
            return f"for {module.source(last.target)} in {_before(m, module, stmt, step, module.source(last.iter))}:"
    return ""


def _scaler(m: Migration, module: Module, stmt: ast.stmt, step: Step) -> str:
    """The scaler of a step where a statement stands, which may be in a caller of the function that steps."""
    if step.passed:
        return m.scaler_of(step.home or module, step.optimizer).at(module, stmt)
    if step.within is None:
        return m.scaler_at(module, stmt, step.optimizer)
    inner = _scaler(m, step.within.module, step.within.stmt, step.within)
    name, _, rest = inner.partition(".")
    holder = receiver(m.project, step.module, step.call)
    if rest and name == step.within.scope.self_name and holder is not None:
        return f"{holder}.{rest}"
    root = step.root
    return m.scaler_of(root.module, root.optimizer).at(module, stmt)


def _move(m: Migration, module: Module, plan: Gradients) -> None:
    edits = m.edit(module)
    moved: set[ast.stmt] = set()
    for stmts, target, step in plan.moved:
        _leave_additions(m, module, stmts)
        fresh = [s for s in stmts if s not in moved]
        lines = _unscaling(m, module, plan, target, step)
        edits.insert_before(plan.inner.get(stmts[0], target), *lines)
        for stmt in fresh:
            moved.add(stmt)
            edits.move(stmt, target, plan.conditions.get(stmt, ""))
            message = "read the gradients after every micro-batch; moved to the step, where they are complete"
            if _off_too(m, module, stmt, plan.conditions.get(stmt, "")):
                message += ", in runs without mixed precision, too"
            if adds_to_gradients(m.project, stmt) and _delays(m):
                message += "; what it added to gradients that delay_unscale left scaled came to next to nothing"
            elif adds_to_gradients(m.project, stmt):
                message += "; what it adds to them it now adds once per step, not once per micro-batch"
            for other in _other_steps(m, module, stmt, target):
                test = plan.conditions.get(stmt, "")
                edits.insert_before(other, (f"if {test}:\n{m.style(module).indent}" if test else "", stmt))
                message += f", and before the other step at line {other.lineno}, as before"
            named = (called_name(c) for c in walk(stmt) if isinstance(c, ast.Call))
            construct = next(filter(reads_by_name, named), "grad")
            m.output.note(module, stmt, "AMP302", construct, message, "review")
    for name, loop in plan.kept_values:
        edits.insert_before(loop, f"{name} = 0.0")


def _leave_additions(m: Migration, module: Module, stmts: list[ast.stmt]) -> None:
    """Refuse to move what adds to the gradients of every micro-batch where it can add as much times the loss scale as it
    stands: how often it runs decides how much it adds. With `delay_unscale`, it was added to scaled gradients."""
    if m.moves or _delays(m):
        return
    if all(adds_to_gradients(m.project, s) and divisible(m.gradients, module, s) for s in stmts):
        message = "adds to the gradients of every micro-batch, which stay scaled until the step"
        raise AddsToEach(module, stmts[0], "AMP307", "unscale_", message)


def _delays(m: Migration) -> bool:
    """Whether gradients may have been left scaled after a backward."""
    given = (loss.delay_unscale for loss in m.unit.losses)
    return any(d is not None and literal(d) is not False for d in given)


def _other_steps(m: Migration, module: Module, reader: ast.stmt, target: ast.stmt) -> list[ast.stmt]:
    """The steps on a TPU that a reader of gradients came before where it stood, and that it does not where it goes."""
    loop = next((a for a in module.ancestors(reader) if isinstance(a, LOOP_NODES)), None)
    holder = module.parents.get(target)
    found: list[ast.stmt] = []
    for home, call in tpu_steps(m.unit):
        stmt = home.statement(call)
        around = list(module.ancestors(call)) if home is module else []
        served = holder in around and stmt.lineno >= target.lineno
        if loop in around and stmt.lineno > reader.lineno and not served:
            found.append(stmt)
    return found


def _off_too(m: Migration, module: Module, stmt: ast.stmt, condition: str) -> bool:
    """Whether a reader of gradients ran without mixed precision as well: it, or its like in the other branch."""
    switch = m.switch.read_in(module.scope_of(stmt))
    if switch == "True" or (condition and condition == switch):
        return False
    name = {called_name(c) for c in walk(stmt) if isinstance(c, ast.Call)} - {"parameters"}
    for test, _, other in branches_around(module, stmt):
        if isinstance(test, ast.If) and test in m.folds[module].splices:
            return any(called_name(c) in name for s in other for c in walk(s) if isinstance(c, ast.Call))
    return not only_on(m, module, stmt)


def _update(m: Migration, module: Module, plan: Gradients) -> None:
    edits = m.edit(module)
    for stmt, step in plan.update_after:
        lines = _update_line(m, module, stmt, step)
        if isinstance(stmt, ast.Return) and stmt.value is not None:  # `return optimizer.step()`
            name = unbound(module.scope_of(stmt), ("result", "step_result"))
            edits.replace(stmt, (f"{name} = ", stmt.value), *lines, f"return {name}")
        elif written := as_branches(m, module, stmt, lines):
            edits.replace(stmt, written)
        elif asked := asked_of_each(m, module, stmt) or _note(m, module, stmt):
            indent = m.style(module).indent
            edits.insert_after(stmt, "".join([f"if {asked}:", *(f"\n{indent}{line}" for line in lines)]))
        else:
            edits.insert_after(stmt, *lines)
        if given_one_of_several(m.unit, step):
            m.output.note(
                module,
                step.call,
                "AMP210",
                "optimizer.step",
                "the scale is updated after each call of this function: where several optimizers step with the gradients "
                "of one loss, update it once, after the last of them",
                "review",
            )


def _note(m: Migration, module: Module, stmt: ast.stmt) -> str:
    """Have a variable tell whether a loop, or a list, makes a step that it may leave out; empty where it makes one for sure."""
    edits, name = m.edit(module), unbound(module.scope_of(stmt), NOTED)
    if steps := noted(m, module, stmt):
        edits.insert_before(stmt, f"{name} = False")
        for made in steps:
            edits.insert_after(made, f"{name} = True")
    elif (chosen := chosen_list(m, stmt)) is not None:
        edits.insert("before", chosen, f"{name} = ")
    else:
        return ""
    return name


def _update_line(m: Migration, module: Module, stmt: ast.stmt, step: Step) -> list[str]:
    scaler = _scaler(m, module, stmt, step)
    held = held_scale(m, module, stmt, step)
    return [f"{scaler}.update({held.value})", *clamps(m, scaler, module, stmt, step, held.dynamic)]
