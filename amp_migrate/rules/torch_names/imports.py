"""Imports of deprecated AMP modules move to `torch.amp` with the uses that went through them."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence

from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import children, walk
from amp_migrate.reading.sites.deprecated import EXPORTS, HOMES, STAR, SUBMODULES, Binding, home, import_targets
from amp_migrate.rules.migration import Output
from amp_migrate.rules.torch_names.old_branches import lets_older_in

PUBLIC = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
PARENTS = {"torch.cuda": "cuda", "torch.cpu": "cpu"}
BUILTIN_FAILURES = ("ImportError", "ModuleNotFoundError", "AttributeError", "Exception")


def move_imports(
    project: Project, module: Module, kept: Mapping[Binding, str], used: Collection[Binding | None], output: Output
) -> None:
    """Rewrite the import statements of one file whose names no longer need the deprecated modules.

    `kept` says which names must stay, and why; `used`, through which the program uses something. An import that nothing uses
    warns of nothing: it stays where nothing else of the file is written, and where a torch may come that has no `torch.amp`.
    """
    if "amp" not in module.text:
        return
    edits = output.edit(module)
    untouched = not edits
    for scope in module.scopes.values():
        for stmt in _imports(scope):
            if edits.gone(stmt) or stmt in edits.statements:
                continue
            if _is_idle(project, scope, stmt, used) and (
                untouched or lets_older_in(project, module, stmt, edits, "autocast")
            ):
                continue
            if _served_only_amp(module, scope, stmt, output):
                edits.delete(stmt)
            elif isinstance(stmt, ast.ImportFrom):
                _from(module, scope, stmt, kept, output)
            else:
                _plain(module, scope, stmt, kept, output)


def _served_only_amp(module: Module, scope: Scope, stmt: ast.Import | ast.ImportFrom, output: Output) -> bool:
    """Whether an import of torch.cuda itself (`from torch import cuda`) has lost all its uses to `cuda.amp`."""
    (alias, *more) = stmt.names
    name = alias.asname or alias.name
    if more or scope.imports.get(name) not in PARENTS or len(scope.bindings[name]) > 1:
        return False
    edits = output.edit(module)
    uses = [n for n in walk(module.tree) if isinstance(n, ast.Name) and n.id == name]
    return bool(uses) and all(edits.gone(use) for use in uses)


def _is_idle(
    project: Project, scope: Scope, stmt: ast.Import | ast.ImportFrom, used: Collection[Binding | None]
) -> bool:
    """Whether nothing in the project reads a name that an import binds."""
    module, names = (
        scope.module,
        [a.asname or a.name for a in stmt.names if a.asname or isinstance(stmt, ast.ImportFrom)],
    )
    if len(names) < len(stmt.names) or STAR in names or not any(home(scope.imports.get(n, "")) for n in names):
        return False
    return not any(
        module.loads.get(n) or {Binding(scope, n), Binding(module.root, n)} & {*used} or project.hands_on(module, n)
        for n in names
    )


def _imports(scope: Scope) -> list[ast.Import | ast.ImportFrom]:
    found: list[ast.Import | ast.ImportFrom] = []
    stack: list[ast.AST] = list(scope.body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append(node)
        elif not isinstance(node, (*FUNCTION_NODES, ast.ClassDef, ast.expr)):
            stack.extend(children(node))
    return sorted(found, key=lambda stmt: stmt.lineno)


def _moves(scope: Scope, bound: str, target: str, kept: Mapping[Binding, str]) -> bool:
    """Whether a bound name may stand for another module: it is the deprecated one's, and no use of it must stay."""
    owner = scope.module.root if bound in scope.outer else scope
    binding = Binding(owner, bound)
    if binding in kept or any(t.startswith(("torch.amp", "torch.autocast")) for t in import_targets(binding)):
        return False
    return owner.imports.get(bound) == target


def _from(module: Module, scope: Scope, stmt: ast.ImportFrom, kept: Mapping[Binding, str], output: Output) -> None:
    base = stmt.module or ""
    if stmt.level or not (home(base) or base in PARENTS):
        return
    groups: dict[str, list[ast.alias]] = {}
    for alias in stmt.names:
        if alias.name == STAR:
            moves = base in HOMES and Binding(module.root, STAR) not in kept
        else:
            moves = _moves(scope, alias.asname or alias.name, f"{base}.{alias.name}", kept)
        new = _new_home(base, alias.name) if moves else None
        groups.setdefault(new or base, []).append(alias)
    if set(groups) == {base}:
        return
    edits = output.edit(module)
    source = module.source(stmt)
    pattern = rf"(from\s+){re.escape(base)}(\s+import\b)"
    if len(groups) == 1 and re.match(pattern, source):
        (new,) = groups
        edits.replace(stmt, re.sub(pattern, rf"\g<1>{new}\g<2>", source, count=1))
    else:
        edits.replace(stmt, *(ast.unparse(ast.ImportFrom(base, names, 0)) for base, names in groups.items()))
    _reported(module, stmt, base, output)
    _fallback(module, scope, stmt, output)


def _new_home(base: str, name: str) -> str | None:
    """The module that has a name of a deprecated one; None where none does."""
    if base in PARENTS:
        return "torch" if name == "amp" else None
    device = HOMES[home(base) or ""]
    if base in HOMES and (name == STAR or name in SUBMODULES):
        return "torch.amp"
    if name not in EXPORTS[device]:
        return None
    if name in PUBLIC:
        return "torch.amp"
    return {"_cast": "torch.amp.autocast_mode", "OptState": "torch.amp.grad_scaler"}[name]


def _plain(module: Module, scope: Scope, stmt: ast.Import, kept: Mapping[Binding, str], output: Output) -> None:
    names: list[str] = []
    for alias in stmt.names:
        base = home(alias.name)
        if base is None or (alias.asname and not _moves(scope, alias.asname, alias.name, kept)):
            names.append(ast.unparse(alias))
        elif alias.asname:
            names.append(f"torch.amp{alias.name[len(base) :]} as {alias.asname}")
        elif not _torch_anyway(scope, stmt):
            guarded = any(isinstance(a, ast.Try) for a in module.ancestors(stmt))
            names.append("torch.amp" if guarded else "torch")
    names = list(dict.fromkeys(names))
    if names == [ast.unparse(alias) for alias in stmt.names]:
        return
    edits = output.edit(module)
    if names:
        edits.replace(stmt, f"import {', '.join(names)}")
    else:
        edits.delete(stmt)
    base = next(home(a.name) or "" for a in stmt.names if home(a.name))
    _reported(module, stmt, base, output)
    _fallback(module, scope, stmt, output)


def _torch_anyway(scope: Scope, stmt: ast.Import) -> bool:
    """Whether torch is imported above without this statement."""
    if any(alias.name == "torch" and not alias.asname for alias in stmt.names):
        return True
    for outer in scope.chain():
        for binding in outer.bindings.get("torch", ()):
            if binding is stmt or not isinstance(binding, ast.Import) or not any(binding is s for s in outer.body):
                continue
            others = [a for a in binding.names if a.name.split(".")[0] == "torch" and not a.asname]
            if any(home(a.name) is None for a in others) and (outer is not scope or binding.lineno < stmt.lineno):
                return True
    return False


def _reported(module: Module, stmt: ast.stmt, base: str, output: Output) -> None:
    construct = base if home(base) else f"{base}.amp"
    output.note(module, stmt, "AMP904", construct, "imported from torch.amp", "as-is")


# -- fallbacks for a torch without AMP -------------------------------------------------------------------------------


def _fallback(module: Module, scope: Scope, stmt: ast.Import | ast.ImportFrom, output: Output) -> None:
    """A stand-in for torch without AMP takes the old arguments: it goes, or is pointed out."""
    names = {a.asname or a.name for a in stmt.names if a.asname or isinstance(stmt, ast.ImportFrom)}
    guard = next((a for a in module.ancestors(stmt) if isinstance(a, ast.Try)), None)
    stand_ins = [
        b
        for name in names
        for b in scope.bindings.get(name, ())
        if b is not stmt and isinstance(b, (*FUNCTION_NODES, ast.ClassDef, ast.Import, ast.ImportFrom))
        if not module.is_replaced(b, name)
    ]
    if not stand_ins:
        return
    edits = output.edit(module)
    if guard is not None and guard not in edits.statements and _only_stands_in(module, guard, names, stand_ins):
        edits.splice(guard, "body")
        output.note(module, guard, "AMP904", "torch.cuda.amp", "the stand-in for torch without AMP is gone")
        return
    for stand_in in stand_ins:
        if not edits.gone(stand_in):
            output.note(
                module,
                stand_in,
                "AMP904",
                "torch.cuda.amp",
                "this stand-in does not take the device type that calls pass",
            )


def _only_stands_in(module: Module, guard: ast.Try, names: set[str], stand_ins: Sequence[ast.AST]) -> bool:
    """Whether a try imports AMP and its handlers do nothing but define stand-ins for the imported names."""
    if guard.orelse or guard.finalbody or not all(_imports_or_flags(s) for s in guard.body):
        return False
    bound = names | {
        t.id for s in guard.body if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)
    }
    for handler in guard.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type] if handler.type else []
        if not all(isinstance(k, ast.Name) and k.id in BUILTIN_FAILURES for k in kinds):
            return False
        if not all(_binds_only(s, bound) for s in handler.body) or _needed_elsewhere(module, handler, bound):
            return False
    return all(any(a is guard for a in module.ancestors(b)) for b in stand_ins)


def _imports_or_flags(stmt: ast.stmt) -> bool:
    return isinstance(stmt, (ast.Import, ast.ImportFrom)) or (
        isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Constant)
    )


def _binds_only(stmt: ast.stmt, names: set[str]) -> bool:
    if isinstance(stmt, (*FUNCTION_NODES, ast.ClassDef)):
        return stmt.name in names
    if isinstance(stmt, ast.Assign):
        return all(isinstance(t, ast.Name) and t.id in names for t in stmt.targets)
    if isinstance(stmt, (ast.Import, ast.ImportFrom)):
        return True  # what the stand-in is made of
    return isinstance(stmt, ast.Pass) or (
        isinstance(stmt, ast.Expr) and isinstance(stmt.value, (ast.Call, ast.Constant))
    )


def _needed_elsewhere(module: Module, handler: ast.ExceptHandler, names: set[str]) -> bool:
    """Whether a handler imports something that code outside of it uses."""
    made_of = {
        alias.asname or alias.name.split(".")[0]
        for stmt in handler.body
        if isinstance(stmt, (ast.Import, ast.ImportFrom))
        for alias in stmt.names
    } - names
    return any(
        isinstance(node, ast.Name) and node.id in made_of and not any(a is handler for a in module.ancestors(node))
        for node in walk(module.tree)
    )
