"""Networks that a module runs as a part of it, and was handed: a teacher beside the model, `KD(student, teacher)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.sites.networks import is_given, is_network, of_half_layers
from amp_migrate.audit.sites.setups import Identity

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed


def handed_in(both: Mixed) -> Iterator[Forward]:
    """The calls, before, of those that no set-up was given, where O2 or O3 left them in float32."""
    for module in both.near:
        for forward in both.before.forwards.of(module) if both.floats(module) or both.asks(module) else ():
            function = module.function_around(forward.call)
            owner = function.owner if function is not None else None
            if owner is None or not is_network(both.before.program, owner):
                continue
            made = both.before.forwards.identities(forward)
            if not both.seen(made) or made & both.initialized or any(_within(i, owner, both) for i in made):
                continue
            if _networks(both, forward, made) and not _is_given(both, forward):
                yield forward


def _within(identity: Identity, owner: Class, both: Mixed) -> bool:
    """Whether an object is made by the class itself."""
    node, module = identity[0], identity[-1]
    function = module.function_around(node) if isinstance(node, ast.AST) and isinstance(module, Module) else None
    return function is not None and function.owner in both.before.program.family(owner)


def _networks(both: Mixed, forward: Forward, made: frozenset[Identity]) -> bool:
    classes = both.before.forwards.made_of(made)
    return all(is_network(both.before.program, c) for c in classes) if classes else of_half_layers(both, forward)


def _is_given(both: Mixed, forward: Forward) -> bool:
    place = both.now(forward.module, forward.call)
    now = both.after.forwards.at(*place) if place is not None else None
    return now is None or is_given(both, now.module, now.model)
