"""A model that the program makes half is not run on float32 values outside of any region, nor a float32 one traced on half.

O1's patched functions cast what they were given, weights and inputs alike, so that a half copy ran on float32 tensors; autocast
does that in its regions alone. A trace, an export or a summary is a forward (`tracers.py`). Told for copies that are made
half in the function that runs them, and for tensors that are seen to be made there. Not proved: copies and tensors that come
from elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.checks.half_inputs import outside
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.dtypes import HALF_TYPES
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.made_half import made_half
from amp_migrate.audit.sites.tracers import Traced, traced
from amp_migrate.audit.ways.within import may_follow
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP540",
        title="a model is run on tensors of another dtype outside of any region",
        construct="a call of the model",
        apex="O1 cast weights and inputs of each linear and convolution layer, for the whole process: a half copy of a model could "
        "be traced or run on float32 tensors. O2 and O3 made the weights half, and half tensors fitted them.",
        native="Weights stay as they are, and autocast ends with its region: a half copy takes half tensors.",
        why='It raises "Input type (float) and bias type (c10::Half) should be the same".',
    ),
)
FACTORIES = frozenset(f"torch.{n}" for n in "rand randn zeros ones empty full arange linspace FloatTensor".split())
KEEPING = frozenset("cuda to contiguous clone detach requires_grad_ unsqueeze view reshape permute".split())


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not both.removed or review.wish.dtype != "float16":
        return
    for module in both.after.modules:
        if not module.words & {"half", "float16"} or not both.near_setups(module):
            continue
        for run in _runs(both, module):
            weights, what = _weights(both, run), [_dtype(both, module, i) for i in run.inputs]
            other = {"half": "float", "float": "half"}.get(weights or "")
            if other not in what or not outside(both, run.module, run.call, both.initialized):
                continue
            if not _came_by_apex(both, run):
                continue
            given = syntax.text(run.inputs[what.index(other)])
            if weights == "half":
                said = f"is half, and {given} is float32: O1's patched functions cast them. It raises now. {_instead(both, run)}"
            else:
                said = (
                    f"has float32 weights now, and {given} is half: Apex cast one to the other. Give it float32 tensors"
                )
            message = (
                f"{syntax.text(run.call.func)} runs {syntax.text(run.model)} outside of any autocast region; it {said}"
            )
            yield review.doubt(module, run.call, "AMP540", "a call of the model", message, "review", ("AMP535",))


def _instead(both: Mixed, run: Traced) -> str:
    """What to do where a half copy is run on float32 tensors: a file that is kept should take what it took."""
    if both.after.program.dotted(run.module.scope_of(run.call), run.call.func) in (
        "torch.jit.trace",
        "torch.onnx.export",
    ):
        return (
            "Put it in torch.autocast(..., dtype=torch.float16, cache_enabled=False), and what is written down takes float32, as "
            "before; a trace on half tensors takes half ones alone"
        )
    return "Give it half tensors"


def _came_by_apex(both: Mixed, run: Traced) -> bool:
    """Whether a run that set Apex up may come here: in others nothing cast, and nothing is different."""
    ways = [both.chain_before(chain) for chain in both.after.chains.to(run.module, run.call)]
    for old in ways:
        if old is None or both.before.possible(old, both.under_apex(old, both.initialized).reached):
            return True
    return not ways


def _runs(both: Mixed, module: Module) -> Iterator[Traced]:
    yield from traced(both.after.program, module)
    made = {m for _, m in _halved(module)}
    for forward in both.after.forwards.of(module):
        if forward.method is None and syntax.text(forward.model) in made:
            yield Traced(module, forward.call, forward.model, tuple(forward.call.args))


def _halved(module: Module) -> Iterator[tuple[ast.Call, str]]:
    """The calls that make something half, and what is half then: `copy.half()`, `small = deepcopy(model).half()`."""
    for call, holder in made_half(module):
        stmt = module.statement(call)
        if isinstance(stmt, ast.Assign) and _last(stmt.value) is call:
            yield from ((call, syntax.text(t)) for t in stmt.targets)
        elif isinstance(stmt, ast.Expr) and stmt.value is call:
            yield call, syntax.text(holder)


def _last(value: ast.expr) -> ast.expr:
    """`deepcopy(model).half()` of `deepcopy(model).half().eval()`."""
    while isinstance(value, ast.Call) and isinstance(func := value.func, ast.Attribute) and func.attr != "half":
        if func.attr not in KEEPING | {"eval", "train"}:
            break
        value = func.value
    return value


def _weights(both: Mixed, run: Traced) -> str | None:
    """Whether the weights of what is run are half, as the function around it makes them, or float32, as Apex left them."""
    module, name = run.module, syntax.text(run.model)
    function = module.function_around(run.call)
    if isinstance(run.model, ast.Call):
        return "half" if syntax.text(_last(run.model)).endswith(".half()") else None
    made = [c for c, m in _halved(module) if m == name and module.function_around(c) is function]
    if any(may_follow(module, c, run.call) for c in made):
        return None if name in {syntax.text(holder) for _, holder in module.method_calls("float")} else "half"
    if any(m == name for _, m in _halved(module)):
        return None
    whole: ast.expr = run.model
    first = _origins(both, module, whole)
    initialized = {
        (i[-1].path, syntax.text(i[0]))
        for i in both.initialized
        if isinstance(i[0], ast.AST) and isinstance(i[-1], Module)
    }
    while not first & initialized and isinstance(whole, ast.Attribute):  # a part: `model.backbone`
        whole = whole.value
        if any(m == syntax.text(whole) for _, m in _halved(module)):
            return None
        first = _origins(both, module, whole)
    return "float" if first & initialized else None


def _origins(both: Mixed, module: Module, expr: ast.expr) -> set[tuple[str, str]]:
    found = both.after.values.origins(module.scope_of(expr), expr)
    return {(o.module.path, syntax.text(o.node)) for o in found}


def _dtype(both: Mixed, module: Module, expr: ast.expr) -> str | None:
    """Whether a tensor is seen to be made half or float32."""
    if isinstance(expr, ast.Call):
        return _made(both, module, expr)
    if isinstance(expr, ast.Name) and (value := _assigned_above(module, expr)) is not None:
        return _made(both, module, value)
    origins = both.after.values.origins(module.scope_of(expr), expr)
    found = {_made(both, o.module, o.node) if isinstance(o.node, ast.Call) and not o.path else None for o in origins}
    return found.pop() if len(found) == 1 else None


def _assigned_above(module: Module, name: ast.Name) -> ast.Call | None:
    """The call that a name was given last in the block that it stands in."""
    stmt: ast.stmt | None = None
    for other in module.beside(module.statement(name))[0]:
        if any(n.id == name.id and isinstance(n.ctx, ast.Store) for n in syntax.every(other, ast.Name)):
            stmt = other
    return stmt.value if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Call) else None


def _made(both: Mixed, module: Module, call: ast.Call) -> str | None:
    scope, func = module.scope_of(call), call.func
    name = both.after.program.dotted(scope, func)
    if name in FACTORIES:
        dtype = next((k.value for k in call.keywords if k.arg == "dtype"), None)
        asked = both.after.program.dotted(scope, dtype) if dtype is not None else None
        return "float" if dtype is None else "half" if asked in HALF_TYPES else None
    if not isinstance(func, ast.Attribute) or name is not None:
        return None
    if func.attr == "half" and not call.args:
        return "half"
    types = {both.after.program.dotted(scope, a) for a in syntax.given(call)}
    if func.attr not in KEEPING or types & HALF_TYPES:
        return "half" if types & HALF_TYPES else None
    return _dtype(both, module, func.value)
