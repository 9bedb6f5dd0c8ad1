"""What a `.grad` in the text does: reads how large a gradient is, only looks whether there is one, or clears it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module

# What leaves a gradient as it is, up to where it lies; what asks nothing of its size; what is linear in it.
_SAME = frozenset(
    "data detach float double clone contiguous cpu cuda to view flatten reshape type half squeeze unsqueeze T".split()
)
_NO_SIZE = frozenset(
    "is_sparse dtype device shape is_cuda requires_grad grad_fn layout ndim zero_ detach_ fill_ copy_ size numel dim "
    "isnan isinf isfinite coalesce requires_grad_ record_stream set_ storage data_ptr sign sgn".split()
)
_LINEAR = frozenset("mul mul_ div div_ neg neg_ true_divide".split())
_SIZE = frozenset(
    "norm abs max min mean sum item pow clamp clamp_ clip std var tolist numpy square sqrt amax amin topk sort "
    "median histc add add_ sub sub_ any all prod exp log abs_ addcmul_ addcdiv_ dot".split()
)
_SIZED = frozenset(
    "norm vector_norm abs max sum mean print add_histogram add_scalar log clamp float stack_norm".split()
)


def reads_gradient(module: Module, node: ast.Attribute) -> bool:
    """Whether the size of a gradient matters to what is done with it, for certain: `p.grad += decay * p` adds to it."""
    at: ast.AST = node
    while True:
        parent = module.parents.get(at)
        if isinstance(parent, ast.AugAssign) and parent.target is at:
            return isinstance(parent.op, (ast.Add, ast.Sub)) and not _of_gradient(parent.value)
        if isinstance(parent, ast.Attribute) and parent.value is at:
            call = module.parents.get(parent)
            called = isinstance(call, ast.Call) and call.func is parent
            if parent.attr in _SIZE:
                return called and not _only_directs(module, call)
            if parent.attr in _NO_SIZE or parent.attr not in _SAME | _LINEAR:
                return False
            at = call if called and call is not None else parent
            continue
        if isinstance(parent, ast.Call) and at in parent.args:
            func = parent.func
            last = syntax.last(func)
            return last in _SIZED and not (last in ("norm", "vector_norm") and _only_directs(module, parent))
        if isinstance(parent, ast.BinOp):
            if isinstance(parent.op, (ast.Mult, ast.Div, ast.MatMult)):
                at = parent
                continue
            both = _of_gradient(parent.left) and _of_gradient(parent.right)
            return isinstance(parent.op, (ast.Add, ast.Sub, ast.Pow)) and not both
        if isinstance(parent, ast.Compare):
            return not any(isinstance(o, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for o in parent.ops)
        return isinstance(parent, ast.FormattedValue)


def of_an_input(module: Module, node: ast.Attribute) -> bool:
    """Whether a gradient is that of a leaf which its function makes and gives to no optimizer: `x = Variable(images,
    requires_grad=True)`. Apex unscaled what optimizers hold, and left such gradients scaled as GradScaler does."""
    leaf = node.value
    if not isinstance(leaf, ast.Name):
        return False
    made: list[ast.expr] = []
    wanted = False
    for part in syntax.walk(module.around(node)):
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Attribute):
            target = part.targets[0]
            wanted |= target.attr == "requires_grad" and syntax.text(target.value) == leaf.id
        if not isinstance(part, ast.Name) or part.id != leaf.id:
            continue
        parent = module.parents.get(part)
        if isinstance(part.ctx, ast.Store):
            value = parent.value if isinstance(parent, ast.Assign) else None
            if isinstance(value, ast.Name) and value.id != leaf.id:  # another name for one: `first = x`
                value = _given_before(module, parent, value.id)
            if not isinstance(value, ast.Call):
                return False
            made.append(value)
        elif isinstance(parent, (ast.List, ast.Tuple, ast.Dict, ast.Assign, ast.AugAssign)):
            return False  # what holds it too may be an optimizer's
        else:
            wanted |= isinstance(parent, ast.Attribute) and parent.attr == "requires_grad_"
    return bool(made) and (wanted or any(map(_makes_leaf, made)))


def _given_before(module: Module, stmt: ast.AST | None, name: str) -> ast.expr | None:
    """What the last statement before another one in its block that gives a name a value gives it."""
    before = module.beside(stmt)[0] if isinstance(stmt, ast.stmt) else []
    for other in reversed(before):
        if any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in syntax.walk(other)):
            plain = isinstance(other, ast.Assign) and [syntax.text(t) for t in other.targets] == [name]
            return other.value if isinstance(other, ast.Assign) and plain else None
    return None


def _makes_leaf(call: ast.expr) -> bool:
    """Whether a call makes a tensor with a gradient that is no parameter."""
    if not isinstance(call, ast.Call):
        return False
    last = syntax.last(call.func)
    asked = (k.value for k in call.keywords if k.arg == "requires_grad")
    return last == "requires_grad_" or (
        last != "Parameter" and any(isinstance(v, ast.Constant) and v.value is True for v in asked)
    )


def _only_directs(module: Module, size: ast.AST | None) -> bool:
    """Whether the size of a gradient serves to divide a gradient, and is compared with 0: what is left is a direction."""
    parent = module.parents.get(size) if size is not None else None
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and parent.right is size:
        return _of_gradient(parent.left)
    if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
        return False
    name, names = parent.targets[0].id, syntax.every(module.around(parent), ast.Name)
    uses = [n for n in names if n.id == name and isinstance(n.ctx, ast.Load)]
    return bool(uses) and all(_divides(module, u) for u in uses)


def _divides(module: Module, name: ast.Name) -> bool:
    parent = module.parents.get(name)
    while isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add):  # norm + 1e-12
        name, parent = parent, module.parents.get(parent)  # type: ignore[assignment]
    if isinstance(parent, ast.BinOp):
        return isinstance(parent.op, ast.Div) and parent.right is name and _of_gradient(parent.left)
    if isinstance(parent, ast.Compare):
        return all(isinstance(c, ast.Constant) and c.value in (0, None) for c in parent.comparators)
    if not isinstance(parent, ast.Call) or not isinstance(parent.func, ast.Attribute):
        return False
    if parent.func.attr in ("div", "div_"):
        return _of_gradient(parent.func.value)
    return parent.func.attr in ("isnan", "isinf", "isfinite")


def _of_gradient(node: ast.AST) -> bool:
    return any(n.attr == "grad" for n in syntax.every(node, ast.Attribute))


def writes_none(module: Module, node: ast.Attribute) -> bool:
    """Whether a gradient is thrown away: `p.grad = None`, `del p.grad`, `p.grad.zero_()`, also by a name that it is given."""
    parent = module.parents.get(node)
    if isinstance(parent, ast.Assign) and parent.value is node and isinstance(name := parent.targets[0], ast.Name):
        asked = (a for a in syntax.every(module.around(node), ast.Attribute) if a.attr == "zero_")
        return any(syntax.text(a).startswith(f"{name.id}.") for a in asked)
    if isinstance(node.ctx, ast.Del):
        return True
    if isinstance(node.ctx, ast.Store):
        return isinstance(parent, ast.Assign) and isinstance(parent.value, ast.Constant) and parent.value.value is None
    while isinstance(parent, ast.Attribute):
        if parent.attr == "zero_":
            return True
        parent = module.parents.get(parent)
    return False


_CLEARING = re.compile(r"zero_?grad|(clear|reset)\w*grad|grad\w*(clear|reset)", re.IGNORECASE)


def may_clear(call: ast.Call) -> bool:
    """Whether a call may clear gradients, by its name or by what it is given: `first_step(zero_grad=True)`, the parameters."""
    given = [
        a for a in call.args if isinstance(a, ast.Call) and syntax.last(a.func) in ("parameters", "named_parameters")
    ]
    if given and isinstance(call.func, ast.Attribute):
        return True
    asked = (k for k in call.keywords if not (isinstance(k.value, ast.Constant) and not k.value.value))
    if bool(_CLEARING.search(syntax.last(call.func))) or any(_CLEARING.search(k.arg or "") for k in asked):
        return True
    sets = isinstance(call.func, ast.Name) and call.func.id in ("setattr", "delattr") and len(call.args) > 1
    return sets and isinstance(call.args[1], ast.Constant) and call.args[1].value == "grad"


def asks_for(test: ast.expr, block: list[ast.stmt]) -> bool:
    """Whether a test only asks whether there is what a block clears: `if p.grad is not None: p.grad.zero_()`, `if optimizer:`."""
    found = (n for stmt in block for n in syntax.every(stmt, ast.Attribute) if n.attr in ("grad", "zero_grad"))
    holders = {syntax.text(n.value) for n in found}
    there = {t for h in holders for t in (h, f"{h}.grad", f"{h}.requires_grad")}
    return all(_there(part) in there for part in (test.values if isinstance(test, ast.BoolOp) else [test]))


def _there(test: ast.expr) -> str:
    """What a test asks whether it is there."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _there(test.operand)
    nothing = isinstance(test, ast.Compare) and syntax.is_none(test.comparators[0])
    return syntax.text(test.left if nothing and isinstance(test, ast.Compare) else test)


def stepped_with_gradients(stmt: ast.AST | None) -> ast.expr | None:
    """The optimizer of which a statement asks whether it has any gradient, to step it where it has:
    `if any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):`."""
    test = stmt.test if isinstance(stmt, ast.If) and not stmt.orelse else None
    if not isinstance(test, ast.Call) or syntax.text(test.func) != "any" or len(test.args) != 1:
        return None
    (all_of_them,) = test.args
    if not isinstance(all_of_them, ast.GeneratorExp) or any(g.ifs for g in all_of_them.generators):
        return None
    part, group = all_of_them.generators[-1], all_of_them.generators[0].iter
    there = isinstance(all_of_them.elt, ast.Compare) and isinstance(all_of_them.elt.ops[0], ast.IsNot)
    if not there or _there(all_of_them.elt) != f"{syntax.text(part.target)}.grad":
        return None
    if not isinstance(group, ast.Attribute) or group.attr != "param_groups" or not isinstance(stmt, ast.If):
        return None
    steps = (c for s in stmt.body for c in syntax.every(s, ast.Call) if syntax.last(c.func) == "step")
    same = any(syntax.text(group.value) in map(syntax.text, c.args) for c in steps)
    return group.value if same else None


def chosen_for_gradients(module: Module, given: ast.expr) -> bool:
    """Whether an expression, or what the name was given in the same code, is parameters that were chosen for having a
    gradient: `[p for p in model.parameters() if p.grad is not None]`. Who is handed these means to read them."""
    chosen = _chosen(module)
    found = [*_given(module, given)] if chosen and given not in chosen else [given]
    return bool(found) and chosen.issuperset(found)


def _given(module: Module, given: ast.expr, past: frozenset[str] = frozenset()) -> Iterator[ast.expr]:
    """What an expression is, or what the name was given; not what it was given of its own: `params = list(params)`."""
    if isinstance(given, ast.Call) and syntax.last(given.func) in ("list", "tuple", "iter") and len(given.args) == 1:
        yield from _given(module, given.args[0], past)
        return
    if not isinstance(given, ast.Name) or given.id in past:
        yield from () if isinstance(given, ast.Name) else (given,)
        return
    function = module.function_around(given)
    stored = [n for n in syntax.every(module.around(given), ast.Assign) if function is module.function_around(n)]
    values = [n.value for n in stored if any(syntax.text(t) == given.id for t in n.targets)]
    for value in values or [given]:
        yield from (value,) if isinstance(value, ast.Name) else _given(module, value, past | {given.id})


@kept
def _chosen(module: Module) -> frozenset[ast.expr]:
    """The comprehensions of a file that choose so: few files have one, and each call asks."""
    if "grad" not in module.words:
        return frozenset()
    found: list[ast.ListComp | ast.GeneratorExp] = [*syntax.every(module.tree, ast.ListComp)]
    found += syntax.every(module.tree, ast.GeneratorExp)
    return frozenset(c for c in found if isinstance(c.elt, ast.Name) and _chooses(c.elt.id, c.generators))


def _chooses(name: str, generators: list[ast.comprehension]) -> bool:
    tests = [t for g in generators for i in g.ifs for t in syntax.every(i, ast.Compare) if len(t.ops) == 1]
    return any(isinstance(t.ops[0], ast.IsNot) and syntax.text(t.left) == f"{name}.grad" for t in tests)
