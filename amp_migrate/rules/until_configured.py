"""A method that sets mixed precision up and that users may leave out: `context.configure_amp(model, optimizer)`.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler

The class keeps a flag, False from the beginning and True once the method ran, and scales only then; its step is the same
for both. It steps through the scaler, so that there must be one from the beginning: a disabled one. No code of its own in
the report: AMP110 speaks of it.
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.definitions import Function
from amp_migrate.reading.static_scale import static_scale
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.run_time_scale import variable

CODES: tuple[Code, ...] = ()


def apply(m: Migration) -> None:
    """Create a disabled scaler where the flag is first set."""
    if not m.scales:
        return
    for plan in m.scalers:
        for home in plan.homes:
            function = m.project.functions.get(home.scope.node)
            if home.kind != "self" or home.carrier or function is None or function.cls is None:
                continue
            made = function.cls.method("__init__")
            if made is None or made is function or m.project.calls.get(function):
                continue
            stmt = _flag_at_first(m, made)
            kept = plan.settled.get(function.cls.family)
            if stmt is None or kept is None:
                continue
            module, name = made.module, made.scope.self_name or "self"
            torch, quote = m.torch(module, made.scope), m.style(module).quote
            m.edit(module).insert_after(
                stmt, f"{name}.{kept} = {torch}.amp.GradScaler({quote}{m.options.device}{quote}, enabled=False)"
            )
            m.until_then.append((module, stmt, name))
            scale = static_scale(home.init)
            if isinstance(scale, ast.expr):  # what `update` is given
                held = variable(m, home, scale)
                holder, _, attribute = held.partition(".")
                if holder == home.scope.self_name:
                    m.edit(module).insert_after(stmt, f"{name}.{attribute} = None")
            m.output.done(module, stmt, "AMP110", "amp.initialize", "a disabled scaler until then", "look")


def _flag_at_first(m: Migration, made: Function) -> ast.stmt | None:
    """`self.use_amp = False` in a constructor, where a scaled loss stands beside a plain backward under that flag."""
    flags: set[str] = set()
    for loss in m.unit.losses:
        for parent in loss.module.ancestors(loss.with_stmt):
            if isinstance(parent, ast.If) and m.live(loss.module, parent) and _runs_plainly(parent.orelse):
                flags |= {n.attr for n in ast.walk(parent.test) if isinstance(n, ast.Attribute)}
    for stmt in made.scope.body:
        if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Constant) and not stmt.value.value:
            target = stmt.targets[0]
            if isinstance(target, ast.Attribute) and target.attr in flags:
                return stmt
    return None


def _runs_plainly(block: list[ast.stmt]) -> bool:
    calls = (n.func for s in block for n in ast.walk(s) if isinstance(n, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr == "backward" for f in calls)
