"""Where `.float()` is written for a value that leaves a region in half precision, and what shows that it is a floating tensor.

One cast where the value is taken, below the region, serves every use of its name; else each use has its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import partial

from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import own_nodes, reached, walk
from amp_migrate.reading.values.entries import values_of_pair
from amp_migrate.rules.regions.half_values import HALVING, NUMBER_NAMES, OUTPUT_NAMES, HalfValues, kept_from
from amp_migrate.rules.regions.own_halves import make_float
from amp_migrate.rules.regions.shown import KEEPING, UNCHANGED

# What rounds half values once more: what comes of it differs by the dtype that it computes in.
ROUNDING = frozenset("sigmoid softmax log_softmax tanh exp log sqrt normalize logsigmoid".split())
# Words of names that hold class numbers or tokens, also beside those of floating values: `output_labels`.
WHOLE_WORDS = re.compile(r"label|class|token|pred|index|indices|mask|target", re.IGNORECASE)
ARITHMETIC = frozenset("add sub mul div true_divide".split())
CASTABLE = (ast.Name, ast.Subscript, ast.Attribute, ast.Call)


def write_float(half: HalfValues, value: ast.expr, *, written: bool = False) -> bool:
    """Make a value float32, if that can be. `written`: its use writes into it, so that no copy will do there."""
    if isinstance(root := kept_from(value), ast.Name) and _before_rounding(half, root):
        return True
    stmt = _taken(half, value, written) if isinstance(value, ast.Name) else None
    if stmt is not None:
        value = unrounded(half.module, side(half, stmt.value))
        half.float_stmts.add(stmt)
    elif written:
        return False
    elif isinstance(value, ast.BinOp):
        value = side(half, value)
    if value not in half.m.edit(half.module).insertions:
        make_float(half.m, half.module, value)
    return True


def _before_rounding(half: HalfValues, use: ast.Name) -> bool:
    """Cast what statements outside of every region round once more in its dtype: `logits` of `probs = logits.sigmoid()`.
    Whether all is float32 so that a use may read."""
    reached = half.reaching(use)
    for stmt in reached:
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Name):
            continue
        rounded = unrounded(half.module, stmt.value)
        outside = not half.stands_inside(stmt) and half.module.scope_of(stmt) is half.found.scope
        if outside and rounded is not stmt.value and half.may_be(rounded):
            if rounded not in half.m.edit(half.module).insertions:
                make_float(half.m, half.module, rounded)
            half.float_stmts.add(stmt)
    return bool(reached) and half.float_stmts.issuperset(reached)


def side(half: HalfValues, value: ast.expr) -> ast.expr:
    """The half side of an operation with something that is none: `output` of `output / temperature`."""
    value = apart(value)
    if not isinstance(value, ast.BinOp):
        return value
    sides = [s for s in (value.left, value.right) if half.may_be(s, outputs=True)]
    return side(half, sides[0]) if len(sides) == 1 else value


def _taken(half: HalfValues, use: ast.Name, written: bool) -> ast.Assign | None:
    """The one statement that takes what a name holds from a half value, outside of every region, where it has other uses."""
    reached = half.reaching(use)
    stmt = reached[0] if len(reached) == 1 else None
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Name):
        return None
    module, value = half.module, stmt.value
    source = unrounded(module, side(half, value))
    if half.stands_inside(stmt) or module.scope_of(stmt) is not half.found.scope or not isinstance(source, CASTABLE):
        return None
    if isinstance(source, ast.Name) or not half.may_be(source, outputs=True):
        return None
    if any(isinstance(n, ast.Call) and called_name(n) in HALVING for n in walk(value)):
        return None  # other uses may want the half that the program made
    loads = [n for n in module.loads.get(use.id, ()) if module.scope_of(n) is half.found.scope]
    uses = [n for n in loads if half.reaching(n) == [stmt] or (n is not use and stmt in half.reaching(n))]
    if not isinstance(value, ast.BinOp) and (written or any(_written(module, n) for n in uses)):
        return None  # a cast is a copy: what is written into a name is no longer written into what the model returned
    return stmt if len(uses) > 1 or written else None


def _written(module: Module, use: ast.Name) -> bool:
    """Whether something is written into what a name holds: `logits[mask] = 0`, `logits.div_(2)`, `logits /= 2`."""
    node: ast.AST = use
    parent = module.parents.get(node)
    while isinstance(parent, ast.Subscript) and parent.value is node:
        if not isinstance(parent.ctx, ast.Load):
            return True
        node, parent = parent, module.parents.get(parent)
    if isinstance(parent, ast.Attribute) and isinstance(module.parents.get(parent), ast.Call):
        return parent.attr.endswith("_") and not parent.attr.endswith("__")
    bound = (module.statement(b) for b in module.scope_of(use).bindings.get(use.id, ()))
    return any(isinstance(stmt, ast.AugAssign) for stmt in bound)


def apart(value: ast.expr) -> ast.expr:
    """A value without the number that is added to it or multiplied with it, or its sign: `output` of `output / 2`, `-output`."""
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        return apart(value.operand)
    if isinstance(value, ast.BinOp) and isinstance(value.right, ast.Constant):
        return apart(value.left)
    return apart(value.right) if isinstance(value, ast.BinOp) and isinstance(value.left, ast.Constant) else value


def unrounded(module: Module, value: ast.expr) -> ast.expr:
    """What a value is before operations round it once more in its dtype: `output` of `torch.sigmoid(output).view(-1)`."""
    found, current = value, value
    while isinstance(current, (ast.Call, ast.Subscript, ast.Attribute)):
        if isinstance(current, ast.Attribute) and current.attr not in ("data", "T"):
            break
        if not isinstance(current, ast.Call):
            current = current.value
            continue
        applied = function_of(module, current)
        if applied is None and not isinstance(current.func, ast.Attribute):
            break
        method = current.func.attr if applied is None and isinstance(current.func, ast.Attribute) else applied
        current = current.args[0] if applied is not None else current.func.value  # type: ignore[attr-defined]
        if method not in KEEPING or not isinstance(current, CASTABLE):
            break
        if method in ROUNDING:
            found = current
    return found


def function_of(module: Module, call: ast.Call) -> str | None:
    """The function of torch that gives a tensor of the dtype of its first argument: `torch.sigmoid(output)`."""
    name = module.qualify(call.func) or ""
    last = name.rpartition(".")[2]
    return last if call.args and name.startswith("torch.") and last in KEEPING else None


def named_floating(module: Module, value: ast.expr) -> bool:
    """Whether what a value is given to is named for floating values: `logits = outputs[1].detach().cpu().numpy()`, also where
    the same is read at another place of the function."""
    text, scope = ast.unparse(value), module.scope_of(value)
    same = (n for n in walk(module.tree) if type(n) is type(value) and isinstance(n, ast.expr))
    return any(_name_says(module, n) for n in same if module.scope_of(n) is scope and ast.unparse(n) == text)


def _name_says(module: Module, node: ast.expr) -> bool:
    parent = module.parents.get(node)
    while isinstance(parent, (ast.Attribute, ast.Call)) and node in (
        getattr(parent, "value", None),
        getattr(parent, "func", None),
    ):
        if isinstance(parent, ast.Attribute) and parent.attr not in UNCHANGED | {"cpu", "numpy", "data", "cuda", "T"}:
            return False
        node, parent = parent, module.parents.get(parent)
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or not isinstance(parent.targets[0], ast.Name):
        return False
    name = parent.targets[0].id
    whole = NUMBER_NAMES.search(name) or WHOLE_WORDS.search(name)
    return OUTPUT_NAMES.search(name) is not None and whole is None


def passed_on(half: HalfValues, call: ast.Call, floats: frozenset[str]) -> list[tuple[ast.expr, bool]]:
    """What a call hands to a function of the program that computes from it what needs floating values: `logits` of
    `sample(logits)`, with `F.softmax(logits, dim=-1)` in it; and whether anything is written into that."""
    project = half.m.project
    given: dict[ast.expr, list[tuple[bool, bool]]] = {}
    for function in project.resolved.get(call, []):
        for name, value in project.arguments(function, call):
            computed = project.once(_Computed).known.setdefault((function, floats), {})
            if name not in computed:
                computed[name] = _computes(function, name, floats)
            given.setdefault(value, []).append(computed[name])
    found = [(v, told) for v, told in given.items() if isinstance(v, CASTABLE) and all(c for c, _ in told)]
    return [(value, any(written for _, written in told)) for value, told in found]


class _Computed:
    """What functions compute from their parameters: one function is called in many places."""

    def __init__(self, project: Project) -> None:
        self.known: dict[tuple[Function, frozenset[str]], dict[str, tuple[bool, bool]]] = {}


def _computes(function: Function, name: str, floats: frozenset[str]) -> tuple[bool, bool]:
    """Whether a function gives a parameter, or what has its dtype, to a function of torch that takes floating values; and
    whether it writes into what shares its memory."""
    module = function.module
    names, foreign = {name}, set[str]()
    nodes = list(own_nodes(function.node.body))
    for node in sorted((n for n in nodes if isinstance(n, ast.Assign)), key=lambda n: (n.lineno, n.col_offset)):
        values = values_of_pair(node.value)
        target = node.targets[0]
        if values is not None and isinstance(target, (ast.Tuple, ast.List)) and target.elts:
            target = target.elts[0]
        if not isinstance(target, ast.Name):
            continue
        if not names.isdisjoint(_kept(module, values if values is not None else node.value)):
            names.add(target.id)
        elif target.id in names:
            foreign.add(target.id)
    given = [n.args[0] for n in nodes if isinstance(n, ast.Call) and n.args and module.qualify(n.func) in floats]
    computes = any(k in names - foreign for value in given for k in _kept(module, value))
    return computes, any(isinstance(n, ast.Name) and n.id in names and _written(module, n) for n in nodes)


def _kept(module: Module, value: ast.expr) -> Iterator[str]:
    """The names of what a value has its dtype of: `x` of `x[:, 0].view(-1)`, `x` and `scale` of `x / scale`, of which one may
    be a number."""
    return (v.id for v in reached([value], partial(_sources, module)) if isinstance(v, ast.Name))


def _sources(module: Module, value: ast.expr) -> Sequence[ast.expr]:
    if isinstance(value, ast.BinOp):
        return (value.left, value.right) if not isinstance(value.op, ast.MatMult) else ()
    if isinstance(value, ast.UnaryOp):
        return (value.operand,) if isinstance(value.op, ast.USub) else ()
    if isinstance(value, ast.Subscript):
        return (value.value,) if isinstance(value.slice, (ast.Tuple, ast.Slice)) else ()
    if not isinstance(value, ast.Call):
        return ()
    holder = value.func.value if isinstance(value.func, ast.Attribute) else None
    if called_name(value) in ARITHMETIC and value.args:
        return (*value.args, holder) if holder is not None and module.qualify(value.func) is None else value.args
    if function_of(module, value) is not None:
        return value.args[:1]
    return (holder,) if holder is not None and called_name(value) in KEEPING else ()
