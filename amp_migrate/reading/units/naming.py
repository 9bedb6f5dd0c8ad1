"""Names that a migration introduces: never one that the program has.

`scaler` is a common name: of scikit-learn's, of an option, of a key in a checkpoint. A name is taken if any file that
imports tie to the unit says it in any role, for what a bare name, an attribute, a keyword or a string in one file comes to
in another (`import *`, `**kwargs`, `getattr`, a base class, a namespace of options) is only known at run time.
"""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Callable, Collection, Iterable

from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.units.native_scalers import NativeScalers, meets
from amp_migrate.reading.units.native_switches import NativeSwitches, says_itself
from amp_migrate.reading.units.unit import Unit


def words(project: Project, module: Module) -> frozenset[str]:
    """Everything a file says that may name something: names, parameters, attributes, keywords, imports, strings. What is
    only told to Apex goes with it; the names of GradScalers and of switches are asked
    for apart."""
    found: set[str] = set()
    native = project.once(NativeScalers, module).nodes | project.once(NativeSwitches, module).nodes
    told = {k for call, _ in module.calls if _is_of_apex(project, module, call) for k in call.keywords}
    for node in module.nodes:
        if node in native:
            continue
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.arg) or (isinstance(node, ast.keyword) and node not in told):
            found.add(node.arg or "")
        elif isinstance(node, (*FUNCTION_NODES, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(part for a in node.names for part in (a.asname or a.name).split("."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update((node.value, node.value.lstrip("-").replace("-", "_")))  # `--grad-scaler`: args.grad_scaler
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            found.update(node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            found.add(node.name or "")
        elif isinstance(node, ast.MatchMapping):
            found.add(node.rest or "")
    return frozenset(found)


def _is_of_apex(project: Project, module: Module, call: ast.Call) -> bool:
    return bool(call.keywords) and (project.qualify(module, call.func) or "").startswith("apex.")


def is_taken(unit: Unit, name: str) -> bool:
    """Whether the program that a unit belongs to has a name already."""
    if hasattr(builtins, name) or says_itself(unit, name):
        return True
    # Of a name written `--grad-scaler` the text holds another spelling.
    spellings = (name, name.replace("_", "-"))
    return any(
        name in unit.project.once(words, module) or meets(unit, module, name)
        for module in unit.tied
        if any(spelling in module.text for spelling in spellings)
    )


def free(unit: Unit, candidates: Iterable[str]) -> str:
    """The first name of some that the program does not have; the last with a number if it has them all."""
    last = ""
    for last in candidates:
        if not is_taken(unit, last):
            return last
    return _numbered(last, lambda name: is_taken(unit, name))


def _numbered(name: str, taken: Callable[[str], bool]) -> str:
    return next(n for i in itertools.count(2) if not taken(n := f"{name}_{i}"))


def unbound(scope: Scope, candidates: Iterable[str], but: str | None = None) -> str:
    """The first name of some that nothing in sight of a scope has, for a value used in that scope alone; `but`: one that
    goes."""
    reads, name = scope.module.loads, ""
    for name in candidates:
        seen = scope.lookup(name) is not None or name in scope.outer or hasattr(builtins, name)
        starred = any(scope.module.scope_of(n).lookup(name) is None for n in reads.get(name, ()))
        if name == but or not (seen or starred):
            return name
    return _numbered(name, lambda n: scope.lookup(n) is not None or n in reads)


def scaler_stem(unit: Unit, suffixes: Iterable[str], others: Collection[str]) -> str:
    """What the scalers of a unit are called, whatever follows for each: `scaler`, unless the program has one, or is given
    `others` of that name."""
    ends = list(suffixes) or [""]
    stems = ("scaler", "grad_scaler", "amp_scaler", "torch_scaler", "native_amp_scaler")
    for stem in stems:
        if not any(is_taken(unit, f"{stem}{end}") or f"{stem}{end}" in others for end in ends):
            return stem
    return _numbered(stems[-1], lambda name: name in others)
