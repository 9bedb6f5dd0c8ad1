"""`model.half()` beside `amp.initialize` goes: a GradScaler refuses the gradients of float16 weights.

Apex: https://nvidia.github.io/apex/amp.html#opt-levels
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, Module
from amp_migrate.reading.program.tree import identifiers, walk
from amp_migrate.reading.sites.half_casts import cast_to_half, casts_nothing
from amp_migrate.reading.units.legacy import is_legacy
from amp_migrate.rules.casts import half_parts, trained_parts
from amp_migrate.rules.casts.before_training import same_switch, sets_up, trains
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.older.fp16_utils import is_model, keep_float32
from amp_migrate.rules.setup.when_on import never_on

CODES = (
    Code(
        "AMP118",
        "The model of amp.initialize is made half elsewhere",
        "half",
        apex="Trains float16 weights as they are; before initialize it refuses them at every opt level.",
        native="GradScaler raises 'Attempting to unscale FP16 gradients.' for them.",
        why="Set up before training they stay float32. Elsewhere, for an export or an evaluation, half weights may be "
        "meant, and only training on with them fails. The same holds for parts of a network that are made half in place, such as "
        "its normalization layers in an overridden `train`: where mixed precision alone asks for that, they stay float32.",
        links=(
            "https://nvidia.github.io/apex/amp.html#opt-levels",
            "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler",
        ),
    ),
)


def apply(m: Migration) -> None:
    """Leave the models that are trained in float32; point out where else they become half."""
    if is_legacy(m.unit) or not m.scales:
        return
    for module in m.unit.reach:
        if not any(word in module.text for word in ("half", "Half", "float16")):
            continue
        for call, _ in module.calls:
            func = call.func
            if not cast_to_half(module, call) or not isinstance(func, ast.Attribute):
                continue
            if casts_nothing(m.project, module, call):
                continue
            part = half_parts.where_made(m, module, call, func.value)
            if not (part or is_model(m, module, func.value) or _returned(m, module, call)) or not m.live(module, call):
                continue
            if never_on(m, module, call):
                continue  # no training follows: it is for runs that only evaluate
            if part:
                trained_parts.apply(m, module, call, part)
                continue
            if sets_up(m, module, call) and same_switch(m, module, call):
                keep_float32(m, module, call, func)
            elif module in m.unit.modules and not (
                _kept_apart(m, module, func.value) or _float_again(module, call, func.value)
            ):
                line = _trained_again(m, module, call, func.value)
                if line is None:
                    after = "if it is trained after this, scaler.step raises"
                else:
                    after = (
                        f"the loop around this comes to line {line}, which trains it, after this, and scaler.step raises there "
                        "'Attempting to unscale FP16 gradients.', which Apex's step did not"
                    )
                message = f"makes the model's weights float16: {after}; leave them float32, or do this to a copy"
                construct = f"{module.source(func.value)}.{func.attr}"
                m.output.note(module, call, "AMP118", construct, message, "review")


def _trained_again(m: Migration, module: Module, call: ast.Call, model: ast.expr) -> int | None:
    """The line that trains a model in what is left of a turn of a loop around a place, or in the next turn, where nothing leaves
    the loop before, gives it another model, or makes this one float32 again."""
    name = module.source(model)
    own, asked = module.statement(call), {a for a, _ in _asked_around(module, call)}
    losses = {x.with_stmt for x in m.unit.losses if x.module is module}
    below: ast.AST = own
    for loop in module.ancestors(call):
        if isinstance(loop, FUNCTION_NODES) or _leaves_next(module, below):
            return None
        below = loop
        if not isinstance(loop, LOOP_NODES):
            continue
        inside = [n for stmt in loop.body for n in walk(stmt)]
        training = [n for n in inside if n in losses or (isinstance(n, ast.Call) and trains(m, n))]
        training = [
            n for n in training if {a for a, _ in _asked_around(module, n) if not a.startswith("line ")} <= asked
        ]
        if not training:
            continue
        line = next((n.lineno for n in training if n.lineno > call.lineno), training[0].lineno)
        renewed = {
            n.lineno
            for n in inside
            if (isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store) and module.source(n) == name)
            and module.statement(n) is not own
        }
        floats = module.method_calls.get("float", ())
        renewed |= {c.lineno for c, method in floats if module.source(method.value) == name and c in inside}
        between = (call.lineno < at < line if line > call.lineno else at < line or at > call.lineno for at in renewed)
        return None if any(between) else line
    return None


def _leaves_next(module: Module, node: ast.AST) -> bool:
    """Whether a statement further down in the block of one leaves it in any case."""
    if not isinstance(node, ast.stmt):
        return False
    return any(isinstance(s, (ast.Break, ast.Return, ast.Raise)) for s in module.block(node) if s.lineno > node.lineno)


def _returned(m: Migration, module: Module, call: ast.Call) -> bool:
    """Whether a function returns the half model to where it is trained: `return Net().half()`."""
    stmt = module.statement(call)
    function = m.project.function_of(module, call)
    return isinstance(stmt, ast.Return) and function is not None and Slot(function, "return") in m.unit.model_slots


def _kept_apart(m: Migration, module: Module, model: ast.expr) -> bool:
    """Whether a variable holds nothing but a copy of a model, for an export say, which no `initialize` is given."""
    if not isinstance(model, ast.Name) or any(
        ast.unparse(given) == model.id for i in m.unit.inits for given in i.models
    ):
        return False
    owner = module.scope_of(model).lookup(model.id)
    values: list[ast.expr | None] = []
    for binding in owner.bindings[model.id] if owner is not None else ():
        stmt = module.parents.get(binding)
        values.append(stmt.value if isinstance(stmt, ast.Assign) and binding in stmt.targets else None)
    calls = [v for v in values if isinstance(v, ast.Call)]
    again = [c for c in calls if ast.unparse(c.func).partition(".")[0] == model.id]  # copied = copied.half()
    copies = [c for c in calls if c not in again and called_name(c) == "deepcopy"]
    return bool(copies) and len(copies) + len(again) == len(values)


def _float_again(module: Module, call: ast.Call, model: ast.expr) -> bool:
    """Whether a model that becomes half, for an evaluation say, is made float32 again further down, wherever it did."""
    name = module.source(model)
    no_list = {(f"type({name}) != list", True), (f"type({name}) == list", False), (f"isinstance({name}, list)", False)}
    each = next((a for a in module.around(model) if isinstance(a, ast.ListComp)), None)
    if each is not None and module.source(each.generators[0].target) == module.source(model):
        model = each.generators[0].iter  # a list has no float(): what goes on there is no training either
        no_list = set()
    scope, asked = module.scope_of(module.statement(call)), _asked_around(module, call) | no_list
    return any(
        module.source(method.value) == module.source(model)
        and module.scope_of(back) is scope
        and call.lineno < back.lineno
        and _asked_around(module, back) <= asked
        and not _may_leave(module, call, back)
        for back, method in module.method_calls.get("float", ())
    )


def _asked_around(module: Module, node: ast.AST) -> set[tuple[str, bool]]:
    """The tests, loops and attempts around a node in its function, and whether it stands in their first block."""
    found: set[tuple[str, bool]] = set()
    child = node
    for parent in module.ancestors(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
        if isinstance(parent, (ast.If, *LOOP_NODES, ast.Try)):
            asked = ast.unparse(parent.test) if isinstance(parent, ast.If) else f"line {parent.lineno}"
            found.add((asked, child in parent.body))
        child = parent
    return found


def _may_leave(module: Module, first: ast.AST, then: ast.AST) -> bool:
    """Whether something between two places leaves the way from one to the other, or gives what is asked on it another value."""
    around = {a for place in (first, then) for a in module.ancestors(place)}
    asked = identifiers(*(a.test for a in around if isinstance(a, ast.If)))
    for node in walk(module.scope_of(module.statement(first)).node):
        if not getattr(first, "lineno", 0) < getattr(node, "lineno", 0) < getattr(then, "lineno", 0):
            continue
        if isinstance(node, ast.Return) or (
            isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in asked
        ):
            return True
        if isinstance(node, (ast.Break, ast.Continue)):
            if next((a for a in module.ancestors(node) if isinstance(a, LOOP_NODES)), None) in around:
                return True
    return False
