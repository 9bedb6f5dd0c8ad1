"""What a name, an attribute or a call stands for in a whole program: its functions, classes and modules by name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from amp_migrate.reading.program.asked_by_name import asked_by_name
from amp_migrate.reading.program.definitions import ClassInfo, Function, dotted
from amp_migrate.reading.program.given_anew import is_given_anew
from amp_migrate.reading.program.given_values import alternatives, given, lambdas
from amp_migrate.reading.program.handed_back import SAME_OBJECT_METHODS
from amp_migrate.reading.program.handed_on import HandedOn
from amp_migrate.reading.program.imports import Imports
from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope


class Slot(NamedTuple):
    """A place a value lives: a name in a scope, an attribute of a class's instances, a dotted name, a return value."""

    holder: object
    name: str


class Lookup(Imports):
    """The modules of a program, its functions and classes, and what its names stand for."""

    def __init__(self, modules: Iterable[Module]) -> None:
        super().__init__(modules)
        self.handed_on = HandedOn(self.by_name, self.modules)
        self.functions: dict[ast.AST, Function] = {}
        self.functions_of: dict[Module, list[Function]] = {module: [] for module in self.modules}
        self.classes: dict[ast.AST, ClassInfo] = {}
        self.methods_named: dict[str, list[Function]] = defaultdict(list)
        self.instances: dict[Slot, set[ClassInfo]] = defaultdict(set)
        # Whether what a slot is given is made by a class from outside; where that is held by another one, which.
        self.foreign: dict[Slot, set[bool | Slot]] = defaultdict(set)
        self.alike: dict[Slot, set[Slot]] = defaultdict(set)  # attributes of classes that one receiver may be of
        self.alike_pairs = 0  # more of them as more is asked
        self.module_attributes: dict[str, str] = {}  # attribute names that hold an Apex module: `args.amp = amp`
        self.passed_modules: dict[Slot, str] = {}  # where one is handed to: `train(model, amp)`, `state["amp"] = amp`
        self.module_calls: dict[ast.Call, str] = {}  # that give one: `get_amp()`
        self._by_full_name: dict[str, list[ast.AST]] = {}
        self._definitions: dict[ast.AST, list[ast.AST]] = {}
        self._slots: dict[ast.AST, Slot | None] = {}  # of names
        self._below: dict[ast.AST, Slot | None] = {}  # of what stands below one: as far as instances are known
        self._of_classes: dict[ast.AST, list[ClassInfo]] = {}  # so far, too
        self._index()
        self._by_full_name.clear()  # what was asked while the bases of classes were not all known
        self._definitions.clear()

    # -- index ---------------------------------------------------------------------------------------------------

    def _index(self) -> None:
        for module in self.modules:
            for node, scope in module.scopes.items():
                if isinstance(node, ast.ClassDef):
                    self.classes[node] = ClassInfo(scope)
        for module in self.modules:
            for node, scope in module.scopes.items():
                if isinstance(node, FUNCTION_NODES):
                    parent = scope.parent
                    cls = self.classes.get(parent.node) if parent is not None and parent.is_class else None
                    function = Function(scope, cls)
                    self.functions[node] = function
                    self.functions_of[module].append(function)
                    if cls is not None:
                        cls.methods[node.name] = function
                        cls.variants.setdefault(node.name, []).append(function)
                        self.methods_named[node.name].append(function)
        for cls in self.classes.values():
            for base in cls.node.bases:
                name = self.qualify(cls.module, base) or dotted(base) or ""
                cls.base_names.append(name)
                for found in (self.classes[d] for d in self.definitions(cls.module, base) if d in self.classes):
                    if found is not cls:
                        cls.bases.append(found)
                        found.subclasses.append(cls)
        for cls in self.classes.values():
            cls.linked = True

    # -- names ---------------------------------------------------------------------------------------------------

    def qualify(self, module: Module, node: ast.AST) -> str | None:
        """`Module.qualify`, followed through attributes and parameters that hold Apex modules, too."""
        name = module.qualify(node)
        if name is None and isinstance(node, ast.Attribute):
            base = self.qualify(module, node.value)
            if base is not None:
                return self.handed_on.meaning(f"{base}.{node.attr}")
            held = self.module_attributes.get(node.attr)
            if held is not None and not self.is_option(module, node):
                return held
        if name is None and isinstance(node, ast.Name):
            return self._parameter_module(module, node)
        if name is None and self.passed_modules and isinstance(node, (ast.Attribute, ast.Subscript)):
            return self.passed_modules.get(slot) if (slot := self.slot(module, node)) is not None else None
        return self.module_calls.get(node) if name is None and isinstance(node, ast.Call) else name

    def is_option(self, module: Module, node: ast.Attribute) -> bool:
        """Whether an attribute by the name of one that holds an Apex module is another object's: not while that is read."""
        return False

    def _parameter_module(self, module: Module, node: ast.Name) -> str | None:
        """The Apex module that a parameter holds, when some caller passes one."""
        if not self.passed_modules:
            return None
        return self.passed_modules.get(Slot(module.scope_of(node).lookup(node.id), node.id))

    def may_name_apex(self, module: Module) -> bool:
        """Whether Apex can be reached in a module: by its name, by an attribute or a parameter that holds a part of it."""
        return (
            "apex" in module.text
            or module in self.handed_on.from_apex
            or any(
                name in module.text and re.search(rf"\.[\s\\]*{name}", module.text) for name in self.module_attributes
            )
            or any(isinstance(s.holder, Scope) and s.holder.module is module for s in self.passed_modules)
            or any(s.name.strip("[]") in module.text for s in self.passed_modules if not isinstance(s.holder, Scope))
        )

    def find_class(self, module: Module, node: ast.AST) -> ClassInfo | None:
        found = self.definition(module, node)
        return self.classes.get(found) if found is not None else None

    def class_named(self, name: str) -> ClassInfo | None:
        """The class that a dotted name stands for, also where another module of the program passes it on."""
        return next((self.classes[d] for d in self._named(name) if d in self.classes), None)

    def definition(self, module: Module, node: ast.AST) -> ast.AST | None:
        """The class or function definition that a name or dotted name stands for."""
        return next(iter(self.definitions(module, node)), None)

    def definitions(self, module: Module, node: ast.AST) -> list[ast.AST]:
        """All that a name may stand for which is defined or imported twice: in an `if` and its `else`, in a `try` and its
        `except`, again in a later cell. Which of them a line meets is not asked."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return []
        if node not in self._definitions:
            self._definitions[node] = []  # names that stand for each other end here
            self._definitions[node] = list(dict.fromkeys(self._find_definitions(module, node)))
        return self._definitions[node]

    def _find_definitions(self, module: Module, node: ast.Name | ast.Attribute) -> list[ast.AST]:
        if isinstance(node, ast.Name):
            owner = module.scope_of(node).lookup(node.id)
            if owner is not None and (found := self._bound(owner, node.id)):
                return found
            if owner is not None and (found := self._own_classes(owner, node.id)):
                return found
            if same := self._renamed(owner, node.id):
                return same
        name = module.taken(node)
        if name is None and isinstance(node, ast.Name):
            return self._starred(module, node.id)
        if name is None and isinstance(node, ast.Attribute):
            holder = self.find_class(module, node.value)
            return [method.node for method in holder.variants_of(node.attr)] if holder is not None else []
        return self._named(name) if name else []

    def _bound(self, owner: Scope, name: str) -> list[ast.AST]:
        """What a scope defines under a name, and what it imports instead of that; nothing where that comes from Apex."""
        bindings = owner.bindings.get(name, ())
        found = [b for b in bindings if b in self.functions or b in self.classes]
        if (owner.imports.get(name) or "apex").split(".")[0] == "apex":
            return found
        for binding in [b for b in bindings if not _defined_again(owner, b, found)]:
            for alias in binding.names if isinstance(binding, ast.ImportFrom) else ():
                if name == (alias.asname or alias.name) and isinstance(binding, ast.ImportFrom):
                    found += self._named(f"{owner.module.import_base(binding)}.{alias.name}")
        return found

    def _renamed(self, owner: Scope | None, name: str) -> list[ast.AST]:
        """What a name stands for that a scope gives it, as another name of that: `run = train`, `run = train if full else
        tune`, `Loss = getattr(losses, "Focal")`."""
        same = given(owner, name) if owner is not None and name not in owner.params else []
        if owner is None or not same:
            return []
        if len(same) == 1 and isinstance(same[0], ast.Call):
            return asked_by_name(self, owner.module, same[0])
        if not all(isinstance(one, (ast.Name, ast.Attribute)) for one in same):
            return []
        known = [
            [d for d in self.definitions(owner.module, o) if d in self.functions or d in self.classes] for o in same
        ]
        return [d for found in known for d in found] if all(known) else []

    def _own_classes(self, owner: Scope, name: str) -> list[ast.AST]:
        """What the first parameter of a class method stands for: its class, and those that inherit the method."""
        function = self.functions.get(owner.node)
        if function is None or function.cls is None or function.is_static or not function.is_unbound:
            return []
        if name != owner.self_name or len(owner.bindings[name]) > 1:
            return []
        return [c.node for c in function.cls.descendants() if c is function.cls or function.name not in c.methods]

    def _starred(self, module: Module, name: str) -> list[ast.AST]:
        """The definitions that a star import of another module of the program brings in."""
        found = (self._named(f"{base}.{name}") for base in module.star_imports)
        return next((f for f in found if f), [])

    def _named(self, name: str) -> list[ast.AST]:
        if name not in self._by_full_name:
            self._by_full_name[name] = []  # modules that import from each other end here
            self._by_full_name[name] = self._find_named(name)
        return self._by_full_name[name]

    def _find_named(self, name: str) -> list[ast.AST]:
        head, _, last = name.rpartition(".")
        if head in self.by_name and (found := self._bound(self.by_name[head].root, last)):
            return found
        name = self.handed_on.meaning(name)
        head, _, last = name.rpartition(".")
        module = self.module_named(head)
        if module is None:
            outer, _, cls = head.rpartition(".")
            holder = self.by_name.get(outer)
            for binding in holder.root.bindings.get(cls, ()) if holder is not None else ():
                info = self.classes.get(binding)
                if info is not None and (methods := info.variants_of(last)):
                    return [method.node for method in methods]
            return []
        return self._bound(module.root, last) or self._renamed(module.root, last)

    # -- classes -------------------------------------------------------------------------------------------------

    def module_named(self, name: str) -> Module | None:
        """The file of a dotted name, from whatever folder that is meant."""
        tails = self._by_tail.get(name, [])
        return self.by_name.get(name) or (tails[0] if len(tails) == 1 else None)

    def classes_of(self, module: Module, node: ast.AST) -> list[ClassInfo]:
        """The project classes that an expression may be an instance of, as they follow each other in the program."""
        known = self._of_classes.get(node)
        if known is None:
            known = self._of_classes[node] = _in_order(self._classes_of(module, node))
        return known

    def _found(self, slot: Slot, classes: Collection[ClassInfo]) -> bool:
        """Note that objects of some classes live in a slot: whether that is new."""
        known = self.instances[slot]
        if known.issuperset(classes):
            return False
        known.update(classes)
        self._below.clear()
        self._of_classes.clear()
        return True

    def called(self, module: Module, func: ast.expr) -> list[ast.AST]:
        """The classes and functions that what is called stands for."""
        named = [found for one in alternatives(func) for found in self.definitions(module, one)]
        return named + (asked_by_name(self, module, func) if isinstance(func, ast.Call) else [])

    def _classes_of(self, module: Module, node: ast.AST) -> set[ClassInfo]:
        scope = module.scope_of(node)
        own = self.class_of(scope)
        if isinstance(node, ast.Name) and node.id == scope.self_name and own is not None:
            return {own}
        if isinstance(node, ast.Call):
            if is_super(node) and own is not None:
                return set(own.bases)
            classes = {self.classes[found] for found in self.called(module, node.func) if found in self.classes}
            if not classes and isinstance(node.func, ast.Attribute) and node.func.attr in SAME_OBJECT_METHODS:
                held = self._classes_of(module, node.func.value)  # `Net().cuda()`
                return {c for c in held if c.method(node.func.attr) is None}
            if not classes and isinstance(node.func, ast.Name):
                return {c for made in lambdas(module, node.func) for c in self._classes_of(module, made.body)}
            return classes
        slot = self.slot(module, node)
        return self.instances.get(slot, set()) if slot is not None else set()

    # -- slots ---------------------------------------------------------------------------------------------------

    def slots(self, module: Module, nodes: Iterable[ast.AST]) -> set[Slot]:
        """Where the values of some expressions live, as far as that is known."""
        return {slot for node in nodes if (slot := self.slot(module, node)) is not None}

    def slot(self, module: Module, node: ast.AST) -> Slot | None:
        """Where the value of a name, attribute or subscript lives."""
        known = self._slots if isinstance(node, ast.Name) else self._below
        if node not in known:
            known[node] = self._slot(module, node)
        return known[node]

    def _slot(self, module: Module, node: ast.AST) -> Slot | None:
        if isinstance(node, ast.Subscript):
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                base = self.slot(module, node.value)
                return Slot(base, f"[{node.slice.value}]") if base is not None else None
            return self.slot(module, node.value)
        if isinstance(node, ast.Starred):
            return self.slot(module, node.value)
        if isinstance(node, ast.Name):
            scope = module.scope_of(node)
            owner = scope.lookup(node.id)
            if owner is not None:
                return self.bound_slot(owner, node.id)
            return Slot(module.root, node.id)
        if isinstance(node, ast.Attribute):
            base = self.slot(module, node.value)
            if isinstance(node.value, (ast.Attribute, ast.Subscript)):
                held = _in_order(self.instances.get(base, ())) if base is not None else []
            else:
                held = self.classes_of(module, node.value)
            if node.attr == "module" and held and all(_is_wrapped(cls) for cls in held):
                return base
            families = dict.fromkeys(cls.family for cls in held)
            if families:
                first, *others = (Slot(family, node.attr) for family in families)
                for other in others:
                    self.alike_pairs += other not in self.alike[first]
                    self.alike[first].add(other)
                    self.alike[other].add(first)
                return first
            name = module.taken(node)
            found = self.exported(name) if name is not None else None
            if found is not None:
                return found
            if base is None or node.attr == "module":
                return base
            return Slot(base, node.attr)
        return None

    def bound_slot(self, owner: Scope, name: str) -> Slot:
        """Where the value of a name lives that a scope binds: for one that it imports and leaves at that, in the module of the
        program that it comes from."""
        target = owner.imports.get(name)
        found = self.exported(target) if target is not None and not is_given_anew(owner, name) else None
        return found or Slot(owner, name)

    def exported(self, name: str) -> Slot | None:
        """Where a module of the program keeps what a dotted name stands for."""
        head, _, last = self.handed_on.meaning(name).rpartition(".")
        module = self.by_name.get(head)
        return Slot(module.root, last) if module is not None else None

    def class_of(self, scope: Scope) -> ClassInfo | None:
        """The class whose `self` a scope sees."""
        return self.classes[scope.owner_class.node] if scope.owner_class is not None else None

    def class_around(self, scope: Scope) -> ClassInfo | None:
        """The class in which a scope stands, also where it is given no object of it: in a static method."""
        around = scope.method.parent if scope.method is not None else None
        return self.classes[around.node] if around is not None else None

    def function_of(self, module: Module, node: ast.AST) -> Function | None:
        """The function whose body holds a node."""
        return self.functions.get(module.scope_of(node).node)


def _in_order(classes: Collection[ClassInfo]) -> list[ClassInfo]:
    """Classes as they follow each other in the program."""
    return sorted(classes, key=lambda c: (c.module.display, c.node.lineno)) if len(classes) > 1 else list(classes)


def is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _is_wrapped(cls: ClassInfo) -> bool:
    """Whether `model.module` of a network is what a parallel wrapper holds: its own class gives nothing that name."""
    return cls.is_module and not any(c.has_module for c in (*cls.ancestry(), *cls.descendants()))


def _defined_again(owner: Scope, binding: ast.AST, definitions: Iterable[ast.AST]) -> bool:
    """Whether a script imports a name that it then defines itself, under no condition: its functions never meet the import."""
    if owner.module.path.suffix == ".ipynb" or not isinstance(binding, ast.ImportFrom):
        return False
    places: dict[ast.AST, int] = {stmt: place for place, stmt in enumerate(owner.body)}
    return binding in places and any(places.get(d, -1) > places[binding] for d in definitions)
