"""What a value has from the start: the options of a parsed command line, the attributes of an object, the keys of a dict."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.facts import assigned, constant
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import statements
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.options import destination, sets_defaults
from amp_migrate.audit.unset.passing import SETTING
from amp_migrate.audit.unset.places import Body, below, place_of, root
from amp_migrate.audit.values.origins import Origin
from amp_migrate.audit.values.values import Values

if TYPE_CHECKING:
    from amp_migrate.audit.unset.happens import Fault
    from amp_migrate.audit.unset.unset import Unset

GROUPS = ("add_argument_group", "add_mutually_exclusive_group", "add_parser", "add_subparsers")
PLAIN = ("object", "torch.nn.Module", "nn.Module", "abc.ABC", "ABC", "torch.utils.data.Dataset", "Dataset", "Module")


class Given:
    """Answers for one state of a program."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.program = values.program

    # -- what a value has ------------------------------------------------------------------------------------------

    def has(self, unset: Unset, scope: Scope, value: ast.expr, rest: str) -> bool | None:
        """Whether a value has what `rest` (`.scaler`, `['scaler']`) names; None where that is not known."""
        if rest.startswith("["):  # what else was put into a dict that comes from elsewhere is not known
            return _keys(value, rest[2:-2])
        origins = self.values.origins(scope, value)
        answers = {self._origin(unset, o, rest) for o in origins}
        if answers == {False}:
            return False
        return True if answers == {True} else None

    def _origin(self, unset: Unset, origin: Origin, rest: str) -> bool | None:
        if not re.fullmatch(r"\.\w+", rest) or not isinstance(origin.node, ast.Call):
            return None
        call, scope, name = origin.node, origin.module.scope_of(origin.node), rest[1:]
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("parse_args", "parse_known_args"):
            if (call.func.attr == "parse_args" and not origin.path) or origin.path == (0,):
                options = self._options(scope, call.func.value)
                return None if options is None else name in options
            return None
        classes = [d for d in self.program.definitions(scope, call.func, guess=False) if isinstance(d, Class)]
        if len(classes) == 1 and not origin.path:
            return self.class_has(unset, classes[0], name)
        return None

    def made(self, scope: Scope, stmt: ast.Assign) -> Iterator[tuple[str, bool, bool]]:
        """What is known of an object just made: the fields that its constructor sets to constants, and whether nothing
        changes one later. Such a one is a setting: whoever runs the program writes another value there."""
        call = stmt.value
        if not isinstance(call, ast.Call) or len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Name):
            return
        classes = [d for d in self.program.definitions(scope, call.func, guess=False) if isinstance(d, Class)]
        for cls in classes if len(classes) == 1 else ():
            inits = [f for c in self.program.family_up(cls) for f in c.methods.get("__init__", [])][:1]
            if any(base not in PLAIN for base in self.program.external_bases(cls)):
                return  # what that one's constructor does is not known
            for init in inits:
                own = init.parameters[0].arg if init.parameters else ""
                stored = [t for s in statements(init.node) for t in assigned(s)]
                for inner in init.node.body:
                    if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Constant):
                        place = syntax.text(inner.targets[0])
                        if place.startswith(f"{own}.") and stored.count(place) == 1:
                            setting = not self._changes(cls, inner)
                            name = stmt.targets[0].id + place[len(own) :]
                            yield from ((*told, setting) for told in constant(name, inner.value))

    def _changes(self, cls: Class, stmt: ast.Assign) -> bool:
        """Whether the field that a statement sets to a constant is set elsewhere, too, or there is nothing in it yet."""
        (target,) = stmt.targets[:1]
        if (
            not isinstance(target, ast.Attribute)
            or not isinstance(stmt.value, ast.Constant)
            or stmt.value.value is None
        ):
            return True
        family = self.program.family(cls)
        for module, found, _, _ in self.values.fields(target.attr):
            holder = self.program.is_self(module.scope_of(found), found.value)
            if found is not target and (holder is None or holder in family):
                return True
        return False

    def class_has(self, unset: Unset, cls: Class, name: str) -> bool | None:
        """Whether an object just made has an attribute."""
        known: bool | None = False
        for c in self.program.family_up(cls):
            if name in c.scope.bindings or "__getattr__" in c.scope.bindings or "__getattribute__" in c.scope.bindings:
                return True
            for init in c.methods.get("__init__", []):
                if init.parameters and unset.stores(unset.body(init.module, init), f"{init.parameters[0].arg}.{name}"):
                    return True
        if any(base not in PLAIN for base in self.program.external_bases(cls)):
            known = None
        return known

    def lacks_at_first(self, unset: Unset, init: Function, place: str) -> bool:
        """Whether an object has no attribute yet where its constructor begins, whatever class below it runs that."""
        own, _, name = place.partition(".")
        cls = self.program.is_self(init.scope, ast.Name(own, ast.Load()))
        if cls is None or not name.isidentifier():
            return False
        if any(base not in PLAIN for base in self.program.external_bases(cls)):
            return False
        for c in self.program.family(cls):
            if {name, "__getattr__", "__getattribute__", "__new__"} & c.scope.bindings.keys():
                return False
            others = [f for f in c.methods.get("__init__", []) if f is not init and f.parameters]
            if any(unset.stores(unset.body(f.module, f), f"{f.parameters[0].arg}.{name}") for f in others):
                return False
        return True

    def once_made(
        self, unset: Unset, cls: Class, function: Function, place: str, faults: Iterable[Fault]
    ) -> list[Fault]:
        """The faults of a method called on an object that was only made: those that no method of it prevents."""
        name = place.partition(".")[2]
        # Also where __init__ assigns under a condition: which methods run then is not followed.
        faults = [f for f in faults if self.class_has(unset, self._meeting(cls, f), name) is False]
        if "." in name or not faults:
            return []
        if not any(s.target is not None and s.owner in self.program.family(cls) for s in self.values.stored(name)):
            return []
        late = {a for a, where in self._assigning(cls).items() if all(f.name != "__init__" for f in where)} - {name}
        late -= {a for c in self.program.family_up(cls) for a in c.scope.bindings}
        needs = self._needs(unset, unset.body(function.module, function), late)
        return [f for f in faults if f.missed or not needs]  # one that is missed comes after what gives the others

    def _meeting(self, cls: Class, fault: Fault) -> Class:
        """The class of an object that comes to a fault: the one whose method it stands in, where that derives from the other."""
        function = fault.module.function_around(fault.node)
        owner = function.owner if function is not None else None
        return owner if owner is not None and cls in self.program.family_up(owner) else cls

    def _needs(self, unset: Unset, body: Body, late: set[str], depth: int = 0) -> bool:
        """Whether a method, or one that it calls, needs attributes that an object just made lacks, or has as None."""
        if body.function is None or not body.function.parameters or depth > 2:
            return False
        own = body.function.parameters[0].arg
        stored = {e.text for _, e in body.everything if e.kind == "store"}
        for _, event in body.everything:
            used = event.text
            if event.kind == "call" and isinstance(event.node, ast.Call):
                used = (place_of(event.node.func) or "") + "."
                if used.startswith(f"{own}.") and used.count(".") == 2:
                    called = unset.passing.callees(body, event.node)
                    if any(self._needs(unset, unset.body(f.module, f), late, depth + 1) for f in called):
                        return True
            parts = used.split(".")
            if len(parts) > 2 and parts[0] == own and parts[1] in late and f"{own}.{parts[1]}" not in stored:
                return True
        return False

    # -- parsers ---------------------------------------------------------------------------------------------------

    @cached_property
    def _added(self) -> list[tuple[Module, ast.Call, frozenset[ast.AST] | None]]:
        """Every call that gives a parser options, with the parsers it may be about."""
        found = []
        for module in self.program.modules.values():
            if "add_argument" not in module.text:
                continue
            for call in module.calls():
                scope = module.scope_of(call)
                func = self._short(scope, call.func.id) if isinstance(call.func, ast.Name) else call.func
                if isinstance(func, ast.Attribute) and func.attr in ("add_argument", "set_defaults"):
                    found.append((module, call, self._parsers(scope, func.value)))
        return found

    @staticmethod
    def _short(scope: Scope, name: str) -> ast.expr | None:
        """The method that declares options which a name stands for: `arg = parser.add_argument`."""
        binder = scope.binder(name)
        made = binder.bindings[name] if binder is not None else []
        value = made[0].value if len(made) == 1 and isinstance(made[0], ast.Assign) else None
        return value if isinstance(value, ast.Attribute) and value.attr in ("add_argument", "set_defaults") else None

    def _parsers(self, scope: Scope, expr: ast.expr, depth: int = 0) -> frozenset[ast.AST] | None:
        """The calls of ArgumentParser that a parser, or a group of one, was made by; None where that is not known."""
        made: set[ast.AST] = set()
        for origin in self.values.origins(scope, expr):
            call = origin.node
            if not isinstance(call, ast.Call) or depth > 4:
                return None
            its = origin.module.scope_of(call)
            if isinstance(call.func, ast.Attribute) and call.func.attr in GROUPS:
                inner = self._parsers(its, call.func.value, depth + 1)
                if inner is None:
                    return None
                made |= inner
            elif (self.program.dotted(its, call.func) or "") in ("argparse.ArgumentParser", "configargparse.ArgParser"):
                if any(k.arg in ("parents", None) for k in call.keywords):
                    return None
                made.add(call)
            else:
                return None
        return frozenset(made) or None

    def _options(self, scope: Scope, parser: ast.expr) -> set[str] | None:
        """The attributes of what a parser returns; None where more may come from out of sight."""
        makers = self._parsers(scope, parser)
        if makers is None or self._handed_out(makers):
            return None
        names: set[str] = set()
        for module, call, parsers in self._added:
            if parsers is None:
                if module is scope.module:
                    return None
                continue
            if not parsers & makers:
                continue
            found = destination(call)
            if found is None:
                return None
            names |= found
        return names

    def option(self, scope: Scope, parser: ast.expr, name: str) -> list[tuple[Scope, ast.Call]] | None:
        """The calls that make one attribute of what a parser returns; None where that is not known."""
        makers = self._parsers(scope, parser)
        if makers is None:
            return None
        found = []
        for module, call, parsers in self._added:
            if parsers is None or not parsers & makers:
                continue
            names = destination(call)
            if names is None or (name in names and sets_defaults(call)):
                return None
            if name in names:
                found.append((module.scope_of(call), call))
        return found or None

    def _handed_out(self, makers: frozenset[ast.AST]) -> bool:
        """Whether a parser is an argument of a function that is not of the program."""
        for module in {m for m, _, parsers in self._added if parsers and parsers & makers}:
            for call in module.calls():
                given = [a for a in syntax.given(call) if isinstance(a, ast.Name)]
                given = [a for a in given if "pars" in a.id.lower()]
                if given and not self.program.definitions(module.scope_of(call), call.func, guess=False):
                    if any((self._parsers(module.scope_of(a), a) or makers) & makers for a in given):
                        return True
        return False

    # -- what a call sets ------------------------------------------------------------------------------------------

    def sets(self, call: ast.Call, place: str) -> bool:
        """Whether a call of Python's own may give a place a value: `setattr(args, name, v)`, `vars(args).update(...)`."""
        func = call.func
        if isinstance(func, ast.Name) and func.id == "setattr" and len(call.args) > 1:
            holder = place_of(call.args[0])
            if holder is None or not below(place, holder) or holder == place:
                return False
            return not isinstance(call.args[1], ast.Constant) or place == f"{holder}.{call.args[1].value!s}"
        if isinstance(func, ast.Attribute) and func.attr in SETTING:
            text = syntax.text(func.value)
            names = re.findall(r"[A-Za-z_]\w*", text)
            holder = place_of(func.value)
            # `cfg.update(...)` gives `cfg.fp16`; `self.meter.update(x)` gives nothing of `self`.
            if holder is not None and "__dict__" not in text:
                return below(place, holder) and holder != place
            return root(place) in names and ("globals" in text or root(place) != place)
        return False

    def only_with(self, unset: Unset, body: Body, place: str) -> frozenset[str]:
        """Attributes of `self` that only those methods assign that assign this one, `__init__` not among them."""
        name = root(place)
        cls = self.program.is_self(body.scope, ast.Name(name, ast.Load()))
        if cls is None or not place.startswith(f"{name}.") or place.count(".") > 1:
            return frozenset()
        where = self._assigning(cls)
        mine = where.get(place.partition(".")[2], frozenset())
        if not mine or any(f.name == "__init__" for f in mine):
            return frozenset()
        field = place.partition(".")[2]
        return frozenset(
            f"{name}.{a}"
            for a, functions in where.items()
            if functions <= mine and a != field and all(_comes_with(f, a, field) for f in functions)
        )

    def _assigning(self, cls: Class) -> dict[str, frozenset[Function]]:
        found: dict[str, set[Function]] = {}
        for c in self.program.family(cls):
            for method in (m for ms in c.methods.values() for m in ms):
                for name in _own_fields(method):
                    found.setdefault(name, set()).add(method)
        return {a: frozenset(functions) for a, functions in found.items()}


def _comes_with(method: Function, field: str, other: str) -> bool:
    """Whether a method that assigns one attribute of its object has assigned the other, too, when it returns: that stands in
    the same block, and nothing returns in between."""
    module, stores = method.module, list(_stores(method))
    others = [s for s, name in stores if name == other]
    for stmt in (s for s, name in stores if name == field):
        around = itertools.takewhile(lambda at: at is not method.node, module.ancestors(stmt))
        held = [stmt, *(at for at in around if isinstance(at, ast.stmt))]
        if not any(_goes_with(module, at, one) for at in held for one in others):
            return False
    return True


def _goes_with(module: Module, stmt: ast.stmt, other: ast.stmt) -> bool:
    """Whether what comes to a statement comes to another of its block as well."""
    if other is stmt or stmt in module.following(other):
        return True
    after = module.following(stmt)
    return other in after and not any(syntax.every(s, ast.Return) for s in (stmt, *after[: after.index(other)]))


def _stores(method: Function) -> Iterator[tuple[ast.stmt, str]]:
    """The statements of a method that assign an attribute of its object, and which."""
    own = method.parameters[0].arg if method.parameters else None
    for stmt in statements(method.node):
        for node in () if hasattr(stmt, "body") else syntax.walk(stmt):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id == own:
                    yield stmt, node.attr


@kept  # for many classes have the method in their family
def _own_fields(method: Function) -> frozenset[str]:
    """The attributes that a method assigns to its object; placeholders of `__init__` are none."""
    first = method.name == "__init__"
    return frozenset(
        name
        for stmt, name in _stores(method)
        if not (first and isinstance(stmt, ast.Assign) and syntax.is_none(stmt.value))
    )


def _keys(node: ast.AST, key: str) -> bool | None:
    if isinstance(node, ast.Dict):
        if any(not isinstance(k, ast.Constant) for k in node.keys):
            return None
        return any(isinstance(k, ast.Constant) and k.value == key for k in node.keys)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        return None if any(k.arg is None for k in node.keywords) else any(k.arg == key for k in node.keywords)
    return None
