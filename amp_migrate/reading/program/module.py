"""One file: its scopes, its imports, and what a name stands for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from amp_migrate.reading.program.lifted import lifted
from amp_migrate.reading.program.parsed import Parsed
from amp_migrate.reading.program.scope import FUNCTION_NODES as FUNCTION_NODES
from amp_migrate.reading.program.scope import FunctionNode as FunctionNode
from amp_migrate.reading.program.scope import Scope as Scope
from amp_migrate.reading.program.torch_versions import versions
from amp_migrate.reading.program.tree import children, names_called, walk

if TYPE_CHECKING:
    from amp_migrate.reading.program.handed_on import HandedOn

LOOP_NODES = (ast.For, ast.AsyncFor, ast.While)
WITH_NODES = (ast.With, ast.AsyncWith)

# What `from apex.X import *` brings in, of the names programs use; and of other libraries, what stands in for Apex.
STAR_EXPORTS: dict[str, frozenset[str]] = {
    "apex.amp": frozenset(
        "initialize scale_loss disable_casts state_dict load_state_dict master_params init "
        "half_function float_function "
        "promote_function register_half_function register_float_function register_promote_function".split()
    ),
    "apex.fp16_utils": frozenset(
        "FP16_Optimizer network_to_half BN_convert_float prep_param_lists model_grads_to_master_grads "
        "master_params_to_model_params tofp16 to_python_float clip_grad_norm convert_network convert_module "
        "FP16Model LossScaler DynamicLossScaler".split()
    ),
    "apex.parallel": frozenset(
        "DistributedDataParallel Reducer SyncBatchNorm convert_syncbn_model create_syncbn_process_group LARC".split()
    ),
    "apex.optimizers": frozenset("FusedAdam FusedSGD FusedLAMB FusedNovoGrad FusedAdagrad".split()),
    "timm.utils": frozenset(("ApexScaler", "NativeScaler")),
}


_OPENING = (*FUNCTION_NODES, ast.ClassDef)


class _ScopeOf(dict[ast.AST, Scope]):
    """The scopes of nodes; `find` tells those of nodes that came to the file later."""

    def __init__(self, find: Callable[[ast.AST], Scope]) -> None:
        self._find = find

    def __missing__(self, node: ast.AST) -> Scope:
        self[node] = self._find(node)
        return self[node]


class Module(Parsed):
    """A file, parsed once. `meant`: which module of the project an absolute import names here.

    Raises SyntaxError or ValueError where the text does not parse.
    """

    def __init__(
        self, path: Path, text: str, name: str = "", display: str = "", meant: Callable[[str], str] = str
    ) -> None:
        super().__init__(path, text, display)
        self._meant = meant
        self.name = name or path.stem
        self.scopes: dict[ast.AST, Scope] = {}
        self.star_imports: list[str] = []
        self.root = Scope(self.tree, None, self)
        self.scopes[self.tree] = self.root
        self._scope_of = _ScopeOf(self._find_scope)
        self.scope_of: Callable[[ast.AST], Scope] = self._scope_of.__getitem__  # see `_find_scope`
        self.versions = versions(self.tree, text)
        self.never: set[ast.AST] = self.versions.nodes if self.versions is not None else set()  # what no torch comes to
        self.reads: dict[str, dict[Scope | None, list[ast.Name]]] = {}  # see `Scope.reads`
        self._qualified: dict[ast.AST, str | None] = {}
        self._taken: dict[ast.AST, str | None] = {}
        self._handed_on: HandedOn | None = None
        self._anew: dict[tuple[Scope, str], int] = {}  # the lines below which an import of a name is no other's
        self._targets: dict[tuple[Scope, str], dict[ast.stmt, str]] = {}  # by the imports that bind a name
        self._read(self.tree, self.root)
        self.lifted = lifted(self)  # names that one function imports, and the whole file is meant to have
        for bound, scope in self.lifted.items():
            for node in [*self._targets.get((scope, bound), ())]:
                self._declare_outer(scope, node, bound)

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    # -- building ------------------------------------------------------------------------------------------------

    def _read(self, node: ast.AST, scope: Scope) -> None:
        """Fill parents, scopes and bindings below `node`, without recursion (generated files nest deeply)."""
        parents, nodes, scope_of = self.parents, self.nodes, self._scope_of
        stack: list[tuple[ast.AST, Scope, Scope]] = [(node, scope, scope)]  # each with what it binds in, and stands in
        while stack:
            parent, current, stands = stack.pop()
            function = isinstance(parent, FUNCTION_NODES)
            for child in children(parent):
                parents[child] = parent
                nodes.append(child)
                # Decorators, defaults and annotations are evaluated outside the function.
                outside = function and not isinstance(child, (ast.stmt, ast.arguments))
                within = scope_of[child] = scope_of[parent] if outside else stands
                kind = child.__class__
                if kind is ast.Constant or kind is ast.Attribute or kind is ast.Call or kind is ast.keyword:
                    if kind is not ast.Constant:
                        stack.append((child, current, within))
                    continue
                inner = current
                if isinstance(child, _OPENING):
                    current.bindings.setdefault(child.name, []).append(child)
                    inner = Scope(child, current, self)
                    self.scopes[child] = inner
                    if not isinstance(child, ast.ClassDef):
                        self._parameters(child, inner)
                    within = inner
                else:
                    self._bind(child, current)
                stack.append((child, inner, within))

    def _parameters(self, node: FunctionNode, scope: Scope) -> None:
        a = node.args
        for arg in [*a.posonlyargs, *a.args, *([a.vararg] if a.vararg else []), *a.kwonlyargs]:
            scope.params.append(arg.arg)
            scope.bindings.setdefault(arg.arg, []).append(arg)
        if a.kwarg:
            scope.bindings.setdefault(a.kwarg.arg, []).append(a.kwarg)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                target = self.absolute(alias.name if alias.asname else bound)
                self._bind_import(scope, bound, target, node)
        elif isinstance(node, ast.ImportFrom):
            base = self.import_base(node)
            for alias in node.names:
                if alias.name == "*":
                    self.star_imports.append(base)
                else:
                    self._bind_import(scope, alias.asname or alias.name, f"{base}.{alias.name}", node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            self._owner(scope, node.id).bindings.setdefault(node.id, []).append(node)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            scope.bindings.setdefault(node.name, []).append(node)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            for name in node.names if not scope.is_module else ():  # in the file's own code it says nothing
                self._declare_outer(scope, node, name)
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            scope.bindings.setdefault(node.name, []).append(node)

    def _owner(self, scope: Scope, name: str) -> Scope:
        return self.root if name in scope.outer else scope

    def _declare_outer(self, scope: Scope, node: ast.stmt, name: str) -> None:
        """`global amp`, wherever it stands: imports that came before it, as Python allows, bind the name there, too."""
        scope.outer.add(name)
        before = [n for n in scope.bindings.get(name, ()) if getattr(n, "lineno", 0) <= node.lineno]
        if not before or len(before) < len(scope.bindings[name]):
            return
        targets = self._targets.pop((scope, name), {})
        scope.imports.pop(name, None)
        for bound in scope.bindings.pop(name):
            if bound in targets and isinstance(bound, (ast.Import, ast.ImportFrom)):
                self._bind_import(scope, name, targets[bound], bound)
            else:
                self.root.bindings.setdefault(name, []).append(bound)

    def _bind_import(self, scope: Scope, bound: str, target: str, node: ast.Import | ast.ImportFrom) -> None:
        owner = self._owner(scope, bound)
        owner.bindings.setdefault(bound, []).append(node)
        if node in self.never:
            return
        self._targets.setdefault((owner, bound), {})[node] = target
        # What each run comes to binds the name anew. Of guarded imports under one name an Apex one is the one that matters.
        anew = self._anew.get((owner, bound), 0)
        if self.parents[node] is owner.node:
            self._anew[owner, bound] = node.lineno
        elif node.lineno < anew or (bound in owner.imports and target.split(".")[0] != "apex"):
            return
        owner.imports[bound] = target

    def import_base(self, node: ast.ImportFrom) -> str:
        """The dotted name of the module that `from ... import` names, relative ones resolved."""
        if not node.level:
            return self.absolute(node.module or "")
        parts = self.package.split(".") if self.package else []
        parts = parts[: len(parts) - (node.level - 1)]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def absolute(self, name: str) -> str:
        """The module that an absolute import means by a dotted name."""
        return self._meant(name)

    # -- asking --------------------------------------------------------------------------------------------------

    def is_self(self, node: ast.AST) -> bool:
        """Whether an expression is the object whose method it stands in."""
        return isinstance(node, ast.Name) and node.id == self.scope_of(node).self_name

    def _find_scope(self, node: ast.AST) -> Scope:
        """The scope whose body holds a node (for a function definition: the scope it is defined in)."""
        current = self.parents.get(node)
        child = node
        while current is not None:
            if current in self.scopes:
                scope = self.scopes[current]
                # Decorators, defaults and annotations are evaluated outside the function.
                if isinstance(current, FUNCTION_NODES) and not isinstance(child, (ast.stmt, ast.arguments)):
                    return self.scope_of(current)
                return scope
            child, current = current, self.parents.get(current)
        return self.root

    @cached_property
    def imported(self) -> list[tuple[str, str]]:
        """Every name that an import binds, in any scope, and what it stands for."""
        return [pair for scope in self.scopes.values() for pair in scope.imports.items()]

    @cached_property
    def calls(self) -> list[tuple[ast.Call, Scope]]:
        """Every call with the scope it stands in."""
        return [(n, self.scope_of(n)) for n in self.of(ast.Call)]

    def calls_in(self, scope: Scope) -> list[ast.Call]:
        """The calls that stand in a scope."""
        return self._calls_in.get(scope, [])

    @cached_property
    def _calls_in(self) -> dict[Scope, list[ast.Call]]:
        found: dict[Scope, list[ast.Call]] = {}
        for call, scope in self.calls:
            found.setdefault(scope, []).append(call)
        return found

    def calls_naming(self, names: Iterable[str]) -> list[tuple[ast.Call, Scope]]:
        """Calls with one of some names in their function or first argument, as they follow each other."""
        return [self.calls[i] for i in sorted({i for name in names for i in self._naming.get(name, ())})]

    @cached_property
    def _naming(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for index, (call, _) in enumerate(self.calls):
            for name in names_called(call):
                found.setdefault(name, []).append(index)
        return found

    @cached_property
    def method_calls(self) -> dict[str, list[tuple[ast.Call, ast.Attribute]]]:
        """Calls of each method or dotted name, by its last part."""
        found: dict[str, list[tuple[ast.Call, ast.Attribute]]] = {}
        for call, _ in self.calls:
            if isinstance(call.func, ast.Attribute):
                found.setdefault(call.func.attr, []).append((call, call.func))
        return found

    def follow(self, handed_on: HandedOn) -> None:
        """From now on names are those that other files of the program hand on."""
        self._handed_on = handed_on
        self._qualified.clear()
        self._taken.clear()

    def qualify(self, node: ast.AST) -> str | None:
        """The dotted name that an expression stands for through imports, such as `apex.amp.scale_loss`, and through the
        program's own files that hand it on; else None."""
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
            return None
        if node not in self._qualified:
            name = self.taken(node)
            self._qualified[node] = name if name is None or self._handed_on is None else self._handed_on.meaning(name)
        return self._qualified[node]

    def taken(self, node: ast.Name | ast.Attribute | ast.Call) -> str | None:
        """The dotted name of an expression as the imports of this file say it: `utils.amp.scale_loss`."""
        if node not in self._taken:
            self._taken[node] = self._take(node)
        return self._taken[node]

    def _take(self, node: ast.Name | ast.Attribute | ast.Call) -> str | None:
        if isinstance(node, ast.Name):
            above = self.import_above(node)
            return self.qualify_name(node.id, self.scope_of(node)) if above is None else above[1]
        if isinstance(node, ast.Call):
            return self._imported_by(node)
        base = self.taken(node.value) if isinstance(node.value, (ast.Name, ast.Attribute, ast.Call)) else None
        return f"{base}.{node.attr}" if base else None

    def import_above(self, name: ast.Name) -> tuple[ast.stmt, str] | None:
        """The import in the branch of a name that binds it there, and to what, where branches import it from several places."""
        owner = self.scope_of(name).lookup(name.id)
        targets = self._targets.get((owner, name.id), {}) if owner is not None else {}
        if len({*targets.values()}) < 2:
            return None
        for _, above in self.above(name, self.scopes):
            bound = [s for s in above if s in targets]
            if bound:
                last = bound[-1]
                either = any(t.lineno > last.lineno and self.inside_of(t, above) for t in targets)  # under a condition
                return None if either else (last, targets[last])
        return None

    def is_replaced(self, node: ast.AST, name: str) -> bool:
        """Whether an import below binds the name anew, in each run, that one binds."""
        owner = self._owner(self.scope_of(node), name)
        return getattr(node, "lineno", 0) < self._anew.get((owner, name), 0)

    def _imported_by(self, call: ast.Call) -> str | None:
        """The module that a call imports, by a name that is written there: `importlib.import_module("apex.amp")`."""
        if not call.args or not isinstance(call.args[0], ast.Constant) or not isinstance(call.args[0].value, str):
            return None
        func, name = call.func, call.args[0].value
        if isinstance(func, ast.Name) and func.id == "__import__" and self.scope_of(func).lookup(func.id) is None:
            return name if len(call.args) > 3 else name.partition(".")[0]
        if not isinstance(func, (ast.Name, ast.Attribute)) or len(call.args) > 1:
            return None
        return name if self.taken(func) in ("importlib.import_module", "pytest.importorskip") else None

    def qualify_name(self, name: str, scope: Scope) -> str | None:
        owner = scope.lookup(name)
        if owner is not None:
            own = self._handed_on.stand_ins(self) if owner is self.root and self._handed_on is not None else {}
            return owner.imports.get(name) or own.get(name)
        for base in self.star_imports:
            if name in STAR_EXPORTS.get(base, ()):
                return f"{base}.{name}"
        return self._handed_on.starred(self, name) if self.star_imports and self._handed_on is not None else None

    def meaning(self, name: str, scope: Scope) -> str | None:
        """What a name that is not written in a scope would stand for there, through the program's own files."""
        found = self.qualify_name(name, scope)
        return found if found is None or self._handed_on is None else self._handed_on.meaning(found)

    @cached_property
    def listed(self) -> frozenset[str] | None:
        """The names in `__all__`, which are what `from this import *` brings; None where there is none."""
        values = [
            s.value
            for s in self.tree.body
            if isinstance(s, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in s.targets)
        ]
        strings = (c.value for v in values for c in walk(v) if isinstance(c, ast.Constant))
        return frozenset(c for c in strings if isinstance(c, str)) if values else None
