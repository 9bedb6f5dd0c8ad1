"""What the entries of a list or a tuple are: those of a comprehension, a loop, what is appended, values beside indices."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import called_name, dotted
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.values.expressions import COMPREHENSIONS
from amp_migrate.reading.values.operations import JOINING, MAKING, PAIRS

DISPLAYS = (ast.Tuple, ast.List)  # several things in a row, given back or unpacked into


def entry_of(module: Module, use: ast.Name) -> ast.expr | None:
    """What a name is an entry of, in the comprehension around it: `outputs` of `[o.cpu() for o in outputs]`, or in the function
    that `map` calls, `map(lambda o: o.cpu(), outputs)`."""
    child: ast.AST = use
    for parent in module.ancestors(use):
        if isinstance(parent, ast.stmt):
            return None
        if isinstance(parent, COMPREHENSIONS):
            generators = list(parent.generators)
            if child in generators:
                generators = generators[: generators.index(child)]
            for generator in reversed(generators):
                if (held := entries_in(generator.target, generator.iter, use.id)) is not None:
                    return held
        if isinstance(parent, ast.Lambda) and (held := _mapped(module, parent, use.id)) is not None:
            return held
        child = parent
    return None


def _mapped(module: Module, taken: ast.Lambda, name: str) -> ast.expr | None:
    """What `map` goes through for a parameter of the function that it is given."""
    call, names = module.parents.get(taken), [a.arg for a in taken.args.args]
    if not isinstance(call, ast.Call) or dotted(call.func) != "map" or call.args[0] is not taken or name not in names:
        return None
    place = names.index(name) + 1
    return call.args[place] if place < len(call.args) else None


def entries_in(target: ast.expr, iterable: ast.expr, name: str) -> ast.expr | None:
    """What a name goes through that a loop binds: `b` of `for x, y in zip(a, b)`, `d` of `for x, y in d.items()`."""
    method = iterable.func if isinstance(iterable, ast.Call) and not iterable.args else None
    if isinstance(method, ast.Attribute) and method.attr in ("items", "values"):
        value = target.elts[-1] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else target
        pairs = (method.attr == "items") == isinstance(target, ast.Tuple)
        return method.value if pairs and isinstance(value, ast.Name) and value.id == name else None
    if isinstance(target, ast.Name):
        return iterable if target.id == name else None
    if isinstance(target, ast.Tuple) and isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name):
        places = [i for i, e in enumerate(target.elts) if isinstance(e, ast.Name) and e.id == name]
        given = iterable.args if iterable.func.id == "zip" else [ast.Constant(0), *iterable.args[:1]]
        if places and iterable.func.id in ("zip", "enumerate") and places[0] < len(given):
            return given[places[0]]
    return None


def appended(scope: Scope, name: str) -> list[ast.expr]:
    """What a list holds that a scope starts under a name, empty or with some entries, and appends to; nothing where it is given
    anything else."""
    first, put = _filled(scope, name)
    return [*first, *put] if put else []


def entry_at(scope: Scope, node: ast.Subscript) -> list[ast.expr]:
    """What an entry may be of a list that a scope starts and appends to: `kept[0]`, what it starts with."""
    held, index = node.value, node.slice.value if isinstance(node.slice, ast.Constant) else None
    if not isinstance(held, ast.Name) or type(index) is not int:
        return []
    first, put = _filled(scope, held.id)
    return first[index : index + 1] or put if put else []


def _filled(scope: Scope, name: str) -> tuple[list[ast.expr], list[ast.expr]]:
    """What a list starts with, and what is put behind that."""
    module = scope.module
    first: list[ast.expr] = []
    for binding in scope.bindings.get(name, ()):
        value = _bound(module, binding)
        if isinstance(value, ast.List) and not first and not any(isinstance(e, ast.Starred) for e in value.elts):
            first = value.elts
            continue
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "list":
            if not value.args:
                continue
        if not isinstance(value, ast.Call) or module.qualify(value.func) not in {f"torch.{j}" for j in JOINING}:
            return [], []  # outs = torch.cat(outs), once it is full
    return first, [c.args[0] for c in module.calls_in(scope) if dotted(c.func) == f"{name}.append" and c.args]


def _bound(module: Module, binding: ast.AST) -> ast.expr | None:
    """What an assignment binds a name to: also one of several, `features, labels = [], []`."""
    parent = module.parents.get(binding)
    if isinstance(parent, ast.Assign):
        return parent.value
    stmt = module.parents.get(parent) if isinstance(parent, ast.Tuple) else None
    if isinstance(parent, ast.Tuple) and isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Tuple):
        pairs = zip(parent.elts, stmt.value.elts, strict=False)
        return next((v for e, v in pairs if e is binding), None)
    return None


def values_of_pair(node: ast.expr) -> ast.expr | None:
    """What the values of a pair are taken from: `output` of `output.max(1)`, `torch.topk(output, 5)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in PAIRS:
        return None
    if isinstance(node.func.value, ast.Name) and node.func.value.id == "torch":
        return node.args[0] if node.args else None
    return node.func.value


def parts(target: ast.expr) -> Iterator[tuple[str, int, int]]:
    """The names that a target unpacks into, each with its index and the number of parts."""
    if isinstance(target, DISPLAYS) and not any(isinstance(e, ast.Starred) for e in target.elts):
        for index, element in enumerate(target.elts):
            if isinstance(element, ast.Name):
                yield element.id, index, len(target.elts)


def is_number(module: Module, index: ast.expr) -> bool:
    """Whether an index is one number, which leaves a tensor of one dimension none: what is taken by it may promote nothing."""
    if isinstance(index, ast.UnaryOp):
        index = index.operand
    if isinstance(index, ast.Name):
        bound = module.scope_of(index).bindings.get(index.id, ())
        return bool(bound) and all(isinstance(module.statement(b), (ast.For, ast.AsyncFor)) for b in bound)
    return isinstance(index, ast.Constant) and type(index.value) is int


def has_one_dimension(made: ast.Call) -> bool:
    """Whether a call of torch's may make a tensor of one dimension: `torch.ones(3)`, `torch.zeros(size)`, `torch.tensor(rows)`."""
    sizes = made.args[0] if made.args else None
    if called_name(made) in ("tensor", "as_tensor", "from_numpy", "linspace"):
        return True
    several = isinstance(sizes, DISPLAYS) and len(sizes.elts) > 1
    return called_name(made) in MAKING and not several and (called_name(made) == "full" or len(made.args) < 2)
