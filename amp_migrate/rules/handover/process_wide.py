"""A scaler that nothing can hand over lives at module level, as Apex's state belonged to the process.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.scaler.process_wide import ProcessWide
from amp_migrate.reading.sites.apex import apex_imports
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP227",
        "The scaler lives at module level",
        "GradScaler",
        apex="State is global: a callback, a hook or a method that a framework calls scales and steps with it.",
        native="A GradScaler is an object that has to be reached. Where no object and no parameter can hand it over, the "
        "module that scales keeps it: disabled until the code sets it where initialize stood.",
        why="It is global as Apex's state was. Whoever trains without coming by that place gets a scaler that does nothing, "
        "as a program without initialize trained in float32.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler",),
        examples=(
            Example(
                "def train():\n    ...\n    model, optimizer = amp.initialize(model, optimizer)\n    fit(model, on_batch)",
                'scaler = torch.amp.GradScaler("cuda", enabled=False)\n\n\ndef train():\n    global scaler\n    ...\n'
                '    scaler = torch.amp.GradScaler("cuda")\n    fit(model, on_batch)',
            ),
        ),
    ),
)


def apply(m: Migration) -> None:
    """Write the module-level scalers, the `global` statements and the imports that naming them takes."""
    wide = [plan for plan in m.scalers if isinstance(plan, ProcessWide)] if m.scales else []
    if wide:
        _keep(m, wide)
        m.output.wide.update((plan.module, plan.base_name) for plan in wide)
        m.output.asking.update(_asking(m, wide))
    for plan in m.scalers if m.scales else ():
        homes = [h for h in plan.created if h.kind == "local" and not h.carrier and h.scope.is_module]
        m.output.global_names.update((h.scope.module, plan.name_in(h.scope)) for h in homes)
    m.output.global_names |= m.output.wide


def _keep(m: Migration, plans: list[ProcessWide]) -> None:
    """The scalers of a unit at the level of one module."""
    module, failure = plans[0].module, plans[0].failure
    comment = "  # for the whole process: set where mixed precision is set up"
    lines = [f"{plan.base_name} = {m.scaler_off(module, module.root)}{comment}" for plan in plans]
    settings = {plan: [held.base_name for held in m.held.values() if held.wide is plan] for plan in plans}
    lines += [f"{name} = None" for names in settings.values() for name in names]
    lines[0] = f"\n{lines[0]}"
    place, above = _place(module)
    if place is not None:
        m.edit(module).insert_after(place, *lines)
    elif above is not None:
        m.edit(module).insert_before(above, *lines)
    reach(m, plans)
    node = next((x.call for x in m.unit.losses if x.module is module), module.tree)
    where = f"{failure.module.display}:{getattr(failure.node, 'lineno', 1)}"
    for plan in plans:
        message = (
            f"{plan.base_name} lives at module level, disabled until it is set where initialize stood: it could not be "
            f"handed over ({where}: {failure.message.partition(';')[0]})"
        )
        m.output.note(module, node, "AMP227", "GradScaler", message)


def reach(m: Migration, plans: list[ProcessWide]) -> None:
    """Write what it takes to set them where they are set, and to name them where they are asked."""
    settings = {plan: [held.base_name for held in m.held.values() if held.wide is plan] for plan in plans}
    for scope in dict.fromkeys(scope for plan in plans for scope in plan.setters):
        # First of all that stands there: the scaler may be created before the same statement.
        names = [name for p in plans if scope in p.setters for name in (p.base_name, *settings[p])]
        m.edit(scope.module).before.setdefault(scope.first, []).insert(0, f"global {', '.join(names)}")
    namings = {other: naming for plan in plans for other, naming in plan.namings.items() if other in plan.written_in}
    for other, naming in namings.items():
        if naming.below is not None:
            m.edit(other).insert_after(naming.below, naming.line)


def _asking(m: Migration, plans: list[ProcessWide]) -> Iterator[tuple[Scope, tuple[Module, str]]]:
    """The scopes of this unit whose regions ask one of some scalers whether it is enabled."""
    for scope, header in m.output.regions.items():
        for plan in plans:
            if (
                scope.module in plan.written_in
                and f"={plan.written(scope.module, plan.base_name)}.is_enabled()" in header
            ):
                yield scope, (plan.module, plan.base_name)


def _place(module: Module) -> tuple[ast.stmt | None, ast.stmt | None]:
    """The last import above all definitions that stays, to stand after; where there is none, the first statement below the
    docstring, to stand before."""
    gone = set(apex_imports(module))
    last: ast.stmt | None = None
    for stmt in module.tree.body:
        if isinstance(stmt, (*FUNCTION_NODES, ast.ClassDef)):
            break
        imports = [n for n in walk(stmt) if isinstance(n, (ast.Import, ast.ImportFrom))]
        if imports and not isinstance(stmt, ast.If) and not gone.intersection(imports):
            last = stmt
    return last, next((s for s in module.tree.body if not _is_docstring(s)), None)


def _is_docstring(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
