"""Readers of gradients that come before the last backward of a step: what they read can be divided by the loss scale.

`scaler.unscale_` is for complete gradients. What looks at those of one micro-batch, or of the first of two losses (a
log, a Fisher matrix), is given each of them divided, as far as it changes none of them. What is added to them is
multiplied: `p.grad.add_(decay * p)` after every micro-batch. So is what their norm is clipped to, and the norm divided.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from amp_migrate.reading.gradients.directions import CHECKS
from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.gradients.readers import SUMS
from amp_migrate.reading.gradients.uses import NOT_READERS, reads_by_name
from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.definitions import Function, called_name, dotted, is_none
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import names_stored, walk

Divided = Mapping[ast.AST, Module]  # each `X.grad` that is read, or call that clips, and its file

# Linear in the gradients, as in the bound. To clip single values is not: an inf becomes a number, and no step is skipped.
CLIPS = frozenset(
    f"torch.nn.utils.{home}{name}" for home in ("", "clip_grad.") for name in ("clip_grad_norm_", "clip_grad_norm")
)

KEEPING = frozenset(("append", "extend", "insert", "add"))  # of lists and sets
SAME = frozenset(("data", "detach"))  # the gradient itself
ABOUT = frozenset("dtype device shape is_sparse is_cuda layout size numel dim ndim".split())  # nothing of its size


def divisible(reader: GradientReader, module: Module, node: ast.AST) -> Divided:
    """The gradients that a statement or an expression reads or adds to, in the functions of the program that it calls, too;
    none where one of them is changed otherwise, kept or handed on, so that dividing it would not be the same."""
    found: dict[ast.AST, Module] = {}
    if any(reader.project.once(_puts_back, m) for m in reader.unit.tied):
        return {}
    return found if _collect(reader, module, [node], found, set()) else {}


def _puts_back(project: Project, module: Module) -> bool:
    """Whether a file writes gradients, which may be some that were read before; see `Project.once`."""
    return any(
        isinstance(n.ctx, ast.Store) and not _cleared(module.parents.get(n)) and added(module, n) is None
        for n in module.of(ast.Attribute)
        if n.attr == "grad" or (n.attr in SAME and isinstance(n.value, ast.Attribute) and n.value.attr == "grad")
    )


def _cleared(stmt: ast.AST | None) -> bool:
    return isinstance(stmt, ast.Assign) and is_none(stmt.value)


def whole_gradient(module: Module, grad: ast.AST) -> ast.AST:
    """`p.grad` with the `.data` or `.detach()` after it."""
    at = grad
    while isinstance(parent := module.parents.get(at), ast.Attribute) and parent.attr in SAME:
        call = module.parents.get(parent)
        at = call if isinstance(call, ast.Call) and call.func is parent else parent
    return at


def added(module: Module, whole: ast.AST) -> ast.expr | None:
    """What a statement adds to a gradient: `decay * p` of `p.grad.add_(decay * p)` and of `p.grad += decay * p`."""
    parent = module.parents.get(whole)
    if isinstance(parent, ast.AugAssign) and parent.target is whole:
        return parent.value if isinstance(parent.op, (ast.Add, ast.Sub)) else None
    if not isinstance(parent, ast.Attribute) or parent.attr not in ("add_", "sub_"):
        return None
    call = module.parents.get(parent)
    if not isinstance(call, ast.Call) or call.func is not parent or not isinstance(module.parents.get(call), ast.Expr):
        return None
    factors = [k.arg for k in call.keywords] + ["alpha"] * (len(call.args) - 1)  # `add_(factor, tensor)`, as once
    plain = call.args and not any(isinstance(a, ast.Starred) for a in call.args)
    return call.args[-1] if plain and factors in ([], ["alpha"]) else None


def bound_of(module: Module, call: ast.Call) -> ast.expr | None:
    """What the norm of gradients is clipped to, by torch's own function; None of anything else."""
    if module.qualify(call.func) not in CLIPS or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    return call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "max_norm"), None)


def beside_backward(reader: GradientReader, module: Module, node: ast.AST) -> bool:
    """Whether a clip stands in a branch beside one with a backward of its own, which is not clipped: these stay apart."""
    others = (stmt for _, _, other in branches_around(module, node) for stmt in other)
    return isinstance(node, ast.Call) and any(reader.uses.runs_backward(n) for stmt in others for n in walk(stmt))


def asks_about(module: Module, whole: ast.AST) -> bool:
    """`p.grad.device`, to which the scale makes no difference."""
    parent = module.parents.get(whole)
    return isinstance(parent, ast.Attribute) and parent.attr in ABOUT


def _collect(
    reader: GradientReader, module: Module, nodes: list[ast.AST], found: dict[ast.AST, Module], seen: set[Function]
) -> bool:
    for node in (n for top in nodes for n in walk(top)):
        if isinstance(node, ast.Attribute) and reader.uses.reads(module, node):
            whole = whole_gradient(module, node)
            more = added(module, whole)
            if more is None:
                fits = _only_looked_at(reader, module, whole) and not _decides(reader, module, node)
            else:
                fits = not any(reader.uses.reads(module, n) for n in walk(more))
            if not fits:
                return False
            found[node] = module
        if not isinstance(node, ast.Call) or called_name(node) in NOT_READERS:
            continue
        if reads_by_name(called_name(node)) or reader.handles(module, node):
            if bound_of(module, node) is None or _decides(reader, module, node):
                return False
            found[node] = module
            continue
        for function in reader.uses.followed(node):
            if function in seen or not reader.function_reads(function, 3):
                continue
            seen.add(function)
            if not _collect(reader, function.module, list(function.inside), found, seen):
                return False
    return True


def _decides(reader: GradientReader, module: Module, read: ast.AST, seen: set[ast.stmt] | None = None) -> bool:
    """Whether what is read may decide on the step, here or in a caller: left out for an overflow, it would leave out the update
    of the scale."""
    stmt, scope = module.statement(read), module.scope_of(read)
    seen = set() if seen is None else seen
    if stmt in seen:
        return False
    seen.add(stmt)
    if isinstance(stmt, (ast.If, ast.While, ast.Assert)):
        return True
    if any(isinstance(a, ast.Call) and called_name(a) in CHECKS for a in module.around(read)):
        return True
    if isinstance(stmt, ast.Return):
        function = reader.project.function_of(module, stmt)
        calls = reader.project.calls.get(function, []) if function is not None else []
        return not calls or any(_decides(reader, home, call, seen) for home, call in calls)
    uses = [(module, n) for name in names_stored(stmt) for n in _reads(scope, name)]
    uses += [(module, n) for holder in _holders(module, stmt, read) for n in _reads_of(module, holder)]
    return any(_decides(reader, home, use, seen) for home, use in (*uses, *_handed(reader.project, module, read)))


def _reads(scope: Scope, name: str) -> list[ast.expr]:
    """Where a function itself reads a name."""
    return [n for n in scope.module.loads.get(name, ()) if scope.module.scope_of(n) is scope]


def _handed(project: Project, module: Module, read: ast.AST) -> Iterator[tuple[Module, ast.AST]]:
    """Where functions of the program read what they are handed."""
    for call in (a for a in module.around(read) if isinstance(a, ast.Call)):
        for function in project.resolved.get(call, ()):
            for name, value in project.arguments(function, call):
                if any(n is read for n in walk(value)):
                    yield from ((function.module, n) for n in _reads(function.scope, name))


def _holders(module: Module, stmt: ast.stmt, read: ast.AST) -> Iterator[ast.expr]:
    """What a statement puts what is read into: an entry, an attribute, a list."""
    for target in stmt.targets if isinstance(stmt, ast.Assign) else ():
        if isinstance(target, (ast.Attribute, ast.Subscript)):
            yield target.value if isinstance(target, ast.Subscript) else target
    for around in module.around(read):
        if isinstance(around, ast.Call) and isinstance(around.func, ast.Attribute) and around.func.attr in KEEPING:
            yield around.func.value


def _reads_of(module: Module, holder: ast.expr) -> list[ast.expr]:
    """Where else something is read in its function; an attribute in its file."""
    if isinstance(holder, ast.Name):
        return _reads(module.scope_of(holder), holder.id)
    named = module.named.get(holder.attr, ()) if isinstance(holder, ast.Attribute) else ()
    return [n for n in named if isinstance(n, ast.Attribute) and n is not holder]


def _only_looked_at(reader: GradientReader, module: Module, value: ast.AST, depth: int = 0) -> bool:
    """Whether all that is done with a gradient is to compute something else of it."""
    parent = module.parents.get(value)
    if isinstance(parent, ast.Attribute):
        return not parent.attr.endswith("_") and isinstance(parent.ctx, ast.Load)
    if isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.FormattedValue)):
        return True
    if isinstance(parent, ast.Subscript):
        return parent.value is value and isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.AugAssign):
        return parent.value is value and isinstance(parent.target, ast.Name)
    if isinstance(parent, ast.keyword):
        parent = module.parents.get(parent)
    if isinstance(parent, ast.Call):
        name = called_name(parent)
        own = module.scope_of(parent).self_name
        mine = value is parent.func or reader.project.resolved.get(parent) or dotted(parent.func) == f"{own}.{name}"
        return not mine and not name.endswith("_") and SUMS.search(name) is None
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or depth > 3:
        return False
    target = parent.targets[0]
    if not isinstance(target, ast.Name) or len(module.scope_of(target).bindings.get(target.id, ())) != 1:
        return False
    loads = module.scope_of(target).reads(target.id)
    return all(_only_looked_at(reader, module, whole_gradient(module, n), depth + 1) for n in loads)
