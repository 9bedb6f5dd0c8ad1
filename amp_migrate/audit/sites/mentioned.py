"""Which definitions of a program a run may come to, by their names: what the files that were set up for Apex, and those that
import them, mention, and what these definitions mention in turn. A vendored library brings many networks that nothing runs.

Errs towards more: a name that a file does not define is one definition wherever it stands, what is decorated may be found in
a registry unless the decorator is seen to keep nothing, and where code looks for names at run time everything may be meant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.near import BY_NAME, IMPORTERS, near_in, runs_itself
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.names import last_name

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed

# Decorators of these keep nothing; the functions only read what they are given.
KEEPING_NOTHING = frozenset("torch functools dataclasses contextlib typing abc numba six".split())
OFFERING = frozenset({"fire", "Fire", "defopt"})  # what makes commands of all that a script defines
FINDING = frozenset("import_string locate instantiate attrgetter".split())  # what gives something by a name of it
NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
READING = frozenset("isinstance getattr hasattr setattr len str repr type wraps update_wrapper join format".split())

Part = tuple[Module, ast.stmt]


class Mentioned:
    """Answers for one state of a program; `starts`: the files that run mixed precision."""

    def __init__(self, program: Program, starts: Iterable[Module]) -> None:
        self.program = program
        near = near_in(program)
        self.starts = sorted(near.leading_to(starts), key=lambda m: m.path)
        files = near.files(self.starts)
        by_name = any(name in m.calls_named for m in files for name in BY_NAME & m.words)
        self.files = list(program.modules.values()) if by_name else files
        # Code that is not here may call what a library defines; what a script does, some code of the program has to name.
        self.scripts = {m for m in self.starts if runs_itself(m) and OFFERING.isdisjoint(m.words)}
        self._followed: set[tuple[str, Module | None]] = set()
        self._seen: set[int] = set()

    def cls(self, cls: Class) -> bool:
        """Whether a run may make an object of a class."""
        return self.definition(cls.qualname)

    def definition(self, qualname: str) -> bool:
        """Whether a run may come to a function or class."""
        return _is_among(qualname, self._names)

    def made_in_sight(self, cls: Class) -> bool:
        """Whether code that is here may make an object of a class, in a run or in what a library offers."""
        return _is_among(cls.qualname, self._names_in_sight)

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names that are mentioned; `*` where any may be."""
        libraries = (m for m in self.starts if m not in self.scripts)
        return self._names_in_sight | self._follow((m, s) for m in libraries for s in m.tree.body)

    @cached_property
    def _names_in_sight(self) -> frozenset[str]:
        """Those that are mentioned without the classes of libraries that nothing here names."""
        kept_there = [(m, s) for m in self.files for s in m.tree.body if self._is_kept(m, s)]
        library = (ast.ClassDef, ast.ImportFrom)
        script = (ast.FunctionDef, ast.AsyncFunctionDef, *library)
        begun = ((m, s, script if m in self.scripts else library) for m in self.starts for s in m.tree.body)
        return self._follow([*kept_there, *((m, s) for m, s, left in begun if not isinstance(s, left))])

    @cached_property
    def _held(self) -> dict[str, list[Part]]:
        """What the files define, and import under a name of their own, by name."""
        held: dict[str, list[Part]] = {}
        for module in self.files:
            for brought in syntax.every(module.tree, ast.ImportFrom):
                for alias in (a.asname for a in brought.names if a.asname is not None):
                    held.setdefault(alias, []).append((module, brought))
            for stmt in module.tree.body:
                for name in _defined(stmt):
                    held.setdefault(name, []).append((module, stmt))
        return held

    def _follow(self, parts: Iterable[Part]) -> frozenset[str]:
        """The names that some parts mention, and what has those names."""
        todo, found, loading = [*parts], set[str](), self.program.loaded.loading
        while todo:
            module, part = todo.pop()
            if id(part) in self._seen:
                continue
            self._seen.add(id(part))
            if isinstance(part, (ast.ClassDef, ast.FunctionDef)):
                found.add(part.name)
            for name, by_itself in self._mentions(module, part, module in loading):
                if name == "*":
                    return frozenset("*")
                if name.endswith(".*"):
                    todo += [(m, s) for m in self.files if name[:-2] in m.name.split(".") for s in m.tree.body]
                    continue
                found.add(name)
                named = self._held.get(name, ())
                own = by_itself and any(m is module for m, _ in named)  # a file's own table, not another's of that name
                key = (name, module if own else None)
                if key not in self._followed and (name, None) not in self._followed:
                    self._followed.add(key)
                    todo += [(m, s) for m, s in named if m is module or not own]
        return frozenset(found)

    def _mentions(self, module: Module, part: ast.AST, loads: bool) -> Iterator[tuple[str, bool]]:
        """The names that code loads or spells out, with whether they stand by themselves; `*` where it finds something by a name
        that is put together, also in files that it `loads`, and `nets.*` where that is something of an import."""
        for node in syntax.walk(part):
            if type(node) is ast.Name:
                yield node.id, True
            elif type(node) is ast.Attribute:
                yield node.attr, False
            elif type(node) is ast.Constant and isinstance(node.value, str) and NAME.fullmatch(node.value):
                yield node.value.rpartition(".")[2], False
            elif type(node) is ast.alias and node.asname is not None:  # `from nets import Net as Backbone`
                yield node.name, False
            elif type(node) is ast.Call and (_looks_up(node, loads) or self._finds(module, node)):
                yield "*", False
            if isinstance(node, (ast.Attribute, ast.Call)) and (holder := _looked_up_in(node)) is not None:
                yield self._any_of(module, holder), False

    def _any_of(self, module: Module, holder: ast.expr) -> str:
        """What is mentioned where something of one is taken by a name that is put together."""
        if isinstance(holder, ast.Subscript) and syntax.last(holder.value) == "modules":  # `sys.modules[__name__]`
            name = module.name if syntax.text(holder.slice) == "__name__" else None
            return "*" if name is None else f"{name.rpartition('.')[2]}.*"
        name = self.program.imported(module.scope_of(holder), holder) or ""
        return f"{name.rpartition('.')[2]}.*"

    def _finds(self, module: Module, call: ast.Call) -> bool:
        """`instantiate(args.model)` of a library's, `locals()[name]`."""
        name, item = last_name(call.func), module.parents.get(call)
        if name in ("locals", "vars"):
            return not call.args and isinstance(item, ast.Subscript) and not isinstance(item.slice, ast.Constant)
        if name not in FINDING or not _is_computed(call):
            return False
        return not self.program.definitions(module.scope_of(call), call.func, guess=False)

    def _is_kept(self, module: Module, stmt: ast.stmt) -> bool:
        """Whether something may keep what a statement defines: a decorator, or what comes by each class of a family."""
        cls = module.class_of.get(stmt) if self._by_families and isinstance(stmt, ast.ClassDef) else None
        family = self.program.family_up(cls) if cls is not None else []
        if any("__init_subclass__" in c.methods for c in family if c is not cls):
            return True
        metaclasses = [(c.module, k.value) for c in family for k in c.node.keywords if k.arg == "metaclass"]
        return any(self._may_keep(m, d) for m, d in [*((module, d) for d in _decorators(stmt)), *metaclasses])

    @cached_property
    def _by_families(self) -> bool:
        return any(not m.words.isdisjoint(("__init_subclass__", "metaclass")) for m in self.files)

    def _may_keep(self, module: Module, decorator: ast.expr) -> bool:
        """Whether a decorator may keep what it stands over where it is found again: `@register`, not `@add_docstring("...")`."""
        func = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = self.program.dotted(module.scope_of(func), func) or syntax.text(func)
        if name.partition(".")[0] in KEEPING_NOTHING or "docstring" in name:
            return False
        found = self.program.definitions(module.scope_of(func), func, guess=False)
        return not found or not all(isinstance(f, Function) and not _keeps(f) for f in found)


@kept
def in_runs(both: Mixed) -> Mentioned:
    """The definitions that a run with mixed precision may come to, before or after a migration."""
    paths = {s.module.path for s in both.removed}
    paths |= {path for path, change in both.review.changes.items() if "autocast" in change.after.text}
    program = both.review.after
    return Mentioned(program, [program.modules[path] for path in sorted(paths) if path in program.modules])


@kept
def in_runs_before(both: Mixed) -> Mentioned:
    """Those of the program before that a run may come to which sets Apex up."""
    return Mentioned(both.review.before, {s.module for s in both.removed})


def in_idle_class(both: Mixed, module: Module, node: ast.AST) -> bool:
    """Whether a place stands in the method of a class of which nothing in sight makes an object, as a copied library has them."""
    function = module.function_around(node)
    owner = function.owner if function is not None else None
    return owner is not None and not in_runs(both).made_in_sight(owner)


@kept
def _keeps(function: Function) -> bool:
    """Whether a function, or one in it, does anything with its arguments but read them and give them back."""
    parents, node = function.module.parents, function.node
    given = {a.arg for n in syntax.walk(node) if isinstance(n, ast.arguments) for a in _arguments(n)}
    for use in syntax.walk(node):
        if not isinstance(use, ast.Name) or use.id not in given or not isinstance(use.ctx, ast.Load):
            continue
        parent = parents.get(use)
        if isinstance(parent, ast.Call) and use is not parent.func and last_name(parent.func) in READING:
            continue
        if not isinstance(parent, (ast.Attribute, ast.Return, ast.Compare, ast.JoinedStr, ast.FormattedValue, ast.If)):
            return True
    return False


def _arguments(given: ast.arguments) -> list[ast.arg]:
    more = [a for a in (given.vararg, given.kwarg) if a is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *more]


def _is_among(qualname: str, names: frozenset[str]) -> bool:
    return "*" in names or qualname.split(".")[0] in names


def _decorators(stmt: ast.stmt) -> list[ast.expr]:
    return stmt.decorator_list if isinstance(stmt, (ast.ClassDef, ast.FunctionDef)) else []


def _defined(stmt: ast.stmt) -> Iterator[str]:
    if isinstance(stmt, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield stmt.name
    for target in stmt.targets if isinstance(stmt, ast.Assign) else ():
        if isinstance(target, ast.Name):
            yield target.id


def _looks_up(call: ast.Call, loads: bool) -> bool:
    """`getattr(nets, args.model)(...)`, `globals()[name]`, `import_module("nets." + name)`."""
    func = call.func
    if isinstance(func, ast.Call):
        return getattr(func.func, "id", "") == "getattr" and not isinstance(func.args[-1], ast.Constant)
    if isinstance(func, ast.Name) and func.id in ("globals", "eval", "exec"):
        return not call.args or not isinstance(call.args[0], ast.Constant)
    name = func.id if isinstance(func, ast.Name) else getattr(func, "attr", "")
    if name in ("__subclasses__", "getmembers"):
        return True
    return loads and name in IMPORTERS and _is_computed(call)


def _is_computed(call: ast.Call) -> bool:
    return bool(call.args) and not isinstance(call.args[0], ast.Constant)


def _looked_up_in(node: ast.Attribute | ast.Call) -> ast.expr | None:
    """What something is taken of by a name that is put together: `nets.__dict__[name]`, `vars(nets)`, `getattr(nets, name)`."""
    if isinstance(node, ast.Attribute):
        return node.value if node.attr == "__dict__" else None
    asked = {"vars": 1, "getattr": 2}.get(getattr(node.func, "id", ""), 0)
    return node.args[0] if 0 < asked <= len(node.args) and not isinstance(node.args[asked - 1], ast.Constant) else None
