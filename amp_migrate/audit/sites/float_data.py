"""Tensors whose data are always replaced by float32 ones before an optimizer steps them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import conditions
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.ways.chains import Chain

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed

# Float32 unless told otherwise.
FACTORIES = frozenset(f"torch.{n}" for n in "randn rand zeros ones empty normal".split())


def given_float(both: Mixed, module: Module, leaf: ast.expr, where: Module, step: ast.expr) -> bool:
    """Whether the data of a tensor are always replaced by float32 ones before it is stepped: `x.data = torch.randn(n)`."""
    values, program = both.review.values_after, both.review.after
    made = {o.node for o in values.of(module, leaf)}
    writes = [
        (m, stmt)
        for m in both.after.modules
        for target in m.stored_attributes("data")
        if isinstance(stmt := m.statement(target), ast.Assign) and target in stmt.targets
        if made & {o.node for o in values.of(m, target.value)}
    ]
    for m, stmt in writes:
        call = stmt.value
        name = program.dotted(m.scope_of(stmt), call.func) or "" if isinstance(call, ast.Call) else ""
        made_so = name in FACTORIES and isinstance(call, ast.Call) and argument(call, "dtype", 99) is None
        if not made_so and not syntax.text(call).endswith(".float()"):
            return False
    chains = both.after.chains.to(where, step)
    return bool(chains) and all(any(_stands_before(chain, m, stmt) for m, stmt in writes) for chain in chains)


def _stands_before(chain: Chain, module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement has always run where a chain of calls has come to its end: it stands above one of them."""
    function, asked = module.function_around(stmt), conditions(module, stmt)
    loops = [a for a in module.ancestors(stmt) if isinstance(a, (ast.For, ast.While))]
    return any(
        at.module is module
        and at.function is function
        and stmt.lineno < module.statement(at.node).lineno
        and conditions(module, module.statement(at.node))[: len(asked)] == asked
        and all(loop in module.ancestors(at.node) for loop in loops)
        for at in chain.steps
    )
