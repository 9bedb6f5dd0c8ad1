"""No weight that a loss scaler trains is still made half.

Apex trained half weights through float32 masters; a GradScaler refuses their gradients. Models made half where the file now
makes a GradScaler are refuted, and wherever else it is done before their optimizer is stepped; so are half tensors that an
optimizer is given, and weights that one of the program writes back as half. Builders out of sight that are asked for half
weights are pointed out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.dtypes import HALF_TYPES
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review, calls_in
from amp_migrate.audit.sites.float_data import given_float
from amp_migrate.audit.sites.made_half import copied, last_cast, made_float_again, made_half, made_there
from amp_migrate.audit.sites.own_half import halves
from amp_migrate.audit.sites.setups import FP16_OPTIMIZER, argument
from amp_migrate.audit.sites.weights import Frame, Weights, overlap
from amp_migrate.audit.ways.chains import Chain
from amp_migrate.audit.ways.formulas import Formula, conjunction, disjunction, example, negation
from amp_migrate.audit.ways.off_instead import GRAD_SCALER
from amp_migrate.audit.ways.trails import Place
from amp_migrate.audit.ways.within import may_follow
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
SETTINGS = frozenset(["argparse.Namespace", "types.SimpleNamespace"])  # what they hold is no more than said
OF_MODULES = frozenset(
    "parameters named_parameters train eval state_dict load_state_dict named_modules modules zero_grad children".split()
)


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    told: set[ast.AST] = set()
    for change in review.changes.values():
        module = change.after
        if "GradScaler" not in module.text:
            continue
        scalers = [
            c
            for c, name in calls_in(review.after, module, GRAD_SCALER)
            if change.changed(c) and not syntax.is_false(argument(c, "enabled", GRAD_SCALER[name]))
        ]
        if not scalers or not (trains := [call for call, _ in module.method_calls("scale")]):
            continue
        legacy = _legacy(both, change.before)
        for call, doubt in _halved(both, module, scalers, trains, legacy):
            told.add(call)
            yield doubt
        yield from _asked(both, module, scalers, legacy)
    yield from _networks(both, told)
    yield from _leaves(both)
    yield from _written_back(both)


def _legacy(both: Mixed, before: Module) -> bool:
    """Whether the file trained half weights itself before: with FP16_Optimizer."""
    return any(
        both.review.before.dotted(before.scope_of(c), c.func) in FP16_OPTIMIZER
        for c in before.calls()
        if "FP16_Optimizer" in syntax.text(c.func)
    )


def _halved(
    both: Mixed, module: Module, scalers: list[ast.Call], trains: list[ast.Call], legacy: bool
) -> Iterator[tuple[ast.Call, Doubt]]:
    """`model.half()` of a model that the program trains.

    `amp.initialize` refused models with half weights, so such a run failed before too: only FP16_Optimizer trained them.
    """
    for call, model in made_half(module):
        receiver = syntax.text(model)
        if not _is_module(module, call, receiver) or not any(_together(both, module, call, s) for s in scalers):
            continue
        if copied(model) or made_float_again(module, call, model) or not _trained(both, module, model):
            continue
        if not any(_later(both, module, call, t) for t in trains) or (of := halves(both, module, call)) == "nothing":
            continue
        function = module.function_around(call)
        here = any(module.function_around(s) is function for s in scalers)
        verdict: Verdict = "refuse" if legacy and here and of == "all" else "review"
        what, where = (receiver, "") if of == "all" else (f"something of {receiver}", "where that is a weight, ")
        message = (
            f"{what} is still made half here, and a GradScaler trains it: {where}unscaling raises "
            '"Attempting to unscale FP16 gradients."; leave the weights in float32, autocast casts what it needs'
        )
        yield call, both.review.doubt(module, call, "AMP534", "model.half()", message, verdict, ("AMP118",))


def _networks(both: Mixed, told: set[ast.AST]) -> Iterator[Doubt]:
    """`model.half()` in whichever file, on a way that goes on to a scaled step of an optimizer that has its weights.

    Where FP16_Optimizer trained them in the file that steps: `amp.initialize` refused such models.
    """
    halved = [
        (module, call, model)
        for module in both.after.modules
        for call, model in made_half(module)
        if call not in told and (not copied(model) or made_there(model))
    ]
    if not halved:
        return
    weights = Weights(both.after.forwards)
    for scaler, where, given in _scaled_steps(both):
        change = both.review.changes.get(where.path)
        if change is None or not _legacy(both, change.before):
            continue
        stepped = weights.of_optimizer(Frame(where.scope_of(given)), given)
        within = weights.within_unseen(stepped)
        for module, call, model in halved:
            made = weights.network(Frame(module.scope_of(model)), model)
            if (of := halves(both, module, call)) == "nothing":
                continue
            own, held = (any(overlap(a, b) for a in made for b in places) for places in (stepped, within))
            if not (own or held) or made_float_again(module, call, model):
                continue
            if _goes_on(both, (module, call), (where, given), scaler):
                steps = (
                    "its weights here"
                    if own
                    else "here what code out of sight was given it to make: where that holds it,"
                )
                what = "" if of == "all" else "something of "
                message = (
                    f"{what}{syntax.text(model)} is made half at {module.path}:{both.review.line(module, call)}, and the GradScaler "
                    f'steps {steps}{":" * own} it raises "Attempting to unscale FP16 gradients."; leave the weights in float32, '
                    "autocast casts what it needs"
                )
                yield both.review.doubt(
                    where, given, "AMP534", "model.half()", message, "refuse" if own and of == "all" else "review"
                )
                break


def _goes_on(both: Mixed, half: tuple[Module, ast.AST], step: tuple[Module, ast.AST], scaler: ast.expr) -> bool:
    """Whether one run may come by the one place and then by the other, with the scaler enabled."""
    predicates, chains = both.after.predicates, both.after.chains
    for one in chains.to(*half):
        for other in chains.to(*step):
            if comes_first(one, other):
                on = predicates.scaler_on(scaler, predicates.places(other)[-1])
                if example(conjunction([predicates.given(one), predicates.given(other), on])) is not None:
                    return True
    return False


def comes_first(one: Chain, other: Chain) -> bool:
    return any(
        a.function is b.function and a.module is b.module and may_follow(a.module, a.node, b.node)
        for a in one.steps
        for b in other.steps
    )


def _later(both: Mixed, module: Module, call: ast.Call, train: ast.Call) -> bool:
    """Whether a loss may be scaled after a model was made half: an export at the end is not trained any more."""
    function = module.function_around(call)
    for chain in both.after.chains.to(module, train):
        steps = [s for s in chain.steps if s.function is function and s.module is module]
        if not steps or any(may_follow(module, call, s.node) for s in steps):
            ways, given = both.after.chains.to(module, call), both.after.predicates.given
            if not ways or any(example(conjunction([given(way), given(chain)])) is not None for way in ways):
                return True
    return False


def _is_module(module: Module, call: ast.Call, receiver: str) -> bool:
    """Whether what is made half is a model and no tensor: its parameters, mode or state are asked for."""
    function = module.function_around(call)
    asked = (c for name in OF_MODULES for c, holder in module.method_calls(name) if syntax.text(holder) == receiver)
    return any(module.function_around(c) is function for c in asked)


def _trained(both: Mixed, module: Module, model: ast.expr) -> bool:
    """Whether its parameters go to an optimizer, or it is made to train: not another one that is called so elsewhere."""
    receiver, made = syntax.text(model), _made(both, module, model)
    return any(
        syntax.text(holder) == receiver
        and not (c.args and syntax.is_false(c.args[0]))
        and not _asks(module, c)
        and not (made and _another(both, module, holder, made))
        for name in ("parameters", "named_parameters", "train")
        for c, holder in module.method_calls(name)
    )


def _another(both: Mixed, module: Module, holder: ast.expr, made: frozenset[ast.AST]) -> bool:
    """Whether a variable holds nothing that some calls make: what others make, or what nobody in sight gives a function."""
    for origin in both.review.values_after.of(module, holder):
        if origin.node in made or origin.kind == "unknown":
            return False
        if origin.kind == "parameter":
            around = origin.module.ancestors(origin.node)
            named = next((a.name for a in around if isinstance(a, (ast.FunctionDef, ast.AsyncFunctionDef))), "")
            if not named or any(named in m.calls_named for m in both.review.after.having(named)):
                return False
    return True


def _asks(module: Module, call: ast.Call) -> bool:
    """Whether one of the parameters is looked at alone: `next(model.parameters()).device`."""
    around = module.parents.get(call)
    return isinstance(around, ast.Call) and syntax.text(around.func) == "next"


def _made(both: Mixed, module: Module, model: ast.expr) -> frozenset[ast.AST]:
    """The calls that make what a variable of one function holds; none where one of them is not seen."""
    owner = module.scope_of(model).binder(model.id) if isinstance(model, ast.Name) else None
    if owner is None or owner.function is None:
        return frozenset()
    origins = both.review.values_after.of(module, model)
    known = all(o.kind == "call" and isinstance(o.node, ast.Call) for o in origins)
    return frozenset(o.node for o in origins) if known else frozenset()


def _together(both: Mixed, module: Module, call: ast.Call, scaler: ast.Call) -> bool:
    """Whether one run may come by both: not in the two arms of one test."""
    if module.function_around(call) is not module.function_around(scaler):
        return True
    if not may_follow(module, call, scaler) and not may_follow(module, scaler, call):
        return False
    place = Place(module.scope_of(call))
    predicates, chains = both.after.predicates, both.after.chains
    parts = [predicates.under([*chains.tests(module, call), *chains.tests(module, scaler)], place)]
    name = both.review.after.dotted(module.scope_of(scaler), scaler.func)
    enabled = argument(scaler, "enabled", GRAD_SCALER.get(name or "", 5))
    if enabled is not None:
        parts.append(predicates.of(enabled, place))
    return example(conjunction(parts)) is not None


def _leaves(both: Mixed) -> Iterator[Doubt]:
    """Half tensors that an optimizer is given, `SGD([torch.randn(n, dtype=torch.half)])`: Apex unscaled their gradients too."""
    review = both.review
    modules = [m for m in both.after.modules if "optim" in m.text and m.words & {"half", "float16"}]
    steps = list(_scaled_steps(both)) if modules else []
    for module in modules:
        for call in module.calls():
            name = review.after.dotted(module.scope_of(call), call.func) or ""
            if not name.startswith("torch.optim.") or not call.args:
                continue
            halves = [(t, when) for t in _tensors(call.args[0]) if (when := _half(both, module, t)) is not False]
            for scaler, where, given in steps if halves else ():
                if not any(o.node is call for o in review.values_after.of(where, given)):
                    continue
                on = both.after.predicates.scaler_on(scaler, Place(where.scope_of(given)))
                leaf = next((t for t, when in halves if example(conjunction([when, on])) is not None), None)
                if leaf is not None and not given_float(both, module, leaf, where, given):
                    message = (
                        f"{syntax.text(leaf)} is float16 and what this optimizer steps: GradScaler raises "
                        '"Attempting to unscale FP16 gradients."; make it float32, autocast casts what it needs'
                    )
                    yield review.doubt(module, call, "AMP534", syntax.text(leaf), message)
                    break


def _written_back(both: Mixed) -> Iterator[Doubt]:
    """An optimizer of the program that keeps copies of its own and writes half weights back: `p.data = copy.half()`."""
    program = both.review.after
    steps = list(_scaled_steps(both))
    for cls in program.classes if steps else ():
        if not any(base.rpartition(".")[2] == "Optimizer" for base in program.external_bases(cls)):
            continue
        written = (n for n in syntax.every(cls.node, ast.Assign) if any(_is_data(t) for t in n.targets))
        half = next((n for n in written if _becomes_half(both, cls.module, n.value)), None)
        stepped = half is not None and any(
            cls in program.definitions(o.module.scope_of(o.node), o.node.func)
            for _, where, given in steps
            for o in both.review.values_after.of(where, given)
            if isinstance(o.node, ast.Call) and not o.path
        )
        if half is not None and stepped:
            message = (
                f"{cls.name} writes half weights back here, and a GradScaler steps it: from the second step on unscaling raises "
                '"Attempting to unscale FP16 gradients."; leave the weights in float32, autocast casts what it needs'
            )
            yield both.review.doubt(cls.module, half, "AMP534", syntax.text(half.targets[0]), message)


def _is_data(target: ast.expr) -> bool:
    """Whether what is assigned to are the data of a tensor that is no field of the optimizer's own."""
    return isinstance(target, ast.Attribute) and target.attr == "data" and isinstance(target.value, ast.Name)


def _becomes_half(both: Mixed, module: Module, value: ast.expr) -> bool:
    """Whether a tensor is cast to half where it is written."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    asked = [*value.args[:1], *(k.value for k in value.keywords if k.arg == "dtype")]
    place = Place(module.scope_of(value))
    named = value.func.attr in ("to", "type") and any(half_type(both, dtype, place) is True for dtype in asked)
    return named or value.func.attr == "half"


def _tensors(given: ast.expr) -> Iterator[ast.expr]:
    """The single tensors that an optimizer is given in a list."""
    if isinstance(given, (ast.List, ast.Tuple)):
        yield from (e for e in given.elts if isinstance(e, (ast.Name, ast.Attribute)))


def _half(both: Mixed, module: Module, tensor: ast.expr) -> Formula:
    """When a tensor is made half, as far as that is written where it is made."""
    found: Formula = False
    for origin in both.review.values_after.of(module, tensor):
        if not isinstance(origin.node, ast.Call) or origin.path:
            continue
        scope = origin.module.scope_of(origin.node)
        if (cast := last_cast(origin.module, origin.node)) is not None:
            if cast == "half":
                return True
            continue
        dtype = argument(origin.node, "dtype", 99)
        name = both.review.after.dotted(scope, origin.node.func) or ""
        if dtype is not None and name.startswith("torch."):
            found = disjunction([found, half_type(both, dtype, Place(scope))])
    return found


def half_type(both: Mixed, dtype: ast.expr, place: Place, depth: int = 0) -> Formula:
    """When an expression is a half type."""
    name = both.review.after.dotted(place.scope, dtype)
    if name is not None:
        return name in HALF_TYPES
    predicates = both.after.predicates
    if isinstance(dtype, ast.IfExp):
        test = predicates.of(dtype.test, place)
        yes, no = (half_type(both, v, place, depth + 1) for v in (dtype.body, dtype.orelse))
        return disjunction([conjunction([test, yes]), conjunction([negation(test), no])])
    found = predicates.trails.value(dtype, place) if depth < 5 else None
    return half_type(both, found[0], found[1], depth + 1) if found is not None else False


def _scaled_steps(both: Mixed) -> Iterator[tuple[ast.expr, Module, ast.expr]]:
    """The scaler and the optimizer of each `scaler.step(optimizer)`."""
    for module in both.after.modules:
        for call, scaler in module.method_calls("step"):
            if call.args and isinstance(call.args[0], (ast.Name, ast.Attribute)):
                yield scaler, module, call.args[0]


def _asked(both: Mixed, module: Module, scalers: list[ast.Call], legacy: bool) -> Iterator[Doubt]:
    """`build(to_fp16=args.fp16)`: whoever builds the model may make it half."""
    if not legacy:
        return
    for call in module.calls():
        for keyword in call.keywords:
            if keyword.arg not in ASKED or syntax.is_false(keyword.value):
                continue
            if (
                both.review.after.callees(module, call)
                or both.review.after.dotted(module.scope_of(call), call.func) in SETTINGS
            ):
                continue
            message = (
                f"{syntax.text(call.func)} is asked for half weights ({keyword.arg}=): if it makes them so, the GradScaler raises "
                '"Attempting to unscale FP16 gradients."; ask it for float32 weights'
            )
            yield both.review.doubt(module, call, "AMP534", "model.half()", message, "refuse")
