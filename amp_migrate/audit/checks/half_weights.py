"""No weight that a loss scaler trains is still made half.

Apex trained half weights through float32 masters; a GradScaler refuses their gradients. Models made half where the file now
makes a GradScaler are refuted, builders out of sight that are asked for half weights are pointed out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit import syntax
from amp_migrate.audit.chains import may_follow
from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.formulas import conjunction, example, negation
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.module import Module
from amp_migrate.audit.predicates import GRAD_SCALER, Place
from amp_migrate.audit.review import Review
from amp_migrate.audit.setups import FP16_OPTIMIZER, argument
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP534",
        title="weights are still made half where a GradScaler trains them",
        construct="model.half()",
        apex="O2 and FP16_Optimizer kept half weights and float32 masters of them.",
        native="Leave the weights in float32: autocast casts what an operation needs. Drop `.half()` and flags such as "
        "`to_fp16=`.",
        why='GradScaler raises "Attempting to unscale FP16 gradients."',
    ),
)
ASKED = frozenset({"to_fp16", "to_half", "half", "fp16_params", "use_half", "convert_to_fp16"})
OF_MODULES = frozenset(
    "parameters named_parameters train eval state_dict load_state_dict named_modules modules zero_grad children".split()
)


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    for change in review.changes.values():
        module = change.after
        if "GradScaler" not in module.text:
            continue
        scalers = [
            c
            for c in module.calls()
            if (name := review.after.dotted(module.scope_of(c), c.func)) in GRAD_SCALER
            and change.changed(c)
            and not _never(argument(c, "enabled", GRAD_SCALER[name]))
        ]
        trains = [c for c in module.calls() if isinstance(c.func, ast.Attribute) and c.func.attr == "scale"]
        if not scalers or not trains:
            continue
        legacy = _legacy(both, change.before)
        yield from _halved(both, module, scalers, trains, legacy)
        yield from _asked(both, module, scalers, legacy)


def _legacy(both: Mixed, before: Module) -> bool:
    """Whether the file trained half weights itself before: with FP16_Optimizer."""
    return any(
        both.review.before.dotted(before.scope_of(c), c.func) in FP16_OPTIMIZER
        for c in before.calls()
        if "FP16_Optimizer" in syntax.text(c.func)
    )


def _halved(
    both: Mixed, module: Module, scalers: list[ast.Call], trains: list[ast.Call], legacy: bool
) -> Iterator[Doubt]:
    """`model.half()` of a model that the program trains.

    `amp.initialize` refused models with half weights, so such a run failed before too: only FP16_Optimizer trained them.
    """
    if ".half()" not in module.text:
        return
    review = both.review
    for call in module.calls():
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "half" or call.args:
            continue
        receiver = syntax.text(func.value)
        if not _is_module(both, module, call, receiver):
            continue
        if not any(_together(both, module, call, s) for s in scalers):
            continue
        if _copied(module, func.value) or not _trained(both, module, receiver):
            continue
        if not any(_later(both, module, call, t) for t in trains):
            continue
        function = module.function_around(call)
        here = any(module.function_around(s) is function for s in scalers)
        verdict: Verdict = "refuse" if legacy and here else "review"
        message = (
            f"{receiver} is still made half here, and a GradScaler trains it: unscaling raises "
            '"Attempting to unscale FP16 gradients."; leave the weights in float32, autocast casts what it needs'
        )
        yield review.doubt(module, call, "AMP534", "model.half()", message, verdict, ("AMP118",))


def _later(both: Mixed, module: Module, call: ast.Call, train: ast.Call) -> bool:
    """Whether a loss may be scaled after a model was made half: an export at the end is not trained any more."""
    function = module.function_around(call)
    for chain in both.after.chains.to(module, train):
        steps = [s for s in chain.steps if s.function is function and s.module is module]
        if not steps or any(may_follow(module, call, s.node) for s in steps):
            return True
    return False


def _is_module(both: Mixed, module: Module, call: ast.Call, receiver: str) -> bool:
    """Whether what is made half is a model and no tensor: its parameters, mode or state are asked for."""
    for other in module.calls():
        f = other.func
        if isinstance(f, ast.Attribute) and f.attr in OF_MODULES and syntax.text(f.value) == receiver:
            if module.function_around(other) is module.function_around(call):
                return True
    return False


def _trained(both: Mixed, module: Module, receiver: str) -> bool:
    """Whether its parameters go to an optimizer, or it is made to train."""
    return any(
        isinstance(c.func, ast.Attribute)
        and c.func.attr in ("parameters", "named_parameters", "train")
        and syntax.text(c.func.value) == receiver
        and not (c.args and isinstance(c.args[0], ast.Constant) and not c.args[0].value)
        for c in module.calls()
    )


def _copied(module: Module, value: ast.expr) -> bool:
    """`deepcopy(model).half()`, `model.eval().half()`: a copy for saving, or one that is not trained."""
    return isinstance(value, ast.Call)


def _together(both: Mixed, module: Module, call: ast.Call, scaler: ast.Call) -> bool:
    """Whether one run may come by both: not in the two arms of one test."""
    if module.function_around(call) is not module.function_around(scaler):
        return True
    if not may_follow(module, call, scaler) and not may_follow(module, scaler, call):
        return False
    place = Place(module.scope_of(call))
    predicates, chains = both.after.predicates, both.after.chains
    tests = [*chains.tests(module, call), *chains.tests(module, scaler)]
    parts = [predicates.of(t, place) if yes else negation(predicates.of(t, place)) for t, yes in tests]
    name = both.review.after.dotted(module.scope_of(scaler), scaler.func)
    enabled = argument(scaler, "enabled", GRAD_SCALER.get(name or "", 5))
    if enabled is not None:
        parts.append(predicates.of(enabled, place))
    return example(conjunction(parts)) is not None


def _never(enabled: ast.expr | None) -> bool:
    return isinstance(enabled, ast.Constant) and not enabled.value


def _asked(both: Mixed, module: Module, scalers: list[ast.Call], legacy: bool) -> Iterator[Doubt]:
    """`build(to_fp16=args.fp16)`: whoever builds the model may make it half."""
    if not legacy:
        return
    for call in module.calls():
        for keyword in call.keywords:
            if keyword.arg not in ASKED or (isinstance(keyword.value, ast.Constant) and not keyword.value.value):
                continue
            if both.review.after.callees(module, call):
                continue
            message = (
                f"{syntax.text(call.func)} is asked for half weights ({keyword.arg}=): if it makes them so, the GradScaler raises "
                '"Attempting to unscale FP16 gradients."; ask it for float32 weights'
            )
            yield both.review.doubt(module, call, "AMP534", "model.half()", message, "refuse")
