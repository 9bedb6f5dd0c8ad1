"""Attributes that a migration reads, and that no class gives the object: of `self`, or of what a function is handed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change, conditions
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.options import declared
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.syntax import own_nodes
from amp_migrate.audit.program.targets import attributes
from amp_migrate.audit.review import Review
from amp_migrate.audit.values.origins import Origin

KNOWN = ("object", "torch.", "abc.", "typing.", "ABC", "Generic")
# Fields by names that are not written; what only reads `self.__dict__.items()` gives none.
DYNAMIC = re.compile(
    r"\bsetattr\b|__getattr__|__getattribute__|__setattr__|(?:__dict__|vars\([^()]*\))\s*(?:\.update|\.setdefault|\[|\||=)"
)


def never_given(review: Review) -> Iterator[Doubt]:
    """Reads of `self.x` that the migration wrote where no class of the object, nor anybody outside, assigns `x`."""
    told: set[tuple[str, str]] = set()
    for change in review.changes.values():
        for function in change.after.functions:
            cls = function.owner
            if cls is None or not function.parameters:
                continue
            for read in _new_reads(change, function):
                key = (cls.qualname, read.attr)
                if key in told:
                    continue
                message = (
                    f"{syntax.text(read)} is read here, and neither {cls.name} nor a class that it shares objects with "
                    "assigns it"
                )
                if gives(review, one_object(review, cls), read.attr):
                    lacking = _made_without(review, change.after, function, read)
                    if lacking is None:
                        continue
                    what = f"an object of {lacking.name} has none: only another class that shares the method assigns it"
                    message = f"{syntax.text(read)} is read here, and {what}"
                told.add(key)
                yield review.doubt(change.after, read, "AMP131", syntax.text(read), message)


def _made_without(review: Review, module: Module, function: Function, read: ast.Attribute) -> Class | None:
    """The class of objects that the program makes, which run a method as it stands and are nowhere given what it reads
    whatever tests say: a trainer whose subclass makes the scaler."""
    cls, program = function.owner, review.after
    if cls is None or _under_a_test(module, function, read):
        return None
    for one in (cls, *program.below(cls)):
        if function in program._method(one, function.name)[:1] and _is_made(review, one):
            if not gives(review, set(program.family_up(one)), read.attr):
                return one
    return None


def _under_a_test(module: Module, function: Function, node: ast.AST) -> bool:
    for at in module.ancestors(node):
        if at is function.node:
            return False
        if isinstance(at, (ast.If, ast.IfExp, ast.While, ast.Try, ast.BoolOp, ast.Lambda, ast.FunctionDef)):
            return True
    return True


def _is_made(review: Review, cls: Class) -> bool:
    """Whether a call in sight makes an object of a class."""
    for module in review.after.having(cls.name):
        for call in module.calls_named.get(cls.name, ()):
            if cls in review.after.definitions(module.scope_of(call), call.func, guess=False):
                return True
    return not review.after.below(cls) and _is_chosen(review, cls)


def _is_chosen(review: Review, cls: Class) -> bool:
    """Whether what makes an object finds its class by a name: a registry that it is put into, `globals()[name](...)`,
    `getattr(models, name)(...)`."""
    if any("regist" in syntax.text(decorator).lower() for decorator in cls.node.decorator_list):
        return True
    homes = {module for module in review.after.having(cls.name) if cls.name in module.top.bindings}
    return not homes.isdisjoint(_looked_in(review.after))


@kept
def _looked_in(program: Program) -> frozenset[Module]:
    """The files in whose names something that is called is looked up by a name that is put together."""
    asking = [m for m in program.modules.values() if m.words & {"globals", "locals", "vars", "getattr"}]
    found = (_home(program, module, call.func) for module in asking for call in module.calls())
    return frozenset(home for home in found if home is not None)


def _home(program: Program, module: Module, func: ast.expr) -> Module | None:
    """The file in whose names what is called is looked up."""
    if isinstance(func, ast.Subscript) and not isinstance(func.slice, ast.Constant):
        return module if syntax.text(func.value) in ("globals()", "locals()", "vars()") else None
    if not isinstance(func, ast.Call) or not func.args or isinstance(func.args[-1], ast.Constant):
        return None
    if syntax.text(func.func) == "getattr":
        dotted = program.imported(module.scope_of(func), func.args[0])
        return program.module_named(dotted, module) if dotted is not None else None
    return module if syntax.text(func.func) in ("globals().get", "locals().get", "vars().get") else None


def of_another(review: Review) -> Iterator[Doubt]:
    """Reads of `x.scaler`, an attribute that came with the migration and that classes keep on `self` alone, where `x` is
    seen to be something else: what a static method or a function is handed."""
    values, told = review.values_after, set[tuple[object, ...]]()
    for change in review.changes.values():
        for stmt in (*change.added, *change.rewritten):
            for read in syntax.own_line(stmt):
                if not isinstance(read, ast.Attribute) or not isinstance(read.ctx, ast.Load):
                    continue
                owners = {s.owner for s in values.stored(read.attr)}
                if not owners or None in owners or review.values_before.stored(read.attr):
                    continue
                scope = change.after.scope_of(read)
                key = (change.path, scope, syntax.text(read))
                if key in told or review.after.is_self(scope, read.value):
                    continue
                if any("hasattr" in t for t in conditions(change.after, stmt)):
                    continue
                keeping = {c for owner in owners if owner is not None for c in review.after.family(owner)}
                for origin in sorted(values.origins(scope, read.value), key=lambda o: (o.module.path, o.line)):
                    name = _made_as(review, origin, keeping)
                    if name is not None:
                        told.add(key)
                        kept = " and ".join(sorted(o.name for o in owners if o is not None))
                        message = f"{syntax.text(read.value)} may come from {name} here, and it is {kept} that keeps {read.attr}"
                        yield review.doubt(change.after, read, "AMP131", syntax.text(read), message)
                        break


def of_settings(review: Review) -> Iterator[Doubt]:
    """Reads of `cfg.fp16` that the migration wrote into a function that did without, where `cfg` is an object of a class of
    the program which gives it no such field: whoever sets it elsewhere by a computed name was needed for training alone."""
    values, told = review.values_after, set[tuple[object, ...]]()
    for change in review.changes.values():
        for function in change.after.functions:
            for read in _new_reads_of_names(review, change, function):
                key = (function, syntax.text(read))
                if key in told:
                    continue
                told.add(key)
                origins = values.origins(function.scope, read.value)
                classes = [values.classes(o) for o in origins]
                if not classes or not all(classes) or read.attr in declared(review.after):
                    continue
                made = {c for found in classes for cls in found for c in one_object(review, cls)}
                plain = all(
                    base in ("object", "abc.ABC", "ABC") for c in made for base in review.after.external_bases(c)
                )
                if plain and not gives(review, made, read.attr):
                    names = " and ".join(sorted({c.name for found in classes for c in found}))
                    message = f"{syntax.text(read)} is read here now, and no class of what it is asked of ({names}) assigns it"
                    yield review.doubt(change.after, read, "AMP131", syntax.text(read), message)


def _new_reads_of_names(review: Review, change: Change, function: Function) -> Iterator[ast.Attribute]:
    """Attributes of what a name of the program holds, read in statements that are not what they were."""
    old = change.function_before(function)
    if old is None or change.after.source(function.node) == change.before.source(old.node):
        return
    known = {syntax.text(n) for n in own_nodes(old.node) if isinstance(n, ast.Attribute)}
    for node in own_nodes(function.node):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
            if syntax.text(node) not in known and change.same.get(change.after.statement(node)) is None:
                if review.after.is_self(function.scope, node.value) is None:
                    yield node


def _made_as(review: Review, origin: Origin, keeping: set[Class]) -> str | None:
    """The class of what an origin makes, where it is sure to be none of those that keep an attribute."""
    if not isinstance(origin.node, ast.Call) or origin.path:
        return None
    made = review.values_after.classes(origin)
    if not made:
        name = review.values_after.maker(origin) or ""
        return name if name.startswith("torch.") and name != "torch.load" else None  # which gives what was saved
    if any(not keeping.isdisjoint(review.after.family(c)) for c in made):
        return None
    above = [c for cls in made for c in review.after.family_up(cls)]
    if any("__getattr__" in c.methods or "__getattribute__" in c.methods for c in above):
        return None
    if any(not base.startswith(KNOWN) for c in made for base in review.after.external_bases(c)):
        return None
    return made[0].name


def _new_reads(change: Change, function: Function) -> Iterator[ast.Attribute]:
    """Attributes of the first parameter of a method, read in statements that are not what they were."""
    me = function.parameters[0].arg
    old = change.function_before(function)
    known = {n.attr for n in own_nodes(old.node) if isinstance(n, ast.Attribute)} if old is not None else set()
    for node in own_nodes(function.node):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr not in known:
            if isinstance(node.value, ast.Name) and node.value.id == me and function.bound:
                if change.same.get(change.after.statement(node)) is None:
                    yield node


def one_object(review: Review, cls: Class) -> set[Class]:
    """The classes that an object with this class among its own may have as well."""
    program = review.after
    found: set[Class] = set()
    below = [cls]
    for one in below:
        below += [s for s in program.subclasses(one) if s not in below]
        found.update(program.family_up(one))
    return found


def gives(review: Review, classes: set[Class], name: str, *, strangers: bool = True) -> bool:
    """Whether the classes define a name, or something assigns it to what may be an object of them; `strangers`: also to
    what is not known to be one."""
    for cls in classes:
        if name in cls.methods or _dynamic(cls.module):
            return True
        if any(not base.startswith(KNOWN) for base in review.after.external_bases(cls)):
            return True  # what makes the objects may be out of sight, too
        if name in cls.scope.bindings:
            return True
    for module in review.after.having(name):
        for store, _, _ in attributes(module).get(name, ()):
            scope = module.scope_of(store)
            owner = review.after.is_self(scope, store.value)
            if owner in classes or (owner is None and strangers):
                return True
            if owner is None and not classes.isdisjoint(made_here(review, scope, store.value)):
                return True
    return False


@kept
def _dynamic(module: Module) -> bool:
    """Whether a file gives objects attributes out of sight."""
    return DYNAMIC.search(module.text) is not None


def made_here(review: Review, scope: Scope, expr: ast.expr) -> set[Class]:
    """The classes of the program of which something is made that an expression may hold."""
    values = review.values_after
    return {cls for origin in values.origins(scope, expr) for cls in values.classes(origin)}
