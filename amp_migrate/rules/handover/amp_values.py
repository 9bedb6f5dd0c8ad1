"""`amp` as a value: whoever is handed it, or finds it under a key, in a field or in what a function gives back, has the scaler
instead.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import is_none
from amp_migrate.reading.program.given_values import alternatives
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.modules_passed import key_asked
from amp_migrate.reading.program.tree import identifiers
from amp_migrate.reading.scaler.amp_kept import AMP, importer
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.state.keys import new_key, renamed
from amp_migrate.rules.state.save import STANDS_IN

CODES: tuple[Code, ...] = ()
GIVEN = "the scaler is handed over where amp was"


def apply(m: Migration) -> None:
    """Put it there; runs after all rules that ask for the scaler."""
    if not m.scales or len(m.scalers) > 1:
        return
    for module, target in m.project.module_targets:
        stmt = module.statement(target)
        if module in m.unit.reach and target not in m.edit(module).expressions and m.live(module, target):
            if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Call):
                m.edit(module).replace(target, m.scaler_at(module, stmt))
    sites = [s for s in m.unit.sites if s.name == AMP and m.live(s.module, s.node)]
    bringing = {f for s in sites if isinstance(s.node, ast.Call) if (f := importer(m.project, s.node)) is not None}
    given_back = [
        s for s in sites if isinstance(s.stmt, ast.Return) and m.project.functions.get(s.scope.node) in bringing
    ]
    for site in [s for s in sites if s not in given_back]:
        if not m.edit(site.module).gone(site.node):
            _value(m, site)
    for site in given_back:
        _given_back(m, site)
    done: set[tuple[Scope, str]] = set()
    while more := [x for x in m.scaler.locals if x not in done]:
        done.update(more)
        for scope, name in more:
            _variable(m, m.scaler, scope, name)
    for field in m.scaler.declared:
        _declared(m, field)


def _value(m: Migration, site: Site) -> None:
    """What takes the place of one expression that stands for the module."""
    module, value = site.module, site.node
    parent = module.parents.get(value)
    while isinstance(parent, ast.IfExp) and value is not parent.test and _is_none(module, parent, value):
        value, parent = parent, module.parents.get(parent)
    edits = m.edit(module)
    if isinstance(parent, ast.Assign) and parent.value is value and len(parent.targets) == 1:
        target = parent.targets[0]
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            _entry(m, site, parent, target, target.slice)
            m.output.done(module, site.node, "AMP110", AMP, GIVEN, "look")
        elif isinstance(target, ast.Name) and _by_name(m, module, target):
            edits.delete(parent)
            m.output.done(module, site.node, "AMP110", AMP, "nothing is called through it any more", "as-is")
    elif isinstance(parent, ast.Return) or (
        isinstance(parent, ast.Tuple) and isinstance(module.parents.get(parent), ast.Return)
    ):
        edits.replace(value, m.scaler_at(module, parent))
        m.output.done(module, site.node, "AMP110", AMP, "the scaler is given back where amp was")
    elif isinstance(parent, (ast.keyword, ast.Call)):
        _argument(m, site, value, parent)
    elif isinstance(parent, (ast.List, ast.Tuple)) and isinstance(module.parents.get(parent), ast.comprehension):
        edits.replace(value, m.scaler_at(module, parent))
        m.output.done(module, site.node, "AMP401", AMP, STANDS_IN, "review")


def _given_back(m: Migration, site: Site) -> None:
    """A function that does nothing but import amp for others goes with its calls."""
    module, function = site.module, m.project.functions[site.scope.node]
    uses: list[tuple[Module, ast.expr]] = [(module, n) for n in module.loads.get(function.name, ())]
    uses += [*m.project.handed_on.readers(module, function.name)]
    if function.cls is not None or not all(m.edit(where).gone(node) for where, node in uses):
        _value(m, site)
    elif not m.edit(module).deleted(function.node):
        m.edit(module).delete(function.node)
        m.output.done(
            module, site.node, "AMP110", AMP, f"{function.name} imported it: nothing calls it any more", "as-is"
        )


def _entry(m: Migration, site: Site, stmt: ast.Assign, target: ast.Subscript, key: ast.Constant) -> None:
    """Keep the scaler under a key: in all runs, where those without mixed precision ask for it now.

    Raises Blocked where only some runs come there.
    """
    module, text = site.module, renamed(m, site.module, key)
    scaler = m.scaler_at(module, stmt)
    asked = [a for a in module.ancestors(stmt) if isinstance(a, ast.If) and module.scope_of(a) is site.scope]
    asked = [a for a in asked if not m.edit(module).gone(a.test)]
    homes = [h for h in m.scaler.homes if h.scope is site.scope and set(asked) <= set(h.climbed)]
    if not asked or key.value not in m.scaler.keys_asked:
        m.edit(module).replace(key, text)
        m.edit(module).replace(stmt.value, scaler)
        return
    names = identifiers(target.value)
    bound = [b for name in names for b in site.scope.bindings.get(name, ())]
    if not homes or any(getattr(b, "lineno", 0) >= homes[0].anchor.lineno for b in bound):
        message = (
            f"only some runs come here, and {module.source(target)} is the scaler in all: set it for the others, too"
        )
        raise Blocked.at(site, "AMP213", message)
    m.edit(module).delete(stmt)
    m.edit(module).insert_before(homes[0].anchor, f"{module.source(target.value)}[{text}] = {scaler}")


def _is_none(module: Module, choice: ast.IfExp, value: ast.expr) -> bool:
    return all(is_none(v) or v is value for v in (choice.body, choice.orelse))


def _by_name(m: Migration, module: Module, target: ast.Name) -> bool:
    """Whether a variable is not one that takes the scaler over."""
    owner = module.scope_of(target).lookup(target.id)
    return owner is not None and (owner, target.id) not in m.scaler.locals


def _argument(m: Migration, site: Site, value: ast.expr, parent: ast.keyword | ast.Call) -> None:
    """Hand the scaler over to a function that was handed the module, whatever it does with it."""
    module = site.module
    call = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call) or call.func is value or getattr(parent, "arg", "") is None:
        return
    functions = m.project.resolved.get(call, [])
    for function in functions:
        for name, given in m.project.arguments(function, call):
            if given is not value:
                continue
            if function.parameter(name) is not None and m.project.passed_modules.get(Slot(function.scope, name)) == AMP:
                m.scaler.take_over(function)
                return  # its calls give it
    fields = [f for cls in m.project.classes_of(module, call) for f, v in cls.given(call) if v is value]
    extra = any(f.node.args.kwarg is not None for f in functions)
    if not functions and not fields and not extra:
        return
    text = m.scaler_at(module, call)
    if isinstance(parent, ast.keyword):
        name = str(parent.arg)
        handed = any(f in m.scaler.threads for g in functions for f, _, v in m.project.passed_on(g, call) if v is value)
        text = f"{m.scaler.base_name if fields or handed else new_key(m, name)}={text}"
        m.edit(module).replace(parent, text)
    else:
        m.edit(module).replace(value, text)
    m.scaler.declared.update(dict.fromkeys(fields))
    m.output.done(module, site.node, "AMP110", AMP, GIVEN, "look")


def _variable(m: Migration, plan: ScalerPlan, scope: Scope, name: str) -> None:
    """A variable that takes the scaler out of a mapping, or from what a function gives back."""
    module = scope.module
    for binding in scope.bindings.get(name, ()):
        stmt = module.statement(binding)
        if not isinstance(binding, ast.Name) or not isinstance(stmt, ast.Assign):
            continue
        if stmt.targets != [binding]:
            m.edit(module).replace(binding, plan.name_in(scope))
            continue
        m.edit(module).replace(stmt, (f"{plan.name_in(scope)} = ", stmt.value))
        for each in alternatives(stmt.value):
            m.output.taken.add(each)
            if is_none(each) and each is stmt.value:
                m.edit(module).replace(each, m.scaler_off(module, scope))
            elif (key := key_asked(each)) is not None:
                m.edit(module).replace(key, renamed(m, module, key))
        m.output.done(module, stmt.value, "AMP110", AMP, "the scaler, where amp was", "look")


def _declared(m: Migration, field: str) -> None:
    """The field of a class that takes its fields as arguments: `amp: Any = None`."""
    for cls in m.project.classes.values():
        if field in cls.annotated and m.project.passed_modules.get(Slot(cls.family, field)) == AMP:
            for node in cls.node.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == field:
                    m.edit(cls.module).replace(node.target, m.scaler.base_name)
