"""The key under which a checkpoint keeps the scaler's state: never the one that holds Apex's layout in old files, nor one
under which the program keeps something else."""

from __future__ import annotations

import ast
import re

from amp_migrate.reading.program.definitions import Function, argument, called_name, is_none
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.units.naming import is_taken
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.state.mappings import asked, held_by, of_pairs, put

_AMP = re.compile(r"(?<![A-Za-z])(amp|AMP|Amp)(?![a-z])")


def renamed(m: Migration, module: Module, key: ast.Constant) -> str:
    """A key with `scaler` for `amp`, in the quotes it had; the same one wherever the unit saves or loads."""
    quote = module.source(key)[-1]
    return f"{quote}{new_key(m, str(key.value))}{quote}"


def new_key(m: Migration, name: str) -> str:
    """What the key is called under which Apex's state was kept as `name`; the same where it is not Apex's alone."""
    if name in shared_keys(m):
        return name
    stems = ("scaler", "grad_scaler", "amp_scaler", "torch_scaler", "native_amp_scaler")
    keys = [new for stem in stems if (new := _AMP.sub(stem, name)) != name] or [s for s in stems if s not in name]
    return next((k for k in keys if not is_taken(m.unit, k)), keys[-1])


def saved_keys(module: Module, call: ast.expr) -> list[ast.Constant]:
    """The keys under which the value of a call is put, also by way of a variable."""
    child: ast.expr = call
    parent: ast.AST | None = module.parents.get(call)
    if isinstance(parent, ast.IfExp):
        child, parent = parent, module.parents.get(parent)
    key = key_beside(module, child)
    if isinstance(parent, ast.Tuple) and len(parent.elts) == 2 and parent.elts[1] is child:
        key = parent.elts[0] if of_pairs(module, parent) is not None else None
    elif isinstance(parent, ast.List) and child in parent.elts:
        key = _zipped(module, parent, parent.elts.index(child))
    elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "setdefault":
        key = parent.args[0] if child in parent.args[1:2] else None
    elif (name := _variable(parent)) is not None:
        scope = module.scope_of(call)
        reads = [n for n in module.loads.get(name.id, ()) if module.scope_of(n) is scope]
        return [k for n in reads if not isinstance(module.parents.get(n), ast.IfExp) for k in saved_keys(module, n)]
    return [key] if isinstance(key, ast.Constant) and isinstance(key.value, str) else []


def key_beside(module: Module, value: ast.expr) -> ast.expr | None:
    """The key that a value is put under where it stands: `{"amp": value}`, `state["amp"] = value`."""
    parent = module.parents.get(value)
    if isinstance(parent, ast.Dict):
        return next((k for k, v in zip(parent.keys, parent.values, strict=True) if v is value), None)
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Subscript):
        return parent.targets[0].slice
    return None


def _zipped(module: Module, values: ast.List, index: int) -> ast.expr | None:
    """The key of a mapping that goes with one of its values: `dict(zip(["model", "amp"], [...]))`."""
    pairs = module.parents.get(values)
    if not isinstance(pairs, ast.Call) or called_name(pairs) != "zip" or pairs.args[1:] != [values]:
        return None
    names = pairs.args[0]
    if not isinstance(names, (ast.List, ast.Tuple)) or len(names.elts) <= index or of_pairs(module, pairs) is None:
        return None
    return names.elts[index]


def shared_keys(m: Migration) -> set[str]:
    """The keys that are not Apex's alone: under which the program puts a variable that may hold the state of something
    else, that of the scaler of another back end, which is loaded from there; or that a function puts there which is handed
    the state, for whoever calls it."""
    found: set[str] = set()
    for site in m.other_sites("state_dict"):
        if site.call is not None:
            found |= _kept_by_callees(m.project, site.module, site.call)
        name = _variable(site.module.parents.get(site.call)) if site.call is not None else None
        if name is None or site.call is None:
            continue
        for read in site.scope.reads(name.id):
            found |= _kept_by_callees(m.project, site.module, read)
        stmts = (site.module.parents.get(b) for b in site.scope.bindings.get(name.id, ()))
        if not all(
            isinstance(s, ast.Assign) and (is_none(s.value) or _of_apex(m, site.module, s.value)) for s in stmts
        ):
            found |= {str(key.value) for key in saved_keys(site.module, site.call)}
    return found | _read_elsewhere(m) | m.project.once(_put_by_others, *m.unit.modules)


def _put_by_others(project: Project, *modules: Module) -> frozenset[str]:
    """The keys by which something asks a mapping in memory that is filled with others than Apex's state, too: a helper that
    several programs share. See `Project.once`."""
    keys, found = _of_all(project, *project.modules), set[str]()
    own = {key for _, key in keys}
    for name in {str(key.value) for module, key in keys if module in modules}:
        held = held_by(project, [(module, key) for module, key in keys if module in modules and key.value == name])
        kept = {slot for _, key, kept in asked(project, name, held) if key not in own for slot in kept}
        others = ((module, key) for module, key in put(project, name) if key not in own) if kept else ()
        if any(kept & held_by(project, [other]) for other in others):
            found.add(name)
    return frozenset(found)


def saved_by_others(m: Migration) -> set[str]:
    """The keys under which other programs at hand put Apex's state, and a scaler's once they are migrated."""
    keys = _of_all(m.project, *m.project.modules) if m.options.dtype == "float16" else []
    mine = {k for s in m.other_sites("state_dict") if s.call is not None for k in saved_keys(s.module, s.call)}
    return {str(key.value) for _, key in keys if key not in mine}


def _of_all(project: Project, *modules: Module) -> list[tuple[Module, ast.Constant]]:
    """The keys under which files put Apex's state."""
    return [
        (module, key)
        for module in modules
        for call, func in module.method_calls.get("state_dict", ())
        if project.qualify(module, func) == "apex.amp.state_dict"
        for key in saved_keys(module, call)
    ]


def _read_elsewhere(m: Migration) -> set[str]:
    """The keys under which a value was kept that comes to a load from another function, which read it out."""
    project, found = m.project, set[str]()
    for site in m.other_sites("load_state_dict"):
        state = argument(site.call, 0, "state_dict") if site.call is not None else None
        value = single_assignment(site.module, state) if isinstance(state, ast.Name) else None
        if not isinstance(state, (ast.Name, ast.Attribute)) or isinstance(value, ast.Subscript) or _key_taken(value):
            continue  # read out here: the load asks for the new key
        held = project.origins(project.sources(site.module, state))
        found |= {slot.name[1:-1] for slot in held if slot.name.startswith("[")}
        for module in m.unit.reach:
            for call, func in (c for name in ("get", "pop") for c in module.method_calls.get(name, ())):
                if (key := _key_taken(call)) is not None and project.slot(module, func.value) in held:
                    found.add(key)
    return found


def _key_taken(value: ast.expr | None) -> str | None:
    """The key that `checkpoint.get("amp")` and `checkpoint.pop("amp")` ask for."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or not value.args:
        return None
    key = value.args[0]
    asks = value.func.attr in ("get", "pop") and isinstance(key, ast.Constant) and isinstance(key.value, str)
    return str(key.value) if asks and isinstance(key, ast.Constant) else None


def _kept_by_callees(project: Project, module: Module, value: ast.expr) -> set[str]:
    """The keys under which the functions put a value that it is passed to."""
    parent: ast.AST | None = module.parents.get(value)
    if isinstance(parent, ast.IfExp):
        value, parent = parent, module.parents.get(parent)
    name = parent.arg if isinstance(parent, ast.keyword) else None
    call = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call):
        return set()
    found: set[str] = set()
    for function in project.resolved.get(call, ()):
        given = next((p for p, v in project.arguments(function, call) if v is value), name)
        found |= _keys_of(project, function, given, frozenset()) if given is not None else set()
    return found


def _keys_of(project: Project, function: Function, name: str, seen: frozenset[Function]) -> set[str]:
    """The keys under which a function, or one that it hands its `**things` to, puts a parameter."""
    module, extra = function.module, function.node.args.kwarg
    if function.parameter(name) is not None:
        reads = [n for n in module.loads.get(name, ()) if module.scope_of(n) is function.scope]
        return {str(key.value) for n in reads for key in saved_keys(module, n)}
    if extra is None or function in seen:
        return set()
    found: set[str] = set()
    for call in (n for n in function.inside if isinstance(n, ast.Call)):
        handed = [k.value for k in call.keywords if k.arg is None]
        updates = isinstance(call.func, ast.Attribute) and call.func.attr == "update"
        if not any(isinstance(v, ast.Name) and v.id == extra.arg for v in (*handed, *(call.args if updates else ()))):
            continue
        found |= {name} if updates else set()
        for further in project.resolved.get(call, ()):
            found |= _keys_of(project, further, name, seen | {function})
    return found


def _variable(stmt: ast.AST | None) -> ast.Name | None:
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Name):
        return stmt.targets[0]
    return None


def _of_apex(m: Migration, module: Module, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and m.project.qualify(module, value.func) == "apex.amp.state_dict"
