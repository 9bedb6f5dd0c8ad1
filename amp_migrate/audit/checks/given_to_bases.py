"""What a class calls that a base out of sight keeps for it, where that base was handed an initialized model: it may run that.

`pred = self.eval_func(x)` of an extension whose base was made with the model, and whose methods a framework runs in the
training: half under O1 then, and in no region now. What is called counts where it gives a tensor, as far as its uses tell.
Not proved: what the base keeps.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from amp_migrate.audit.checks.out_of_sight import given_to_base
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import identities
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP531: see `precision.py`
OF_TENSORS = frozenset(
    "detach cpu cuda argmax argsort max softmax log_softmax sigmoid tanh exp float half topk squeeze view backward".split()
)
TAKING = re.compile(r"loss|criterion|softmax|sigmoid|argmax", re.IGNORECASE)


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not both.removed or both.after.regions.wrapped:  # a forward that takes its region along
        return
    for module in both.near:
        if not any(s.usually_patches for s in both.near_setups(module)):
            continue
        for cls in module.classes:
            bases = [b for b in review.before.external_bases(cls) if not hasattr(builtins, b)]
            if bases and not review.before.is_network(cls) and _is_given(both, cls):
                yield from _told(both, cls, bases[0])


def _is_given(both: Mixed, cls: Class) -> bool:
    """Whether the base of a class was handed an initialized model: by its constructor, or by who makes an object of it."""
    if any(given_to_base(both, c) for c in both.review.before.family_up(cls)):
        return True
    if both.review.before.constructors(cls):
        return False
    program, values = both.review.before, both.review.values_before
    return any(
        cls in program.definitions(module.scope_of(call), call.func, guess=False)
        and any(identities(values, module.scope_of(call), v) & both.initialized for v in syntax.given(call))
        for module in both.near
        if cls.name in module.words
        for call in module.calls()
    )


def _told(both: Mixed, cls: Class, base: str) -> Iterator[Doubt]:
    for methods in cls.methods.values():
        for function in methods:
            for call in syntax.every(function.node, ast.Call):
                if not _is_unseen(both, function, call) or not _gives_tensor(function, call):
                    continue
                place = both.now(function.module, call)
                ways = both.after.chains.to(*place) if place is not None else ()
                if place is None or any(both.in_region(way) is not False for way in ways):
                    continue
                message = (
                    f"{syntax.text(call.func)} in {cls.name}.{function.name} is what {base} keeps, which is out of sight and was "
                    "handed an initialized model: where it runs that, O1 ran it in half precision, and it runs in float32 now, "
                    "outside of any autocast region. Put it in one to keep its precision, speed and memory"
                )
                doubt = both.review.doubt(*place, "AMP531", "a call of the model", message, "review", ("AMP502",))
                yield replace(doubt, lost=((call.lineno, call.col_offset),))


def _is_unseen(both: Mixed, function: Function, call: ast.Call) -> bool:
    """Whether a call is of a field of its object that nothing in sight gives, and no method in sight."""
    func, program = call.func, both.review.before
    if not isinstance(func, ast.Attribute) or not syntax.given(call):
        return False
    owner = program.is_self(function.scope, func.value)
    if owner is None or program._method(owner, func.attr):
        return False
    family = program.family(owner)
    return not any(s.owner in family for s in both.review.values_before.stored(func.attr))


def _gives_tensor(function: Function, call: ast.Call) -> bool:
    """Whether what a call gives is used as a tensor is, where it is given or under the name that it gets."""
    stmt = function.module.parents.get(call)
    names = {t.id for t in stmt.targets if isinstance(t, ast.Name)} if isinstance(stmt, ast.Assign) else set()
    uses = [n for n in syntax.every(function.node, ast.Name) if n.id in names and isinstance(n.ctx, ast.Load)]
    return any(_as_tensor(function.module, use) for use in (call, *uses))


def _as_tensor(module: Module, node: ast.expr) -> bool:
    around = module.parents.get(node)
    if isinstance(around, ast.Attribute):
        return around.attr in OF_TENSORS
    return isinstance(around, ast.Call) and node in around.args and bool(TAKING.search(syntax.text(around.func)))
