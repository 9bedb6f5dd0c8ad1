"""Several optimizers that one loop steps, where the losses that come there run different networks: told, for an optimizer none of
whose parameters got a gradient `scaler.step` raises, and Apex's step did nothing.

Told: a function that scales a loss it is given, and steps each optimizer of a container, where of the functions that hand it a
loss one runs networks that another leaves out. Not proved: which parameters an optimizer holds; and gradients that a backward
leaves zero, not None.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.checks.stepping import WITHOUT
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import Identity
from amp_migrate.audit.sites.writers import without_gradients
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP219: see `rules/stepping/idle_optimizers.py`


def check(review: Review) -> Iterable[Doubt]:
    if not review.changes:
        return
    both = mixed(review)
    for change in review.changes.values():
        module = change.after
        for call, container in _each_of_several(module) if "scaler" in module.text.lower() else ():
            function = module.function_around(call)
            found = _apart(both, function) if function is not None and _scales_its_own(function) else None
            if found is not None:
                less, more = found
                message = (
                    f"each of {syntax.text(container)} steps here, and not every loss runs the same networks: "
                    f"{_name(less)} runs some of those of {_name(more)} alone. For an optimizer none of whose parameters got "
                    f"a gradient scaler.step raises (No inf checks were recorded); {WITHOUT}. Step those that have one"
                )
                yield review.doubt(module, call, "AMP219", "optimizer.step", message, "look", ("AMP219",))


def _name(function: Function) -> str:
    return function.qualname


def _each_of_several(module: Module) -> Iterator[tuple[ast.Call, ast.expr]]:
    """`for optimizer in self.optimizers.values(): scaler.step(optimizer)`: the step, and what holds the optimizers."""
    for call in module.calls_named.get("step", ()):
        given, func = call.args[:1], call.func
        if not given or not isinstance(func, ast.Attribute) or "scaler" not in syntax.text(func.value).lower():
            continue
        for loop in module.ancestors(call):
            if isinstance(loop, (ast.For, ast.comprehension)) and syntax.text(loop.target) == syntax.text(given[0]):
                yield call, loop.iter


def _scales_its_own(function: Function) -> bool:
    """Whether a function scales a loss that it is given."""
    names = {p.arg for p in function.parameters}
    scaled = (c for c in syntax.every(function.node, ast.Call) if syntax.last(c.func) == "scale" and c.args)
    return any(isinstance(c.args[0], ast.Name) and c.args[0].id in names for c in scaled)


def _apart(both: Mixed, function: Function) -> tuple[Function, Function] | None:
    """Two functions that hand a loss to one, of which the first runs less networks than the second."""
    runs: dict[Function, frozenset[Identity]] = {}
    for module, call in both.review.after.callers(function):
        caller = module.function_around(call)
        if caller is not None:
            calls = [f for f in both.after.forwards.of(module) if module.function_around(f.call) is caller]
            here = [f for f in calls if both.after.regions.nearest(module, f.call)]
            here = [f for f in here if not without_gradients(both.review.after, module, f.call)]
            found = [both.after.forwards.identities(f) for f in here]
            if found and all(found):
                runs[caller] = frozenset[Identity]().union(*found)
    listed = {i[0] for found in runs.values() for i in found if _item(i)}
    runs = {f: frozenset(i for i in found if _is_one(i, listed)) for f, found in runs.items()}
    ordered = sorted(runs, key=lambda f: (len(runs[f]), f.module.path, f.node.lineno))
    pairs = ((one, other) for one in ordered for other in ordered if runs[one] and runs[one] < runs[other])
    return next(pairs, None)


def _item(network: Identity) -> tuple[object, ...]:
    """Where a network stands in a list that is made whole: `amp.initialize([encoder, decoder])`."""
    return network[1] if isinstance(network[1], tuple) else ()


def _is_one(network: Identity, listed: set[object]) -> bool:
    """Whether it is one network: not any of a list, nor the list."""
    return None not in _item(network) and (bool(_item(network)) or network[0] not in listed)
