"""An FP16_Optimizer's state held the loss scale: the scaler's own is saved and loaded beside the optimizer's.

Apex: https://nvidia.github.io/apex/fp16_utils.html#apex.fp16_utils.FP16_Optimizer.state_dict
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.state_dict
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.older import asked_states
from amp_migrate.rules.state.save import may_be_empty

APEX = "https://nvidia.github.io/apex/fp16_utils.html#apex.fp16_utils.FP16_Optimizer.state_dict"
NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.state_dict"

CODES = (
    Code(
        "AMP706",
        "The scaler's state is kept beside the optimizer's",
        "FP16_Optimizer.state_dict",
        apex="Holds the loss scaler, the master weights and, as optimizer_state_dict, the wrapped optimizer's state.",
        native="optimizer.state_dict() and scaler.state_dict(), under keys of their own.",
        why="A plain optimizer cannot load the wrapper's checkpoints as they are: take their optimizer_state_dict.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                '{"optimizer": optimizer.state_dict()}',
                '{"optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}',
            ),
        ),
    ),
)

OLD_FILES = (
    "checkpoints of FP16_Optimizer have a layout of their own: load their optimizer_state_dict and float32 weights"
)


def save(m: Migration, site: Site, call: ast.Call) -> None:
    """Keep the scaler's state where the optimizer's goes."""
    module = site.module
    assert isinstance(site.node, ast.Attribute)
    optimizer = site.node.value
    asked_states.refuse(m, site, call)
    if not _kept(m, module, optimizer):
        return
    name = m.scaler_of(module, optimizer).base_name
    key = _key(m, module, name)
    scaler = f"{m.scaler_at(module, call, optimizer)}.state_dict()"
    value: ast.expr = call
    parent = module.parents.get(call)
    if isinstance(parent, ast.IfExp):
        value, parent = parent, module.parents.get(parent)
    edits = m.edit(module)
    if isinstance(parent, ast.Dict):
        index = parent.values.index(value)
        if any(isinstance(k, ast.Constant) and k.value == name for k in parent.keys) or _earlier(m, parent, index):
            return
        edits.insert("after", value, f",{_gap(parent, index)}{key}: {scaler}")
    elif isinstance(parent, ast.keyword):
        edits.insert("after", parent, f", {name}={scaler}")
    elif isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Subscript):
        edits.insert_after(parent, f"{module.source(parent.targets[0].value)}[{key}] = {scaler}")
    else:
        m.output.note(
            module,
            call,
            "AMP706",
            site.construct,
            f"the loss scale was part of this state; save {scaler} as well to keep it over a restart",
            "review",
        )
        return
    m.output.done(module, call, "AMP706", site.construct, "the scaler's state is saved beside the optimizer's", "look")


def load(m: Migration, site: Site, call: ast.Call) -> None:
    """Load the scaler's state after the optimizer's, where the checkpoint has one."""
    assert isinstance(site.node, ast.Attribute)
    _load(m, site.module, call, site.construct, site.node.value, call.args[0] if call.args else None)


def load_by_helpers(m: Migration) -> None:
    """The same where a function of the program is handed both: `load_partly(self.optimizer, state["optimizer"])`."""
    told = {site.call for site in m.unit.sites}
    for function, loading, holder, state in m.project.once(_loaders):
        for module, call in m.project.calls.get(function, ()):
            given = dict(m.project.arguments(function, call))
            optimizer = given.get(holder)
            if module not in m.unit.modules or not isinstance(optimizer, (ast.Name, ast.Attribute)):
                continue
            if m.project.slot(module, optimizer) in m.unit.optimizer_slots and m.live(module, call):
                construct = "" if loading in told else "FP16_Optimizer.load_state_dict"
                _load(m, module, call, construct, optimizer, given.get(state))


def _loaders(project: Project) -> list[tuple[Function, ast.Call, str, str]]:
    """The functions that load one of their parameters with another, where, and the names of both; see `Project.once`."""
    found: list[tuple[Function, ast.Call, str, str]] = []
    for module in project.modules:
        for call, func in module.method_calls.get("load_state_dict", ()):
            names = [n.id for n in (func.value, *call.args[:1]) if isinstance(n, ast.Name)]
            function = project.function_of(module, call)
            if function is not None and len(names) == 2 and set(names) <= set(function.scope.params):
                found.append((function, call, names[0], names[1]))
    return found


def _load(
    m: Migration, module: Module, call: ast.Call, construct: str, optimizer: ast.expr, state: ast.expr | None
) -> None:
    if construct:
        m.output.note(module, call, "AMP706", construct, OLD_FILES, "review")
    if not _kept(m, module, optimizer):
        return
    if not isinstance(state, ast.Subscript) or not isinstance(module.parents.get(call), ast.Expr):
        return
    if not isinstance(state.value, (ast.Name, ast.Attribute)):
        return
    base, scaler = module.source(state.value), m.scaler_at(module, call, optimizer)
    key = _key(m, module, m.scaler_of(module, optimizer).base_name)
    indent = m.style(module).indent
    asked = f"{base}.get({key})" if may_be_empty(m) else f"{key} in {base}"
    if _may_be_left_out(m, module, call, scaler):
        asked = f"{scaler} is not None and {asked}"
    line = f"if {asked}:\n{indent}{scaler}.load_state_dict({base}[{key}])"
    m.edit(module).insert_after(module.statement(call), line)


def _may_be_left_out(m: Migration, module: Module, call: ast.Call, scaler: str) -> bool:
    """Whether the function around is given the scaler, or None by default."""
    function = m.project.function_of(module, call)
    threads = (t for plan in m.scalers for f, t in plan.threads.items() if f is function)
    return any(t.name == scaler and t.default == "None" for t in threads)


def _kept(m: Migration, module: Module, optimizer: ast.expr) -> bool:
    """Whether there is a scale that changes."""
    inits = [i for i in m.inits_of(module, optimizer) if isinstance(i, LegacyInit)]
    return m.scales and not all(i.scale.is_static for i in inits)


def _key(m: Migration, module: Module, name: str) -> str:
    quote = m.style(module).quote
    return f"{quote}{name}{quote}"


def _earlier(m: Migration, node: ast.Dict, index: int) -> bool:
    """Whether another optimizer's state before this one already brought the scaler's."""
    if len(m.scalers) > 1:
        return False
    module = next(s.module for s in m.unit.sites if any(v is s.call for v in node.values))
    return any(s.call is v for s in m.unit.sites for v in node.values[:index] if s.module is module)


def _gap(node: ast.Dict, index: int) -> str:
    """What stands between the entries of a dict display: a space, or a new line and the indentation of its keys."""
    key = node.keys[index]
    if key is None or key.lineno == node.lineno:
        return " "
    return "\n" + " " * key.col_offset
