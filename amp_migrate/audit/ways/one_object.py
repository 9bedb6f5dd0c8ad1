"""One object is of one class: what two ways that come by methods say of the classes, and of each other."""

from __future__ import annotations

import ast

from amp_migrate.audit.program.module import Class
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.ways.chains import Chain, Chains, Step


def of_one_class(program: Program, setup: Chain, chain: Chain) -> bool:
    """Whether a way comes by a method of the class that sets Apex up in another, and by none that its objects have another
    definition of, but as that of their base: `super().epoch()`."""
    owner = setup.start.function.owner if setup.start.function is not None else None
    if owner is None:
        return False
    came = set[Class]()
    kinds = [owner, *program.below(owner)]
    for method in (s.function for s in chain.steps if s.function is not None):
        if method.owner is not None and method.owner in program.family(owner):
            own = any(method in program._method(kind, method.name) for kind in kinds)
            if not own and came.isdisjoint(program.below(method.owner)):
                return False
            came.add(method.owner)
    return bool(came)


def of_two_classes(chains: Chains, one: Chain, other: Chain) -> bool:
    """Whether one object would have to be of two classes at once, for a run to go two ways that part where methods of it are
    called: `solver.set_up()` of a class that trains, and `solver.run()` of one that does not; or one call of it, of each."""
    for at, (mine, yours) in enumerate(zip(one.steps, other.steps, strict=False)):
        if mine.function is not yours.function or mine.module is not yours.module:
            return at > 0 and _apart(chains, one, other, at - 1)
        if mine.node is not yours.node:
            return _apart(chains, one, other, at)
    return False


def _apart(chains: Chains, one: Chain, other: Chain, at: int) -> bool:
    """Whether the methods that two ways come by next are of classes that have no object in common, and one object is asked."""
    if not _of_one_name(one.steps[at], other.steps[at]):
        return False
    found = [chains.called_on(way)[at] for way in (one, other)]
    classes = [on.classes for on in found if on is not None and on.classes]
    return len(classes) == 2 and classes[0].isdisjoint(classes[1])


def _of_one_name(one: Step, other: Step) -> bool:
    """Whether methods are called of one name, which its scope binds once, outside of a loop."""
    calls = [n for n in (one.node, other.node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    names = {h.id for c in calls if isinstance(c.func, ast.Attribute) and isinstance(h := c.func.value, ast.Name)}
    holders = [c for c in calls if isinstance(c.func, ast.Attribute) and isinstance(c.func.value, ast.Name)]
    if len(holders) < 2 or len(names) > 1:
        return False
    (name,) = names
    home = one.module.scope_of(one.node).binder(name)
    bound = home.bindings[name] if home is not None else ()
    loops = (ast.For, ast.AsyncFor, ast.While)
    return len(bound) == 1 and not any(isinstance(a, loops) for a in one.module.ancestors(bound[0]))
