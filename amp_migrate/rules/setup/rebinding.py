"""The names that `model, optimizer = amp.initialize(...)` bound, once the call gives back what it was given.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize (what it returns)

No code of its own in the report: AMP110 speaks of it.
"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import elements, is_none
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.spelled_out import other_uses
from amp_migrate.reading.program.tree import identifiers, spelled, walk
from amp_migrate.reading.switch.flags import asked_around
from amp_migrate.reading.units.unit import Init
from amp_migrate.reading.values.listed import Listed
from amp_migrate.reading.values.reaching import reaching
from amp_migrate.rules.migration import Migration


def is_none_here(m: Migration, module: Module, stmt: ast.stmt, value: ast.expr) -> bool:
    """Whether a value is None, as it is written or as a test around the statement asks: initialize returns models alone."""
    asked = {*asked_around(m.project, module, stmt)}
    text = spelled(value)
    return is_none(value) or not asked.isdisjoint({f"{text} is None", f"{text} == None", f"not {text}"})


def not_given_back(
    m: Migration, module: Module, stmt: ast.stmt, pairs: list[tuple[ast.expr, ast.expr]]
) -> list[tuple[ast.expr, ast.expr]]:
    """The rebindings without those that the next statements only put back: `self.model = model` below
    `model = self.model`, `self.net, self.head = models` below `models = [self.net, self.head]`. Those statements go."""
    block = module.block(stmt)
    left = list(pairs)
    for following in block[block.index(stmt) + 1 :]:
        if not isinstance(following, ast.Assign) or len(following.targets) != 1:
            break
        pair = next(
            (
                (name, value)
                for name, value in left
                if isinstance(name, ast.Name)
                and isinstance(following.value, ast.Name)
                and following.value.id == name.id
                and _same(following.targets[0], value)
            ),
            None,
        )
        if pair is None:
            break
        name, scope = pair[0], module.scope_of(stmt)
        uses = [n for n in module.loads.get(name.id, ()) if module.scope_of(n).lookup(name.id) is scope]
        read = any(name in reaching(scope, n) for n in uses if n is not following.value)
        if scope.lookup(name.id) is scope and not read:
            left.remove(pair)
            m.edit(module).delete(following)
    return left


def _same(target: ast.expr, value: ast.expr) -> bool:
    """Whether a target is given what it is, or each of its targets is."""
    both = [n.elts if isinstance(n, (ast.List, ast.Tuple)) else [n] for n in (target, value)]
    plain = all(isinstance(n, (ast.Name, ast.Attribute, ast.Subscript)) for n in both[1])
    listed = isinstance(target, (ast.List, ast.Tuple)) == isinstance(value, (ast.List, ast.Tuple))
    return plain and listed and [*map(ast.unparse, both[0])] == [*map(ast.unparse, both[1])]


def leave_loop(m: Migration, module: Module, init: Init) -> None:
    """`for i in range(n): models[i], optimizers[i] = initialize(models[i], optimizers[i])`: one scaler is made once, where
    nothing else of the loop is left and what it is made with is the same for all."""
    loop, edits = module.parents.get(init.site.stmt), m.edit(module)
    if not isinstance(loop, ast.For) or loop.orelse or not all(edits.deleted(s) for s in loop.body):
        return
    turning = identifiers(loop.target)
    settings = [v for name, v in init.arguments.items() if name not in ("models", "optimizers")]
    if any(isinstance(n, ast.Name) and n.id in turning for v in settings for n in walk(v)):
        return
    edits.splice(loop)


def fold_same(m: Migration, module: Module, stmt: ast.stmt, pairs: list[tuple[ast.expr, ast.expr]]) -> None:
    """`if fp16: initialize(...) else: a, b = c, d` where both now do the same becomes one statement."""
    parent = module.parents.get(stmt)
    if not isinstance(parent, ast.If) or len(parent.orelse) != 1:
        return
    if any(s is not stmt and not isinstance(s, (ast.Import, ast.ImportFrom)) for s in parent.body):
        return
    other = parent.orelse[0]
    if not isinstance(other, ast.Assign) or len(other.targets) != 1:
        return
    targets = [ast.unparse(t) for t in elements(other.targets[0])]
    values = [ast.unparse(v) for v in elements(other.value)]
    same = [(ast.unparse(a), ast.unparse(b)) for a, b in pairs]
    if [p for p in zip(targets, values, strict=False) if p[0] != p[1]] == same and len(targets) == len(values):
        edits = m.edit(module)
        edits.splice(parent, "orelse")
        edits.after.setdefault(parent, []).extend(edits.before.pop(parent, []))


def rebindings(
    module: Module, target: ast.expr, models: ast.expr, optimizers: ast.expr | None
) -> list[tuple[ast.expr, ast.expr]] | None:
    """Targets that initialize would have bound to another name's value; None where shapes do not match."""
    if optimizers is None:
        both = [(target, models)]
    elif isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == 2:
        both = [(target.elts[0], models), (target.elts[1], optimizers)]
    else:
        return None
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for to, value in both:
        both_listed = isinstance(to, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List))
        left, right = (elements(to), elements(value)) if both_listed else ([to], [value])
        if len(left) != len(right):
            return None
        pairs += [
            (a, b)
            for a, b in zip(left, right, strict=True)
            if not (isinstance(a, ast.Name) and a.id == "_")
            if module.source(a) != module.source(b) or _declares(module, a)
        ]
    return pairs


def _declares(module: Module, target: ast.expr) -> bool:
    """Whether nothing but this makes a name one of its function, as a nested one calls it: `nonlocal optimizer`."""
    if not isinstance(target, ast.Name):
        return False
    scope = module.scope_of(target)
    if not scope.is_function or target.id in scope.params or len(scope.bindings.get(target.id, ())) != 1:
        return False
    return any(
        target.id in inner.outer and scope in inner.chain() for inner in module.scopes.values() if inner is not scope
    )


def drop_list(m: Migration, module: Module, held: Listed) -> bool:
    """Take out a list that serves the set-up alone and is made right above it: its items are what they are called, then;
    whether it is that."""
    stmt, first = module.statement(held.name), held.made[0]
    block = module.block(stmt)
    if (
        not held.always
        or len({id(s) for s in held.made}) != 1
        or first not in block
        or [*other_uses(module, held.name)]
    ):
        return False
    if isinstance(module.parents.get(module.parents[module.parents[held.name]]), ast.Call):
        return False  # `list(initialize(*things))`
    names = {n for item in held.items for n in identifiers(item)}
    between = [n for s in block[block.index(first) + 1 : block.index(stmt)] for n in walk(s)]
    written = (n for n in between if isinstance(getattr(n, "ctx", None), (ast.Store, ast.Del)))
    fields = not all(isinstance(item, ast.Name) for item in held.items)  # which a method may set
    if any(names & identifiers(n) for n in written) or (fields and any(isinstance(n, ast.Call) for n in between)):
        return False
    m.edit(module).delete(first)
    return True


def give_back(m: Migration, init: Init, held: Listed) -> None:
    """What `initialize(*things)` gave back, which was the models alone of a list without optimizers: the things themselves."""
    module, edits, name = init.module, m.edit(init.module), held.name.id
    parent, stmt = module.parents.get(init.call), init.site.stmt
    listing = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in ("list", "tuple")
    if listing and isinstance(stmt, ast.Assign) and stmt.value is parent:
        if len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Name) and stmt.targets[0].id == name:
            edits.delete(stmt)
            return
    taken_apart = isinstance(parent, ast.Assign) and isinstance(parent.targets[0], (ast.Tuple, ast.List))
    if listing or (taken_apart and len(held.items) > 1):
        edits.replace(init.call, name)
    elif held.always:
        edits.replace(init.call, f"tuple({name})" if len(held.items) > 1 else f"{name}[0]")
    else:
        text = f"tuple({name}) if len({name}) > 1 else {name}[0]"
        edits.replace(init.call, text if isinstance(parent, (ast.Assign, ast.Return)) else f"({text})")
