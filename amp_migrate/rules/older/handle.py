"""`amp.init` and its handle become a `torch.amp.GradScaler` and autocast.

Apex: https://nvidia.github.io/apex/amp.html#transition-guide-for-old-api-users
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import is_none, literal
from amp_migrate.reading.program.logic import is_asked
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site, find_sites
from amp_migrate.reading.switch.legacy_folds import WITHOUT_EFFECT
from amp_migrate.reading.units.legacy import HANDLE, LegacyInit
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions.none_in_sight import needs_region
from amp_migrate.rules.setup.announced import placed

APEX = "https://nvidia.github.io/apex/amp.html#transition-guide-for-old-api-users"
NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler"

CODES = (
    Code(
        "AMP710",
        "amp.init becomes a GradScaler",
        "amp.init",
        apex="The first API of amp: patches torch for the whole process and returns a handle; the last Apex "
        "refuses its scale_loss.",
        native="A torch.amp.GradScaler takes the handle's place; torch.autocast casts.",
        why="Where the handle was passed along, the scaler is.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                "amp_handle = amp.init(enabled=args.fp16)",
                'scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)',
            ),
            Example(
                "with amp_handle.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()",
                "scaler.scale(loss).backward()",
            ),
        ),
    ),
    Code(
        "AMP711",
        "The handle of amp.init, or what is done with it, is not in sight",
        "amp.init",
        apex="A handle may be stored and passed anywhere.",
        native="The scaler that takes its place must reach the same code.",
        why="A unit is migrated whole or not at all.",
        links=(APEX,),
    ),
    Code(
        "AMP712",
        "What the handle did besides scaling",
        "amp.init",
        apex="wrap_optimizer, is_active, disable_casts; _clear_cache, _deactivate for the cast weights.",
        native="The optimizer itself, scaler.is_enabled(), autocast(enabled=False); autocast clears its cache itself.",
        why="wrap_optimizer(num_loss=n) made a scaler for each loss: one serves all of them now.",
        links=(APEX, "https://pytorch.org/docs/stable/amp.html#torch.autocast"),
        examples=(Example("amp_handle.is_active()", "scaler.is_enabled()"),),
    ),
)


def apply(m: Migration) -> None:
    """Take `amp.init` out and answer what was asked of its handle."""
    inits = [i for i in m.unit.inits if isinstance(i, LegacyInit) and not i.wraps]
    for site in m.unit.sites:
        if site.name == "apex.amp.init":  # beside an FP16_Optimizer, or off; and never asked for anything
            m.edit(site.module).delete(site.stmt)
            off = literal(site.argument(0, "enabled")) is False
            cast = "taken out; what runs in an autocast region is cast, and nothing else"
            message = "taken out: it is off, and did nothing" if off else cast
            m.output.done(site.module, site.node, "AMP710", site.construct, message, "as-is" if off else "look")
    if not inits:
        return
    for init in inits:
        if not m.unit.losses and _trains(init.module) and not _beside_initialize(m, init.module):
            raise Blocked.at(init.site, "AMP711", "this program trains, but no scale_loss of this handle is in sight")
        if isinstance(init.stmt, ast.Return):
            m.edit(init.module).replace(init.call, m.scaler_at(init.module, init.call) if m.scales else "None")
            _others_off(m, init.module, init.stmt)
        else:
            m.edit(init.module).delete(init.site.stmt)
        m.output.done(
            init.module,
            init.call,
            "AMP710",
            init.site.construct,
            placed(m, init),
            "look",
        )
    if m.unit.losses or not all(_beside_initialize(m, init.module) for init in inits):
        needs_region(m)
    for site in m.unit.sites:
        if site.name.startswith(HANDLE) and (site.short in WITHOUT_EFFECT or m.live(site.module, site.node)):
            _site(m, site)
    for module in m.project.modules:
        for node in _mentions(m, module):
            _bound(m, module, node)
    for module in m.project.modules:
        for node in _mentions(m, module):
            if isinstance(node.ctx, ast.Load) and m.live(module, node) and not m.edit(module).gone(node):
                _read(m, module, node)


def _beside_initialize(m: Migration, module: Module) -> bool:
    """Whether `amp.initialize` and `amp.scale_loss` train here, and nothing asks the handle: all that it did they did."""
    names = {s.name for s in find_sites(m.project, module)}
    asked = any(isinstance(n.ctx, ast.Load) for each in m.project.modules for n in _mentions(m, each))
    return {"apex.amp.initialize", "apex.amp.scale_loss"} <= names and not asked


def _trains(module: Module) -> bool:
    calls = (call for call, _ in module.calls_naming({"backward"}))
    return any(isinstance(c.func, ast.Attribute) and c.func.attr == "backward" for c in calls)


def _site(m: Migration, site: Site) -> None:
    module, stmt, edits = site.module, site.stmt, m.edit(site.module)
    call = site.call
    if call is None:
        raise Blocked.at(site, "AMP711", f"{site.short} of the handle is not simply called")
    if site.short in WITHOUT_EFFECT and isinstance(stmt, ast.Expr):
        edits.delete(stmt)
    elif site.short == "is_active":
        edits.replace(call, _enabled(m, module, call))
    elif site.short == "wrap_optimizer":
        _unwrap(m, site, call)
    elif site.short in ("disable_casts", "_disable_casts"):
        edits.replace(call, m.off("autocast", module, site.scope))
        m.output.note(
            module, call, "AMP712", site.construct, "float16 values that come from outside need .float() here"
        )
    else:
        raise Blocked.at(site, "AMP712", f"{site.short} of the handle has no counterpart")
    m.output.done(module, call, "AMP712", site.construct, "the handle is gone")


def _unwrap(m: Migration, site: Site, call: ast.Call) -> None:
    module, stmt = site.module, site.stmt
    optimizer = site.argument(0, "optimizer")
    if optimizer is None:
        raise Blocked.at(site, "AMP711", "the wrapped optimizer cannot be told")
    same = isinstance(stmt, ast.Assign) and [ast.unparse(t) for t in stmt.targets] == [ast.unparse(optimizer)]
    if same and isinstance(stmt, ast.Assign) and stmt.value is call:
        m.edit(module).delete(stmt)
    else:
        m.edit(module).replace(call, (optimizer,))
    if site.argument(1, "num_loss") is not None and m.scales:
        m.output.note(
            module,
            call,
            "AMP205",
            site.construct,
            "all losses share one scaler: an overflow in one lowers the scale of the others too",
        )


# -- the handle itself -----------------------------------------------------------------------------------------------


def _mentions(m: Migration, module: Module) -> list[ast.Name | ast.Attribute]:
    """Every name or attribute that holds the handle, in source order."""
    slots = m.unit.handle_slots
    if not any(s.name in module.text for s in slots):
        return []
    found = [
        n for n in walk(module.tree) if isinstance(n, (ast.Name, ast.Attribute)) and m.project.slot(module, n) in slots
    ]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def _bound(m: Migration, module: Module, node: ast.Name | ast.Attribute) -> None:
    """`amp_handle = None` beforehand, `self.amp_handle = amp_handle` afterwards."""
    stmt = module.statement(node)
    if not isinstance(node.ctx, ast.Store) or not isinstance(stmt, ast.Assign):
        return
    value = stmt.value
    if isinstance(value, ast.Call) and m.project.resolved.get(value) and m.scales:  # given back by a function
        m.edit(module).replace(node, m.scaler_at(module, stmt))
        return
    place = m.scaler.place_of(module, node) if m.scales and isinstance(value, (ast.Name, ast.Attribute)) else None
    if place is not None:
        m.edit(module).replace(stmt, f"{place[0]} = {place[1]}")
        return
    if stmt.targets != [node]:
        return
    empty = is_none(value)
    copied = isinstance(value, (ast.Name, ast.Attribute)) and m.project.slot(module, value) in m.unit.handle_slots
    if empty or copied:
        m.edit(module).delete(stmt)


def _read(m: Migration, module: Module, node: ast.Name | ast.Attribute) -> None:
    """What still mentions the handle: a test of whether there is one, or an argument to be replaced by the scaler."""
    parent = module.parents.get(node)
    edits = m.edit(module)
    if isinstance(parent, ast.Compare) and parent.left is node and ast.unparse(parent.comparators[0]) == "None":
        there = isinstance(parent.ops[0], (ast.IsNot, ast.NotEq))
        edits.replace(parent, f"{'' if there else 'not '}{_enabled(m, module, node)}")
        return
    if is_asked(parent, node):
        edits.replace(node, _enabled(m, module, node))
        return
    back = module.parents.get(parent) if isinstance(parent, ast.Tuple) else parent
    if isinstance(back, ast.Return) and m.scales:
        edits.replace(node, m.scaler_at(module, back))
        _others_off(m, module, back)
        return
    call = parent if isinstance(parent, ast.Call) else module.parents.get(parent) if parent is not None else None
    functions = m.project.resolved.get(call, []) if isinstance(call, ast.Call) else []
    if m.scales and len(functions) == 1:
        m.scaler.at(functions[0].module, functions[0].node)
        return
    raise Blocked(
        module,
        node,
        "AMP711",
        "amp.init",
        f"{ast.unparse(node)} is used in a way that no scaler can stand in for"
        if m.scales
        else "the handle is passed along",
    )


def _others_off(m: Migration, module: Module, stmt: ast.Return) -> None:
    """`return None` where a function gives the scaler back in other runs: there is one that is off."""
    function = m.project.function_of(module, stmt)
    for other in function.inside if function is not None else ():
        if isinstance(other, ast.Return) and other is not stmt and module.scope_of(other) is module.scope_of(stmt):
            if other.value is not None and is_none(other.value) and m.scales:
                m.edit(module).replace(other.value, m.scaler_off(module, module.scope_of(stmt)))


def _enabled(m: Migration, module: Module, node: ast.AST) -> str:
    """Whether mixed precision is on, as it can be asked at a node."""
    if m.scales:
        return f"{m.scaler_at(module, node)}.is_enabled()"
    return m.switch.at(module, node) or "True"
