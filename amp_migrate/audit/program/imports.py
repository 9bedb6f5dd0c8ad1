"""The files of a program in one state, and what imports say that a name is."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath

from amp_migrate.audit.kept import kept, kept_meanwhile
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.program.named_again import is_made_again, made_by_then
from amp_migrate.audit.program.taken import only_in, outer_names

EXTERNAL = ("apex", "torch")
_OUTSIDE = ("apex.", "torch.")  # nothing of the program's own
# What `from apex.amp import *` brings: what these packages say in their documentation that they have.
STARRED = {
    "apex.amp": frozenset(
        "initialize scale_loss master_params state_dict load_state_dict disable_casts init half_function float_function "
        "promote_function register_half_function register_float_function register_promote_function".split()
    ),
    "apex.parallel": frozenset(
        "DistributedDataParallel Reducer SyncBatchNorm convert_syncbn_model create_syncbn_process_group".split()
    ),
    "apex.optimizers": frozenset("FusedAdam FusedSGD FusedLAMB FusedNovoGrad FusedAdagrad".split()),
    "apex.normalization": frozenset("FusedLayerNorm MixedFusedLayerNorm FusedRMSNorm MixedFusedRMSNorm".split()),
    "apex.fp16_utils": frozenset(
        "FP16_Optimizer FP16Model network_to_half convert_network convert_module BN_convert_float prep_param_lists "
        "model_grads_to_master_grads master_params_to_model_params tofp16 to_python_float clip_grad_norm LossScaler "
        "DynamicLossScaler".split()
    ),
}
_CASTING = frozenset("autocast GradScaler custom_fwd custom_bwd".split())
# What tells packages apart that are imported under one name.
_HAVING = {**STARRED, "torch.amp": _CASTING, "torch.cuda.amp": _CASTING}
_TELLING = frozenset[str]().union(*_HAVING.values())


class Imports:
    """All files of a project in one state, and what names mean that imports brought. A file is parsed when asked of."""

    def __init__(
        self,
        texts: Mapping[str, str],
        known: Mapping[str, Module] | None = None,
        trees: Mapping[str, ast.Module] | None = None,
        above: Sequence[str] = (),
    ) -> None:
        """`above`: the names of the folders that the project lies in, the outermost first."""
        self.above = above
        self.modules: dict[str, Module] = {}
        names = _names(texts)
        for path, text in texts.items():
            module = (known or {}).get(path)
            if module is None or module.text != text:
                module = Module(path, names[path], text)
                if trees and path in trees:
                    module.__dict__["tree"] = trees[path]
            self.modules[path] = module
        self.by_name: dict[str, list[Module]] = {}
        scripts = {m.name for m in self.modules.values() if not m.path.endswith(".ipynb")}
        for module in self.modules.values():
            if module.path.endswith(".ipynb") and module.name in scripts:
                continue  # what is imported by the name that both have is no notebook
            parts = module.name.split(".")
            for i in range(len(parts)):  # a script's folder is on its path: `import utils` may mean pkg/utils.py
                self.by_name.setdefault(".".join(parts[i:]), []).append(module)

    def having(self, name: str) -> Sequence[Module]:
        """The files in which a name is written, in the program's order."""
        return self._by_word.get(name, ())

    @cached_property
    def _by_word(self) -> dict[str, list[Module]]:
        found: dict[str, list[Module]] = {}
        for module in self.modules.values():
            for word in module.words:
                found.setdefault(word, []).append(module)
        return found

    @kept
    def spelled(self, name: str) -> frozenset[str]:
        """A name, and the others that files give to what is called so: what those write that import it from them."""
        return frozenset((name,)).union(*(m.aliases.get(name, ()) for m in self.having(name)))

    def using(self, names: Iterable[str]) -> list[Module]:
        """The files that may use something with one of these full names, whatever file they have it from."""
        words = {word for last in {name.rpartition(".")[2] for name in names} for word in self.spelled(last)}
        found = {m for word in words for m in self.having(word)}
        return [m for m in self.modules.values() if m in found]

    @kept_meanwhile(lambda: None)
    def module_named(self, dotted: str, seen_from: Module) -> Module | None:
        """The file that an absolute import means: the one nearest to the file that imports."""
        return self._home(dotted, seen_from) or self._renamed(dotted, seen_from) or self._from_above(dotted, seen_from)

    def _from_above(self, dotted: str, seen_from: Module) -> Module | None:
        """A file that is named by way of the folder around the project: `import checkout.utils`."""
        parts = dotted.split(".")
        for place, folder in enumerate(self.above):
            between = list(self.above[place + 1 :])
            inner = ".".join(parts[1 + len(between) :])
            if folder == parts[0] and inner and parts[1 : 1 + len(between)] == between:
                found = [m for m in self.by_name.get(inner, []) if m.name == inner and m is not seen_from]
                if found:
                    return found[0]
        first, rest = parts[0], ".".join(parts[1:])
        own = self.by_name.get(rest, ()) if first not in EXTERNAL and first in self._outer else ()
        return next((m for m in own if m.name == rest and m is not seen_from), None)

    @cached_property
    def _outer(self) -> frozenset[str]:
        return outer_names(list(self.modules.values()))

    def _renamed(self, dotted: str, seen_from: Module) -> Module | None:
        """A file that a package gives another name: `from package import pipeline_v2 as pipeline` in its `__init__`."""
        parent, _, last = dotted.rpartition(".")
        package = self.module_named(parent, seen_from) if parent else None
        if package is None or not package.path.endswith("__init__.py") or last not in package.words:
            return None
        for node in package.top.bindings.get(last, ()):
            if isinstance(node, ast.ImportFrom):
                further = self._imported(package, last, node)
                if further is not None and further != dotted:
                    return self.module_named(further, package)
        return None

    def _home(self, dotted: str, seen_from: Module) -> Module | None:
        if dotted.partition(".")[0] in EXTERNAL:
            return None  # an adapter of the program's own is often called so (`engines/apex.py`)
        found = [m for m in self.by_name.get(dotted, []) if m is not seen_from]
        if len(found) <= 1:
            return found[0] if found else None
        exact = [m for m in found if m.name == dotted]
        folder = seen_from.name.rpartition(".")[0]
        beside = [m for m in found if m.name == (f"{folder}.{dotted}" if folder else dotted)]
        if exact and (self._is_part_of_package(seen_from) or (beside and only_in(exact[0], beside[0], seen_from))):
            return exact[0]
        if not beside and not exact:  # a tree of its own is run from within: the copy in the nearest folder above
            above = (folder.rsplit(".", n)[0] for n in range(1, folder.count(".") + 1))
            beside = [m for name in above for m in found if m.name == f"{name}.{dotted}"]
        return (beside or exact or sorted(found, key=lambda m: (len(m.name), m.path)))[0]

    @kept_meanwhile(lambda: True)  # files that import one another
    def _is_part_of_package(self, module: Module) -> bool:
        """Whether a file is loaded as a part of a package, which finds the top of the project first: no script, and none that
        such a file beside it imports by its bare name, for the folder of a script is looked in first."""
        folder, _, file = module.path.rpartition("/")
        if not folder or f"{folder}/__init__.py" not in self.modules or "__main__" in module.text:
            return False
        own = file.rpartition(".")[0]
        beside = (m for m in self.having(own) if m.path.rpartition("/")[0] == folder and own in _imported_whole(m))
        return all(self._is_part_of_package(m) for m in beside if m is not module)

    @kept
    def dotted(self, scope: Scope, expr: ast.expr) -> str | None:
        """The full external name of an expression (`torch.nn.functional.softmax`), through whatever files of the program
        hand it on. What the program has itself is called as in `imported`."""
        name = self.imported(scope, expr)
        outside = name is None or name.startswith(_OUTSIDE)
        return name if name is None or outside else self._outside(name, scope.module) or name

    def imported(self, scope: Scope, expr: ast.expr) -> str | None:
        """The full name of an expression as the imports of its own file give it, which may lead to another file; else None."""
        root: ast.expr = expr
        while type(root) is ast.Attribute:
            root = root.value
        if type(root) is ast.Name:
            attribute = scope.module.parents.get(root) if root is not expr else None
            asked = attribute.attr if isinstance(attribute, ast.Attribute) else ""
            name = self._having(scope, root.id, asked) if asked in _TELLING else None
            name = name or self._named_in_full(scope, root.id)
        elif type(root) is ast.Call:
            name = self._by_call(scope, root)
        else:
            return None
        if name is not None and isinstance(root, ast.Name) and self.made(scope, root):
            return None
        return name if name is None or root is expr else name + syntax.text(expr)[len(syntax.text(root)) :]

    @staticmethod
    def made(scope: Scope, expr: ast.Name) -> bool:
        """Whether a name that stood for a class is by then what that made."""
        found = scope.binder(expr.id)
        return found is not None and is_made_again(found, expr.id) and made_by_then(found, expr)

    def _by_call(self, scope: Scope, call: ast.Call) -> str | None:
        """The module that a call with its name imports: `importlib.import_module("apex.amp")`."""
        name = call.args[0].value if len(call.args) == 1 and isinstance(call.args[0], ast.Constant) else None
        if not isinstance(name, str) or not isinstance(call.func, (ast.Name, ast.Attribute)):
            return None
        if isinstance(call.func, ast.Name) and call.func.id == "__import__":
            return name.partition(".")[0]
        return name if self.imported(scope, call.func) == "importlib.import_module" else None

    @kept_meanwhile(lambda: None)  # `a = b.c; b = a.d` ends
    def _named_in_full(self, scope: Scope, name: str) -> str | None:
        found = scope.binder(name) or scope.module.top
        if found is not scope:
            return self._named_in_full(found, name)
        nodes = found.bindings.get(name)
        return self._given(found, name, nodes) if nodes else self._star(scope.module, name)

    @kept
    def _having(self, scope: Scope, name: str, asked: str) -> str | None:
        """Which of the packages that a name is imported from under conditions has what is asked of it; None where it is
        imported from one, or where that does not tell: `amp.initialize` is Apex's, `amp.autocast` torch's."""
        found = scope.binder(name) or scope.module.top
        nodes = _below_anew(found, found.bindings.get(name, ()))
        full = dict.fromkeys(f for n in nodes if (f := self._imported(scope.module, name, n)) is not None)
        having = [f for f in full if asked in _HAVING.get(f, ())]
        return having[0] if len(full) > 1 and len(having) == 1 else None

    def _given(self, scope: Scope, name: str, nodes: Sequence[ast.AST]) -> str | None:
        """The full name that one of these statements gives a name by an import, or by an alias where all are such."""
        for node in _below_anew(scope, nodes):
            full = self._imported(scope.module, name, node)
            if full is not None:
                return full
        aliases = [_alias(node, name) for node in nodes]
        if scope is scope.module.top:  # `amp = None` before it is known whether there is one
            aliases = [a for a, node in zip(aliases, nodes, strict=True) if not _is_none(node)]
        elif any(isinstance(a, ast.Name) for a in aliases):
            return None
        known = [self.imported(scope, value) for value in aliases if value is not None]
        return known[0] if known and len(known) == len(aliases) else None

    def _star(self, module: Module, name: str) -> str | None:
        """The full name of what only `from x import *` can have brought: of a file that has it, else of Apex."""
        for node in reversed(module.stars):
            base = self._base(module, node)
            home = self.module_named(base, module)
            if home is not None and self._brings(home, name, {module}):
                return f"{base}.{name}"
        for base in (self._base(m, node) for m in (module, *self.starred_files(module)) for node in m.stars):
            if name in STARRED.get(base, ()):
                return f"{base}.{name}"
        return None

    def starred_from_afar(self, scope: Scope, expr: ast.expr) -> bool:
        """Whether a name is bound nowhere, and may come from outside of the program by `from x import *`."""
        if not isinstance(expr, ast.Name) or hasattr(builtins, expr.id) or scope.binder(expr.id) is not None:
            return False
        files = (scope.module, *self.starred_files(scope.module))
        if any(expr.id in m.top.bindings for m in files):
            return False
        return any(self.module_named(self._base(m, node), m) is None for m in files for node in m.stars)

    def starred_files(self, module: Module) -> list[Module]:
        """The files of which all names come to a file by `from x import *`, by whatever other files."""
        found = [module]
        for m in found:
            homes = (self.module_named(self._base(m, node), m) for node in m.stars)
            found += [h for h in dict.fromkeys(homes) if h is not None and h not in found]
        return found[1:]

    def _brings(self, home: Module, name: str, seen: set[Module]) -> bool:
        if home in seen or not _starred(home, name):
            return False
        if name in home.words and name in home.top.bindings:
            return True
        seen.add(home)
        further = (self.module_named(self._base(home, node), home) for node in home.stars)
        return any(self._brings(other, name, seen) for other in further if other is not None)

    @kept_meanwhile(lambda: None)  # files that import a name from one another
    def _outside(self, name: str, module: Module) -> str | None:
        """What a full name, seen from a file, is outside of the program; None: it is something of the program's own."""
        if name.partition(".")[0] in EXTERNAL:
            return name
        if self.module_named(name, module) is not None:
            return None
        found = self._found(name, module)
        if found is None:
            return name
        return self._outside(found[2], found[0]) if found[2] is not None else None

    def _found(self, name: str, module: Module) -> tuple[Module, str, str | None] | None:
        """The file that a full name leads to, seen from another; the name there; and the full name of what it hands on
        under that, None for what it has itself."""
        parts = name.split(".")
        own: Module | None = None
        for i in range(len(parts) - 1, 0, -1):
            home = self.module_named(".".join(parts[:i]), module)
            if home is None:
                continue
            nodes = _standing(home, parts[i])
            given = self._given(home.top, parts[i], nodes) if nodes else self._star(home, parts[i])
            if given is not None:
                return home, parts[i], ".".join([given, *parts[i + 1 :]])
            if nodes:
                return home, ".".join(parts[i:]), None
            own = own or home
        return (own, name, None) if own is not None else None

    def way(self, scope: Scope, expr: ast.expr) -> list[tuple[Module, str]]:
        """The names at the top of files that an expression stands for: that of its own file, then what it is imported from."""
        name, module = self.imported(scope, expr), scope.module
        found: list[tuple[Module, str]] = []
        if isinstance(expr, ast.Name) and scope.binder(expr.id) is module.top:
            found.append((module, expr.id))
        while name is not None and (further := self._found(name, module)) is not None and further[:2] not in found:
            found.append(further[:2])
            module, name = further[0], further[2]
        return found

    def _imported(self, module: Module, name: str, node: ast.AST) -> str | None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname == name:
                    return alias.name
                if alias.asname is None and alias.name.split(".")[0] == name:
                    return name
        if isinstance(node, ast.ImportFrom):
            base = self._base(module, node)
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return f"{base}.{alias.name}" if base else alias.name
        return None

    def _base(self, module: Module, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.name.split(".")
        package = parts if PurePosixPath(module.path).name == "__init__.py" else parts[:-1]
        package = package[: len(package) - (node.level - 1)]
        return ".".join([*package, *([node.module] if node.module else [])])


def _names(texts: Mapping[str, str]) -> dict[str, str]:
    names = {}
    for path in texts:
        parts = list(PurePosixPath(path.replace("\\", "/")).with_suffix("").parts)
        parts = [p for p in parts if p not in ("/", "..", ".")]
        if parts and parts[-1] == "__init__":
            parts = parts[:-1]
        names[path] = ".".join(parts)
    return names


def _starred(module: Module, name: str) -> bool:
    """Whether `from module import *` brings a name that the file has: by `__all__`, as far as that can be read."""
    listed: set[str] = set()
    for node in module.top.bindings.get("__all__", ()):
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) else None
        if not isinstance(value, (ast.List, ast.Tuple)) or not all(isinstance(e, ast.Constant) for e in value.elts):
            return True
        listed.update(e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str))
    if "__all__" not in module.top.bindings:
        return not name.startswith("_")
    return name in listed or "__all__" in module.loads  # `__all__ += other.__all__`, `__all__.append(...)`


def _standing(module: Module, name: str) -> list[ast.AST]:
    """What binds a name of a file once it has run: the last statement that surely does, and those that may follow it."""
    nodes = module.top.bindings.get(name, [])
    sure = [i for i, n in enumerate(nodes) if module.parents.get(n) is module.tree]
    last = sure[-1] if sure else 0
    return [n for i, n in enumerate(nodes) if i >= last or module.scope_of(n) is not module.top]


@kept
def _imported_whole(module: Module) -> frozenset[str]:
    """The full names of the files and packages that a file's absolute imports are of."""
    plain = {a.name for node in syntax.every(module.tree, ast.Import) for a in node.names}
    return frozenset(plain | {n.module for n in syntax.every(module.tree, ast.ImportFrom) if n.module and not n.level})


def _alias(node: ast.AST, name: str) -> ast.Name | ast.Attribute | ast.Call | None:
    """What an assignment calls by another name: `F = torch.nn.functional`, `amp = import_module("apex.amp")`."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        return None
    value = node.value
    imports = isinstance(value, ast.Call) and syntax.text(value.func).endswith(("import_module", "__import__"))
    if not isinstance(value, (ast.Name, ast.Attribute, ast.Call)) or (isinstance(value, ast.Call) and not imports):
        return None
    if not any(isinstance(t, ast.Name) and t.id == name for t in targets):
        return None
    return None if any(n.id == name for n in syntax.every(value, ast.Name)) else value


def _below_anew(scope: Scope, nodes: Sequence[ast.AST]) -> Sequence[ast.AST]:
    """What binds a name from the last import on that stands among the statements of its scope itself: each run comes to that,
    and what bound the name above is gone."""
    parents = scope.module.parents
    anew = [isinstance(n, (ast.Import, ast.ImportFrom)) and parents.get(n) is scope.node for n in nodes]
    return nodes[len(anew) - 1 - anew[::-1].index(True) :] if any(anew) else nodes


def _is_none(node: ast.AST) -> bool:
    """Whether a statement gives a name None, or only says of which type it is."""
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else node
    return value is None or syntax.is_none(value)
