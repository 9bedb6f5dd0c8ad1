"""`BCELoss` and `binary_cross_entropy`, which autocast refuses on CUDA: kept outside of regions, on float32 inputs.

Native: https://pytorch.org/docs/stable/amp.html#prefer-binary-cross-entropy-with-logits-over-binary-cross-entropy
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.findings import Code
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.tree import children, names_stored, walk
from amp_migrate.reading.program.view import find
from amp_migrate.reading.regions.place import Regions
from amp_migrate.reading.regions.refused import refuses
from amp_migrate.reading.regions.spans import Region
from amp_migrate.reading.units.naming import unbound
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.reading.values.dtypes import FLOAT32
from amp_migrate.reading.values.tensors import only_described
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions.half_values import HalfValues
from amp_migrate.rules.regions.left_float import left_in_float32
from amp_migrate.writing.edits import Code as Emitted
from amp_migrate.writing.edits import Edits

SQUASHING = frozenset(("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.nn.Sigmoid", "torch.squeeze"))
VALUED = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)
SOMETIMES = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Await)
METHODS = frozenset("view reshape squeeze flatten sigmoid detach contiguous unsqueeze t mean sum clamp".split())

CODES = (
    Code(
        "AMP505",
        "binary_cross_entropy stands outside autocast, on float32 inputs",
        "BCELoss",
        apex="O1 raises; O2 computes it in float32.",
        native="Raises under autocast on CUDA (CPU autocast accepts it).",
        why="Probabilities are too coarse in half precision; binary_cross_entropy_with_logits is the safe form. Where a region "
        "comes to it in a forward, a loss class or a branch, a region without autocast stands around it.",
        links=(
            "https://pytorch.org/docs/stable/amp.html#prefer-binary-cross-entropy-with-logits-over-binary-cross-entropy",
        ),
    ),
)


def parts(m: Migration, found: Regions, region: Region) -> list[Region]:
    """A region without the statements that autocast refuses: what stands before, between and after them.

    Raises Blocked where such a statement stands deeper in the region.
    """
    module = found.scope.module
    runs: list[list[ast.stmt]] = [[]]
    stmts = m.regions.held(found.scope, region)
    if not any(_refused(m, found, s) for s in stmts):
        for inner, calls in _deep(m, found, stmts):
            if not all(_can_be_island(module, call) for call in calls):
                message = "binary_cross_entropy stands deep in what autocast must cover; take it out of there"
                raise Blocked(module, inner, "AMP505", "BCELoss", message)
        return [region]
    for stmt in stmts:
        if _refused(m, found, stmt):
            runs.append([])
        else:
            runs[-1].append(stmt)
    return [Region(run[0], run[-1]) for run in runs if any(map(_computes, run))]


def _computes(stmt: ast.stmt) -> bool:
    """Whether autocast changes anything in a statement: `loss = loss * 0.5` has the dtype of what it is given."""
    powers = (ast.MatMult, ast.Pow)
    return any(isinstance(n, ast.Call) or (isinstance(n, ast.BinOp) and isinstance(n.op, powers)) for n in walk(stmt))


def _deep(m: Migration, found: Regions, stmts: list[ast.stmt]) -> Iterator[tuple[ast.stmt, list[ast.Call]]]:
    """The statements within others of a region that autocast refuses, with the calls in them."""
    module = found.scope.module
    for inner in (n for s in stmts for n in walk(s) if isinstance(n, ast.stmt)):
        if _refused(m, found, inner):
            calls = [n for n in walk(inner) if isinstance(n, ast.Call) and refuses(m.project, module, n)]
            yield inner, [n for n in calls if module.statement(n) is inner]


def apply(m: Migration) -> None:
    """Switch autocast off around what stands deep in a region, or in a function that a region runs."""
    wanted: dict[ast.Call, Module] = {}
    for scope in m.regions.scopes():
        found = m.regions.read(scope)
        for region in (r for r in found.found if r.first not in m.float32):
            stmts = m.regions.held(scope, region)
            if not any(_refused(m, found, s) for s in stmts):
                wanted.update((call, scope.module) for _, calls in _deep(m, found, stmts) for call in calls)
    for module in m.project.modules:
        for line in sorted(m.mended_lines(module, "AMP533")):
            calls = [c for c, _ in module.calls if module.statement(c).lineno == line]
            told = [c for c in calls if refuses(m.project, module, c)] or [c for c in calls if _of_value(m, module, c)]
            wanted.update((c, module) for c in told)
    islands: dict[ast.stmt, list[ast.Call]] = {}
    for call, module in wanted.items():
        if _can_be_island(module, call):
            islands.setdefault(module.statement(call), []).append(call)
    for together in islands.values():
        _island(m, wanted[together[0]], together)


def _of_value(m: Migration, module: Module, call: ast.Call) -> bool:
    """Whether a call runs what a variable or attribute holds, on as much as a loss is given."""
    held = isinstance(call.func, (ast.Name, ast.Attribute, ast.Subscript)) and module.qualify(call.func) is None
    return held and len(call.args) > 1 and not m.project.resolved.get(call)


def _can_be_island(module: Module, call: ast.Call) -> bool:
    """Whether a call can be computed in a statement of its own above the one that it stands in: it runs once there, whatever
    the rest of the statement does."""
    stmt = module.statement(call)
    if not isinstance(stmt, VALUED) or len(call.args) < 2:
        return False
    around = list(module.ancestors(call))
    return not any(isinstance(node, SOMETIMES) for node in around[: around.index(stmt)])


def _island(m: Migration, module: Module, calls: list[ast.Call]) -> None:
    """`with torch.autocast("cuda", enabled=False):` around the losses of a statement on float32 inputs; what else it computes,
    and the networks that give the inputs, stay in the region."""
    edits, stmt, scope = m.edit(module), module.statement(calls[0]), module.scope_of(calls[0])
    indent = m.style(module).indent
    header = f"with {m.off('autocast', module, scope)}:\n{indent}"
    assert isinstance(stmt, VALUED)
    outputs = iter(_fresh(scope, 2 * len(calls)))
    above: list[Emitted] = []  # what gives the inputs
    codes = [_computed(m, module, call, outputs, above) for call in calls]
    if len(calls) == 1 and stmt.value is calls[0] and (target := _whole(stmt)) is not None:
        now: Emitted = (header, *target, *codes[0])
    else:
        lines: list[str | ast.expr] = [header]
        for call, code, name in zip(calls, codes, _names(scope, len(calls)), strict=True):
            lines += [f"\n{indent}" * (call is not calls[0]), f"{name} = ", *code]
            edits.replace(call, name)
        above.append(tuple(lines))
        now = (stmt,)
    if now == (stmt,) and all(w.first is not stmt for w in edits.wraps):
        edits.insert_before(stmt, *above)
    else:  # in the region that begins here
        edits.replace(stmt, *above, now)
    for call in calls:
        m.output.note(module, call, "AMP505", "BCELoss", "computed without autocast, on float32 inputs", "look")


def _whole(stmt: ast.stmt) -> tuple[str | ast.expr, ...] | None:
    """What stands before the value of a statement that can stand in a region as it is."""
    match stmt:
        case ast.Return():
            return ("return ",)
        case ast.Expr():
            return ("",)
        case ast.Assign(targets=[target]):
            return (target, " = ")
        case ast.AugAssign(target=target, op=ast.Add()):
            return (target, " += ")
    return None


def _computed(
    m: Migration, module: Module, call: ast.Call, outputs: Iterator[str], above: list[Emitted]
) -> tuple[str | ast.expr, ...]:
    """A loss on float32 inputs; those that something computes are put into `outputs` above. Of what may be another loss, which
    wants integers, the targets stay as they are."""
    edits = m.edit(module)
    inputs = 2 if refuses(m.project, module, call) else 1
    given: list[tuple[str | ast.expr, ...]] = []
    for value in call.args[:inputs]:
        if any(isinstance(n, ast.Call) and not _shapes(module, n) for n in walk(value)):
            name = next(outputs)
            above.append((f"{name} = ", value))
            given.append((name, ".float()"))
        elif (squashed := _squashed(module, value)) is not None:
            _cast_once(edits, squashed)
            given.append((value,))
        elif isinstance(value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
            cast = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "float"
            given.append((value,) if cast else (value, ".float()"))
        else:
            given.append(("(", value, ").float()"))
    others: list[tuple[str | ast.expr, ...]] = [(value,) for value in call.args[inputs:]]
    others += [(f"{k.arg}=" if k.arg else "**", k.value) for k in call.keywords]
    return (
        call.func,
        "(",
        *(part for i, each in enumerate([*given, *others]) for part in (", " * bool(i), *each)),
        ")",
    )


def _squashed(module: Module, value: ast.expr) -> ast.expr | None:
    """The tensor that a sigmoid is computed of, be it given another shape: it is to be float32 before; None where there is
    no sigmoid, or the tensor is no plain one."""
    squashes = False
    while isinstance(value, ast.Call) and _shapes(module, value):
        method = value.func.attr if isinstance(value.func, ast.Attribute) and not module.qualify(value.func) else ""
        if not method and len(value.args) < 1:
            return None
        squashes = squashes or method == "sigmoid" or "igmoid" in ast.unparse(value.func)
        assert isinstance(value.func, ast.Attribute) or value.args
        value = value.func.value if method and isinstance(value.func, ast.Attribute) else value.args[0]
    return value if squashes and isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)) else None


def _shapes(module: Module, call: ast.Call) -> bool:
    """Whether a call only gives a tensor another shape or dtype, or squashes it."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    name = (
        module.qualify(call.func) or (module.qualify(call.func.func) if isinstance(call.func, ast.Call) else "") or ""
    )
    return name in SQUASHING or (not name and method in METHODS | {"float", "to", "type_as", "expand_as"})


def islands(m: Migration, found: Regions, regions: list[Region]) -> list[ast.stmt]:
    """The refused statements of a scope, those with a forward inside too."""
    held = [s for r in regions for s in m.regions.held(found.scope, r)]
    return list(dict.fromkeys([*found.islands, *(s for s in held if _refused(m, found, s))]))


def _refused(m: Migration, found: Regions, stmt: ast.stmt) -> bool:
    node = find(m.regions.view(found.scope), stmt)
    if node is None:
        return False
    return m.regions.refused(found.scope.module, node) or left_in_float32(m, found, stmt) is not None


def take_out(m: Migration, found: Regions, stmt: ast.stmt, inside: set[ast.stmt], cast: set[str]) -> None:
    """Make what a refused statement is given float32, its forwards first put into a region of their own."""
    module = found.scope.module
    edits = m.edit(module)
    forwards: list[ast.Call] = []
    stack: list[ast.AST] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Call) and m.regions.is_forward(module, node):
            forwards.insert(0, node)
        else:
            stack.extend(children(node))
    for call, name in zip(forwards, _fresh(found.scope, len(forwards)), strict=True):
        header = m.autocast(module, stmt)
        text = f"with {header}:\n{m.style(module).indent}{name} = {module.source(call)}"
        edits.insert_before(stmt, text)
        edits.replace(call, f"{name}.float()")
    half = HalfValues(m, found, inside, cast)
    computed = names_stored(*inside)
    for read in (n for n in walk(stmt) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)):
        if read.id not in (computed & found.values) - cast or any(a in forwards for a in module.ancestors(read)):
            continue
        value = _tensor(module, read)
        if value is not None and not all(half.given(b, read.id) in FLOAT32 for b in half.reaching(read)):
            _cast_once(edits, value)
    computed_so = "computed outside autocast, on float32 inputs"
    if (criterion := left_in_float32(m, found, stmt)) is not None:
        message = f"{module.source(criterion.func)} was not given to amp.initialize, and is {computed_so}, as it was"
        m.output.note(module, stmt, "AMP507", "torch.autocast", message, "look")
    else:
        m.output.note(module, stmt, "AMP505", "BCELoss", computed_so, "look")


def _names(scope: Scope, count: int) -> list[str]:
    """Names for the losses of a statement that had none."""
    names: list[str] = []
    for _ in range(count):
        candidates = ("bce_loss", *(f"bce_loss_{i}" for i in range(2, count + 9)))
        names.append(unbound(scope, [n for n in candidates if n not in names]))
    return names


def _fresh(scope: Scope, count: int) -> list[str]:
    """Names for the outputs of forwards that had none."""
    names: list[str] = []
    for _ in range(count):
        left = (n for n in ("output", "prediction", "model_output") if n not in names)
        names.append(unbound(scope, [*left, *(f"output_{i}" for i in range(2, count + 2) if i > len(names))]))
    return names


def _tensor(module: Module, name: ast.Name) -> ast.expr | None:
    """The tensor that a name stands for where it is an argument: itself, or a part of it, or whose dtype is asked;
    None for anything else."""
    value: ast.expr = name
    parent = module.parents[value]
    while isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is value:
        outer = module.parents[parent]
        if isinstance(outer, ast.Call) and outer.func is parent:
            return value if isinstance(parent, ast.Attribute) and parent.attr in METHODS else None
        if only_described(module, value):
            return value if isinstance(parent, ast.Attribute) and parent.attr == "dtype" else None
        value, parent = parent, outer
    if only_described(module, value) or (isinstance(parent, ast.Call) and parent.func is value):
        return None
    return value if isinstance(parent, (ast.Call, ast.BinOp, ast.UnaryOp, ast.keyword)) else None


def _cast_once(edits: Edits, value: ast.expr) -> None:
    """Write `.float()` behind a value, where nothing else has."""
    if ("after", ".float()") not in edits.insertions.get(value, ()):
        edits.insert("after", value, ".float()")
