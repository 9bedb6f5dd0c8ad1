"""A step through the scaler that is taken where there is a gradient only: `scaler.step` raises without any."""

from __future__ import annotations

import ast
from textwrap import indent

from amp_migrate.reading.units.unit import Step
from amp_migrate.rules.migration import Migration


def only_with_gradients(m: Migration, step: Step) -> bool:
    """Put a step and its update under a test for a gradient, where they are statements of their own and nothing else has to
    wait for them: not what was unscaled before, nor the update of several optimizers."""
    module, stmt = step.module, step.stmt
    edits, style = m.edit(module), m.style(module)
    alone = len(m.unit.optimizers) == 1 and step.call not in m.unscaled_steps and stmt not in edits.before
    if not alone or not isinstance(stmt, ast.Expr) or stmt.value is not step.call:
        return False
    lines = edits.after.get(stmt, [])
    if stmt not in m.updates.get(step.scope, ()) or not all(isinstance(line, str) for line in lines):
        return False
    if not isinstance(step.optimizer, (ast.Name, ast.Attribute)):
        return False
    edits.after.pop(stmt)
    test = f"any(p.grad is not None for group in {step.name}.param_groups for p in group[{style.quote}params{style.quote}])"
    held = indent("\n".join(map(str, lines)), style.indent)
    edits.replace(stmt, (f"if {test}:\n{style.indent}", stmt.value, f"\n{held}"))
    return True
