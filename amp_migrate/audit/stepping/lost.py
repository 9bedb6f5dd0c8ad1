"""What is said of entries with more paths than were followed: by which steps they come, where there are too many."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.stepping.bodies import Action, Bodies, Owner

NAMED = 4  # of the entries, and of the steps


def not_followed(review: Review, bodies: Bodies, starts: Mapping[Module, Owner]) -> Doubt:
    """One doubt for all that comes by the same steps, at the first of the files that change: where these only hold the steps, at
    the first of those."""
    module = next((m for m in starts if m.path in review.changes), next(iter(starts)))
    owner = starts[module]
    found = list(_steps(bodies, owner))
    changed = (
        None if module.path in review.changes else next((a for a in found if a.module.path in review.changes), None)
    )
    name = f"{owner.name}()" if isinstance(owner, Function) else "this script" if changed is None else module.path
    others = [
        f"{o.name}() of {m.path}" if isinstance(o, Function) else m.path for m, o in starts.items() if m is not module
    ]
    also = f" (so {'has' if len(others) == 1 else 'have'} {_some(others)})" if others else ""
    steps = dict.fromkeys(f"{a.module.path}:{review.line(a.module, a.node)}" for a in found)
    by = f", where it steps ({_some(list(steps))})" if steps else ""
    message = (
        f"{name} has more paths than were followed{also}: check that each backward has one step and one update{by}"
    )
    place = (changed.module, changed.node) if changed is not None else (module, _leads(bodies, owner))
    return review.doubt(*place, "AMP232", "optimizer.step", message, "review")


def _some(named: list[str]) -> str:
    return ", ".join(named[:NAMED]) + f" and {len(named) - NAMED} more" * (len(named) > NAMED)


def _leads(bodies: Bodies, owner: Owner) -> ast.AST:
    """A function; of a script, the first that it does for the step."""
    if isinstance(owner, Function):
        return owner.node
    actions = [*bodies.own.get(owner, ()), *bodies.calls.get(owner, ())]
    return min((a.node for a in actions), key=lambda node: node.lineno, default=owner.tree.body[0])


def _steps(bodies: Bodies, owner: Owner) -> Iterator[Action]:
    """The steps of scalers that an entry may come by."""
    todo, seen = [owner], {owner}
    while todo:
        at = todo.pop()
        own = bodies.own.get(at, ())
        yield from (a for a in own if a.kind == "method" and a.name == "step" and a.scaler)
        for action in bodies.calls.get(at, ()):
            further = [f for f in action.callees if f in bodies and f not in seen]
            seen.update(further)
            todo += further
