"""`amp.state_dict()` and `amp.load_state_dict()` become the scaler's own, under the key `scaler`.

Apex: https://nvidia.github.io/apex/amp.html#checkpointing
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.state_dict
"""

from __future__ import annotations

import ast
import re

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.modules_passed import key_asked
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.state import readers, stripped
from amp_migrate.rules.state.keys import key_beside, new_key, renamed, saved_keys
from amp_migrate.rules.state.load import load, take_out
from amp_migrate.rules.state.mappings import Key

APEX = "https://nvidia.github.io/apex/amp.html#checkpointing"
NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.state_dict"

# Calls that take amp to save or restore its state.
KEEPERS = re.compile(r"(state|checkpoint|ckpt|snapshot|save|resume|restor|track|persist|serializ)", re.IGNORECASE)
STANDS_IN = "the scaler stands in for amp: it has state_dict and load_state_dict too; see what is done with it"
OFF = "a scaler that is off stands in for amp, whose state is empty: no loss is scaled here; see what is done with it"

CODES = (
    Code(
        "AMP401",
        "amp.state_dict becomes scaler.state_dict",
        "amp.state_dict",
        apex="Returns loss_scale and unskipped for every loss scaler.",
        native="Returns scale, growth_tracker and the factors of one scaler.",
        why="The layout differs, so the state is kept under a new key; amp-migrate checkpoint converts old files.",
        links=(APEX, NATIVE),
        examples=(Example('{"amp": amp.state_dict()}', '{"scaler": scaler.state_dict()}'),),
    ),
    Code(
        "AMP402",
        "amp.load_state_dict becomes scaler.load_state_dict, guarded",
        "amp.load_state_dict",
        apex="Loads what amp.state_dict returned.",
        native="Raises KeyError for Apex's layout and RuntimeError for the empty state of a disabled scaler.",
        why="Old checkpoints have no scaler state: they load, with a fresh scale, unless converted.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                'amp.load_state_dict(checkpoint["amp"])',
                'if "scaler" in checkpoint:\n    scaler.load_state_dict(checkpoint["scaler"])',
            ),
        ),
    ),
)


def apply(m: Migration) -> None:
    saved: list[tuple[Module, Key]] = []
    for site in m.other_sites("state_dict"):
        if site.call is not None and m.live(site.module, site.call) and not _scale_read(site):
            saved += ((site.module, key) for key in _save(m, site))
    for site in m.unit.sites:
        if site.name == "apex.amp" and m.live(site.module, site.node):
            saved += ((site.module, key) for key in _as_object(m, site))
    for site in m.other_sites("load_state_dict"):
        if site.call is not None and m.live(site.module, site.call):
            _load(m, site)
    readers.follow(m, saved)
    for site in m.unit.sites if not m.scales else ():
        if (asking := key_asked(site.node)) is not None and asking in m.edit(site.module).expressions:
            m.output.taken.add(site.node)  # it has what stands in for amp now


def _as_object(m: Migration, site: Site) -> list[Key]:
    """`to_save = {"model": model, "amp": amp}`: whoever saves it calls state_dict, which the scaler has too; one that is off
    where no loss is scaled. The key of that one, as it was: what asks for the scaler is `amp_values`' own."""
    module = site.module
    parent = module.parents.get(site.node)
    if len(m.scalers) > 1 if m.scales else m.unit.losses:
        return []
    edits, key = m.edit(module), _key_of(module, site.node)
    stands = STANDS_IN if m.scales else OFF
    named: list[Key] = [] if m.scales or key is None else [key]

    def scaler() -> str:
        return m.scaler_at(module, site.node) if m.scales else m.scaler_off(module, site.scope)

    if key is not None and not (m.scales and isinstance(parent, ast.Assign)):
        edits.replace(key, renamed(m, module, key))
    elif isinstance(parent, ast.keyword) and parent.arg is not None:
        if not _makes_dict(module, parent) and not _gathered(m, module, parent):
            return []
        edits.replace(parent, f"{new_key(m, parent.arg)}={scaler()}")
        m.output.done(module, site.node, "AMP401", "apex.amp", stands, "review")
        return [] if m.scales else [parent]
    elif not isinstance(parent, ast.Call) or parent.func is site.node or not KEEPERS.search(ast.unparse(parent.func)):
        return []
    elif m.project.resolved.get(parent):
        return []  # in sight: the parameter becomes the scaler
    edits.replace(site.node, scaler())
    m.output.done(module, site.node, "AMP401", "apex.amp", stands, "review")
    return named


def _key_of(module: Module, value: ast.expr) -> ast.Constant | None:
    """The key that a value is put under where it stands, and nowhere else; a text."""
    parent, key = module.parents.get(value), key_beside(module, value)
    apart = isinstance(parent, ast.Assign) and len(parent.targets) > 1
    return key if not apart and isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _scale_read(site: Site) -> bool:
    """`amp.state_dict()["loss_scaler0"]["loss_scale"]` reads the scale: another rule's."""
    return isinstance(site.module.parents.get(site.call), ast.Subscript)  # type: ignore[arg-type]


def _save(m: Migration, site: Site) -> list[Key]:
    """Save the scaler's state in place of Apex's; the keys that it is put under, as they were."""
    module, call = site.module, site.call
    assert call is not None
    edits = m.edit(module)
    states = [f"{plan.at(module, call)}.state_dict()" for plan in m.scalers] if m.scales else ["{}"]
    state = states[0] if len(states) == 1 else f"[{', '.join(states)}]"
    keys, parent = saved_keys(module, call), module.parents.get(call)
    while isinstance(parent, ast.IfExp):
        parent = module.parents.get(parent)
    named: list[Key] = [*keys]
    message = "the scaler's state in place of Apex's: see that what loads it finds it where this puts it"
    if not m.scales:
        message = "an empty state: there is no scaler"
    if m.scales and isinstance(parent, ast.keyword) and parent.arg is not None and _makes_dict(module, parent):
        edits.replace(call, state)
        edits.replace(parent, (f"{new_key(m, parent.arg)}=", parent.value))
        message = f"the scaler's state, under the key {new_key(m, parent.arg)!r}"
        named.append(parent)
    else:
        edits.replace(call, state)
    for key in keys if m.scales else ():
        edits.replace(key, renamed(m, module, key))
        message = f"the scaler's state, under the key {renamed(m, module, key)}"
        stripped.announce(m, module, str(key.value), new_key(m, str(key.value)))
    m.output.done(module, call, "AMP401", "amp.state_dict", message, "look")
    return named if m.scales else []


def _makes_dict(module: Module, keyword: ast.keyword) -> bool:
    """Whether a keyword becomes a key: `dict(model=..., amp=...)`, `state.update(amp=...)`."""
    call = module.parents.get(keyword)
    if not isinstance(call, ast.Call):
        return False
    return ast.unparse(call.func) == "dict" or (isinstance(call.func, ast.Attribute) and call.func.attr == "update")


def _gathered(m: Migration, module: Module, keyword: ast.keyword) -> bool:
    """Whether all that a call may run takes a keyword among `**things`, and treats it like the others there."""
    call = module.parents.get(keyword)
    functions = m.project.resolved.get(call, []) if isinstance(call, ast.Call) else []
    for function in functions:
        named = function.parameter(keyword.arg or "") is not None
        asked = any(isinstance(n, ast.Constant) and n.value == keyword.arg for n in walk(function.node))
        if function.node.args.kwarg is None or named or asked:
            return False
    return bool(functions)


def _load(m: Migration, site: Site) -> None:
    module, call = site.module, site.call
    assert call is not None
    if m.scales:
        load(m, module, call, site.stmt, empty=may_be_empty(m))
        return
    take_out(m, module, call, site.stmt)


def may_be_empty(m: Migration) -> bool:
    """Whether a checkpoint may hold nothing for the scaler: it can be disabled, or was saved under a condition, or by what was
    given none."""
    if any(thread.stands_in for plan in m.scalers for thread in plan.threads.values()):
        return True
    saved = [(s.module, s.call) for s in m.other_sites("state_dict") if s.call is not None]
    return any(not home.flag.of_scaler.always for plan in m.scalers for home in plan.homes) or any(
        isinstance(module.parents.get(call), ast.IfExp) for module, call in saved
    )
