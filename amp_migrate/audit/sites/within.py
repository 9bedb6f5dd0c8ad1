"""Networks that a model which Apex was given holds in its attributes: `self.netD = define_D(...)`, and what those hold."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.targets import assignments
from amp_migrate.audit.sites.setups import Identity
from amp_migrate.audit.ways.frames import Made, frame_of
from amp_migrate.audit.ways.ordered import Undecided, ordered

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed

MOST = 400  # classes that are looked at
Place = tuple[str, int]  # the file and line, before, of the statement that makes an object


def made_at(identity: Identity, both: Mixed | None = None) -> Place | None:
    """Where, before, the object of an identity is made (`both`: of one after)."""
    node, module = identity[0], identity[-1]
    if not isinstance(node, ast.Call) or not isinstance(module, Module):
        return None
    return module.path, both.review.line(module, node) if both is not None else module.statement(node).lineno


def within_given(both: Mixed, now: Iterable[Identity]) -> bool:
    """Whether some object, of the program after, is one that a model which Apex was given holds."""
    return not _made(both, now).isdisjoint(_held(both))


def given_itself(both: Mixed, now: Iterable[Identity]) -> bool:
    """Whether some object, of the program after, is made where one is made that Apex was given."""
    return not _made(both, now).isdisjoint(made_at(i) for i in both.initialized)


def apart_from_given(both: Mixed, module: Module, model: ast.expr) -> bool:
    """Whether an expression of the program after is surely no model that Apex was given, though one call makes both: the factory
    around that ran for each, `teacher, student = build("large"), build("small")`."""
    was = both.was(module, model)
    if was is None or not isinstance(was[1], ast.expr) or not _made_several(both):
        return False
    run = _objects(both, was[0], was[1], was[1])
    given = [_objects(both, s.module, s.call, m) for s in both.around_of(was[0]) for m in s.models]
    if not run or not given or not all(given):
        return False
    return all(one.surely_not(other) for one in run for made in given for other in made)


@kept
def _made_several(both: Mixed) -> bool:
    """Whether more than one way leads to a call that makes a model which Apex was given: one made there is another on each."""
    made = ((i[0], i[-1]) for i in both.initialized)
    calls = ((m, n) for n, m in made if isinstance(n, ast.Call) and isinstance(m, Module))
    return any(len(both.before.chains.to(m, n)) > 1 for m, n in calls)


def _objects(both: Mixed, module: Module, at: ast.AST, expr: ast.expr) -> frozenset[Made]:
    """What an expression, before, is on any way to where a node stands; nothing where that cannot be told."""
    before = ordered(both.review.values_before)
    frames = [frame_of(way) for way in both.before.chains.to(module, at)]
    try:
        answers = [before.of(frame, at, expr) for frame in dict.fromkeys(frames)]
    except Undecided:
        return frozenset()
    return frozenset().union(*(a.made for a in answers)) if all(a.made for a in answers) else frozenset()


def _made(both: Mixed, now: Iterable[Identity]) -> set[Place]:
    """Where, before, objects of the program after are made; a network has no items: `return model` beside `return model, other`
    gives no second."""
    whole = (i for i in now if not (i[1] and _classes(both.review.after, i)))
    return {made for i in whole if (made := made_at(i, both)) is not None}


@kept
def _held(both: Mixed) -> frozenset[Place]:
    """Where the networks are made that initialized models hold."""
    program, values = both.review.before, both.review.values_before
    found: set[Place] = set()
    todo = [cls for identity in both.initialized for cls in _classes(program, identity)]
    for cls in todo[:MOST]:
        for module, target, value in _attributes(cls, program.family_up(cls)):
            nested = ((module, call) for call in syntax.every(value, ast.Call))
            origins = values.origins(module.scope_of(target), value)
            for where, node in (*nested, *((o.module, o.node) for o in origins)):
                made = _classes(program, (node, where))
                if made and isinstance(node, ast.Call):
                    found.add((where.path, where.statement(node).lineno))
                    todo += [c for c in made if c not in todo and len(todo) < MOST]
    return frozenset(found)


def _classes(program: Program, identity: Identity) -> list[Class]:
    """The networks of the program that a call makes."""
    node, module = identity[0], identity[-1]
    if not isinstance(node, ast.Call) or not isinstance(module, Module):
        return []
    made = program.definitions(module.scope_of(node), node.func, guess=False)
    return [d for d in made if isinstance(d, Class) and program.is_network(d)]


def _attributes(cls: Class, family: list[Class]) -> Iterator[tuple[Module, ast.Attribute, ast.expr]]:
    """What the methods of a class, and of those it is made from, assign to attributes of their object."""
    for one in {cls: None, **dict.fromkeys(family)}:
        own = {f.parameters[0].arg for fs in one.methods.values() for f in fs if f.bound and f.parameters}
        for target, value, path in assignments(one.module):
            held = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in own
            around = one.module.function_around(target) if held else None
            if isinstance(target, ast.Attribute) and value is not None and not path:
                if around is not None and around.owner is one:
                    yield one.module, target, value
