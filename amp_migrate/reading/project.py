"""A whole program: modules, functions, classes, who calls whom, and where values flow.

Flow is flow-insensitive and directed: `reaches(seeds)` answers which variables, attributes and parameters may hold a
value that a seed holds. A variable is a `Slot`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from amp_migrate.reading.module import FUNCTION_NODES, FunctionNode, Module, Scope


class Slot(NamedTuple):
    """A place a value lives: a name in a scope, an attribute of a class's instances, a dotted name, a return value."""

    holder: object
    name: str


# Calls that return their first argument, or the object they are called on, wrapped or as it is.
WRAPPERS = frozenset(
    "DistributedDataParallel DataParallel DDP ADDP apex_DDP ApexDDP TorchDDP DataParallelModel convert_syncbn_model "
    "convert_sync_batchnorm compile deepcopy ModuleWrapper apply_gradient_allreduce unwrap_model unwrap "
    "FullyShardedDataParallel LARC LARS SWA Lookahead FP16_Optimizer wrap_optimizer network_to_half BN_convert_float "
    "convert_network FP16Model FP16_Module list tuple reversed enumerate zip iter next".split()
)
SAME_OBJECT_METHODS = frozenset(
    "to cuda cpu half float double train eval apply requires_grad_ share_memory type".split()
)


class Function:
    """A function or method of the program."""

    def __init__(self, scope: Scope, cls: ClassInfo | None) -> None:
        assert isinstance(scope.node, FUNCTION_NODES)
        self.scope = scope
        self.node: FunctionNode = scope.node
        self.cls = cls
        self.module = scope.module

    @property
    def name(self) -> str:
        return self.node.name

    @cached_property
    def is_static(self) -> bool:
        return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in self.node.decorator_list)

    @cached_property
    def positional(self) -> list[str]:
        """Parameter names a positional argument can reach, without `self`."""
        args = [a.arg for a in (*self.node.args.posonlyargs, *self.node.args.args)]
        return args[1:] if self.cls is not None and not self.is_static else args

    def parameter(self, name: str) -> ast.arg | None:
        a = self.node.args
        for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs):
            if arg.arg == name:
                return arg
        return None


class ClassInfo:
    """A class of the program."""

    def __init__(self, scope: Scope) -> None:
        assert isinstance(scope.node, ast.ClassDef)
        self.scope = scope
        self.node: ast.ClassDef = scope.node
        self.module = scope.module
        self.methods: dict[str, Function] = {}
        self.bases: list[ClassInfo] = []
        self.base_names: list[str] = []
        self.subclasses: list[ClassInfo] = []

    @property
    def name(self) -> str:
        return self.node.name

    def ancestry(self) -> Iterator[ClassInfo]:
        seen: set[ClassInfo] = set()
        queue = [self]
        while queue:
            cls = queue.pop(0)
            if cls not in seen:
                seen.add(cls)
                yield cls
                queue += cls.bases

    def descendants(self) -> Iterator[ClassInfo]:
        seen: set[ClassInfo] = set()
        queue = [self]
        while queue:
            cls = queue.pop(0)
            if cls not in seen:
                seen.add(cls)
                yield cls
                queue += cls.subclasses

    @cached_property
    def family(self) -> ClassInfo:
        """The root that stands for all classes sharing instances' attributes with this one."""
        top = self
        seen = {self}
        while top.bases and top.bases[0] not in seen:
            top = top.bases[0]
            seen.add(top)
        return top

    def method(self, name: str) -> Function | None:
        for cls in self.ancestry():
            if name in cls.methods:
                return cls.methods[name]
        return None

    @cached_property
    def is_module(self) -> bool:
        """Whether instances are `torch.nn.Module`s (so that calling them runs their forward)."""
        for cls in self.ancestry():
            if any(
                n.endswith(("nn.Module", "PreTrainedModel", "Model"))
                or n.split(".")[0] in ("torch", "nn")
                or n == "Module"
                for n in cls.base_names
            ):
                return True
        return False


class Project:
    """All modules of one program, read together."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.modules = list(modules)
        self.targets: frozenset[Module] = frozenset(self.modules)  # those that may be written
        self.by_name: dict[str, Module] = {}
        for module in self.modules:
            self.by_name.setdefault(module.name, module)
        self.functions: dict[ast.AST, Function] = {}
        self.classes: dict[ast.AST, ClassInfo] = {}
        self.methods_named: dict[str, list[Function]] = defaultdict(list)
        self.calls: dict[Function, list[tuple[Module, ast.Call]]] = defaultdict(list)
        self.flows: dict[Slot, set[Slot]] = defaultdict(set)
        self.instances: dict[Slot, set[ClassInfo]] = defaultdict(set)
        self.resolved: dict[ast.Call, list[Function]] = {}
        self._passed_modules: dict[str, str] = {}
        self._reverse: dict[Slot, set[Slot]] | None = None
        self.module_attributes: dict[str, str] = {}  # attribute names that hold an Apex module: `args.amp = amp`
        self._index()
        for _ in range(2):  # the second round sees the classes that the first one found instances of
            self._flow()
        self._passed_modules = self._find_passed_modules()

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
                    if cls is not None:
                        cls.methods[node.name] = function
                        self.methods_named[node.name].append(function)
        for cls in self.classes.values():
            for base in cls.node.bases:
                name = self.qualify(cls.module, base) or dotted(base) or ""
                cls.base_names.append(name)
                found = self.find_class(cls.module, base)
                if found is not None and found is not cls:
                    cls.bases.append(found)
                    found.subclasses.append(cls)

    # -- names ---------------------------------------------------------------------------------------------------

    def qualify(self, module: Module, node: ast.AST) -> str | None:
        """`Module.qualify`, followed through the project's own re-exports and attributes that hold Apex modules."""
        name = module.qualify(node)
        if name is None and isinstance(node, ast.Attribute):
            base = self.qualify(module, node.value)
            if base is not None:
                return self._canonical(f"{base}.{node.attr}")
            return self.module_attributes.get(node.attr)
        if name is None and isinstance(node, ast.Name):
            return self._parameter_module(module, node)
        return self._canonical(name) if name is not None else None

    def _canonical(self, name: str) -> str:
        for _ in range(8):
            if name.split(".")[0] in ("apex", "torch"):
                return name
            head, _, tail = name.rpartition(".")
            rest = ""
            while head:
                module = self.by_name.get(head)
                if module is not None:
                    first, _, more = tail.partition(".")
                    target = module.root.imports.get(first)
                    if target is None:
                        target = module.qualify_name(first, module.root) if first not in module.root.bindings else None
                    if target is None or target == name:
                        return name
                    name = f"{target}.{more}" if more else target
                    break
                head, _, last = head.rpartition(".")
                tail = f"{last}.{tail}"
            else:
                return name + rest
        return name

    def _parameter_module(self, module: Module, node: ast.Name) -> str | None:
        """The Apex module that a parameter or variable holds, when some caller passes one."""
        if node.id not in self._passed_modules:
            return None
        owner = module.scope_of(node).lookup(node.id)
        return self._passed_modules[node.id] if owner is not None else None

    def _find_passed_modules(self) -> dict[str, str]:
        """Parameter names that receive `apex.amp` itself at some call: `train(model, amp=amp)`."""
        passed: dict[str, str] = {}
        for function, sites in self.calls.items():
            for module, call in sites:
                for parameter, value in self.arguments(function, call):
                    name = module.qualify(value)
                    if name is not None and name in ("apex.amp", "apex"):
                        passed[parameter] = name
        return passed

    def find_class(self, module: Module, node: ast.AST) -> ClassInfo | None:
        found = self._definition(module, node)
        return self.classes.get(found) if found is not None else None

    def _definition(self, module: Module, node: ast.AST) -> ast.AST | None:
        """The class or function definition that a name or dotted name stands for."""
        if isinstance(node, ast.Name):
            owner = module.scope_of(node).lookup(node.id)
            if owner is not None:
                for binding in owner.bindings[node.id]:
                    if binding in self.functions or binding in self.classes:
                        return binding
        name = module.qualify(node)
        return self._named(name) if name else None

    def _named(self, name: str) -> ast.AST | None:
        name = self._canonical(name)
        head, _, last = name.rpartition(".")
        module = self.by_name.get(head)
        if module is None and head:
            tails = [m for n, m in self.by_name.items() if n.endswith("." + head)]
            module = tails[0] if len(tails) == 1 else None
        if module is None:
            outer, _, cls = head.rpartition(".")
            holder = self.by_name.get(outer)
            for binding in holder.root.bindings.get(cls, ()) if holder is not None else ():
                info = self.classes.get(binding)
                method = info.method(last) if info is not None else None
                if method is not None:
                    return method.node
            return None
        for binding in module.root.bindings.get(last, ()):
            if binding in self.functions or binding in self.classes:
                return binding
        return None

    # -- calls ---------------------------------------------------------------------------------------------------

    def callees(self, module: Module, call: ast.Call) -> list[Function]:
        """The project functions that a call may run; a class stands for its `__init__`."""
        found = self._definition(module, call.func)
        if found is not None:
            if found in self.functions:
                return [self.functions[found]]
            init = self.classes[found].method("__init__")
            return [init] if init is not None else []
        if not isinstance(call.func, ast.Attribute):
            return []
        name = call.func.attr
        classes = self.classes_of(module, call.func.value)
        if classes:
            methods: list[Function] = []
            for cls in classes:
                own = cls.method(name)
                methods += [own] if own is not None else []
                methods += [d.methods[name] for d in cls.descendants() if name in d.methods and d is not cls]
            return list(dict.fromkeys(methods))
        named = self.methods_named.get(name, [])
        if len(named) == 1 and name not in COMMON_METHODS and module.qualify(call.func) is None:
            return named
        return []

    def classes_of(self, module: Module, node: ast.AST) -> set[ClassInfo]:
        """The project classes that an expression may be an instance of."""
        scope = module.scope_of(node)
        if isinstance(node, ast.Name) and node.id == scope.self_name and scope.owner_class is not None:
            return {self.classes[scope.owner_class.node]}
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "super" and scope.owner_class is not None:
                return set(self.classes[scope.owner_class.node].bases)
            cls = self.find_class(module, node.func)
            return {cls} if cls is not None else set()
        slot = self.slot(module, node)
        return self.instances.get(slot, set()) if slot is not None else set()

    def arguments(self, function: Function, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        """Parameter name and argument, for the arguments of a call that can be told."""
        names = function.positional
        explicit_self = (
            function.cls is not None
            and isinstance(call.func, ast.Attribute)
            and self.find_class(function.module, call.func.value) is not None
        )
        for index, value in enumerate(call.args[1:] if explicit_self else call.args):
            if isinstance(value, ast.Starred):
                break
            if index < len(names):
                yield names[index], value
            elif function.node.args.vararg:
                yield function.node.args.vararg.arg, value
        for keyword in call.keywords:
            if keyword.arg is not None:
                yield keyword.arg, keyword.value

    # -- slots and flow ------------------------------------------------------------------------------------------

    def slot(self, module: Module, node: ast.AST) -> Slot | None:
        """Where the value of a name, attribute or subscript lives."""
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
                target = owner.imports.get(node.id)
                if target is not None:
                    head, _, last = self._canonical(target).rpartition(".")
                    other = self.by_name.get(head)
                    if other is not None:
                        return Slot(other.root, last)
                return Slot(owner, node.id)
            return Slot(module.root, node.id)
        if isinstance(node, ast.Attribute):
            for cls in sorted(self.classes_of(module, node.value), key=lambda c: c.name):
                return Slot(cls.family, node.attr)
            name = module.qualify(node)
            if name is not None:
                head, _, last = self._canonical(name).rpartition(".")
                other = self.by_name.get(head)
                if other is not None:
                    return Slot(other.root, last)
            base = self.slot(module, node.value)
            if base is None:
                return None
            if node.attr == "module":
                return base
            return Slot(base, node.attr)
        return None

    def sources(self, module: Module, node: ast.AST | None, position: int | None = None) -> Iterator[Slot]:
        """Slots whose value an expression may yield; `position` selects an element of a tuple."""
        if node is None:
            return
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            if position is not None and position < len(node.elts):
                yield from self.sources(module, node.elts[position])
            elif position is None:
                for element in node.elts:
                    yield from self.sources(module, element)
        elif isinstance(node, ast.Dict):
            for value in node.values:
                yield from self.sources(module, value)
        elif isinstance(node, ast.IfExp):
            yield from self.sources(module, node.body, position)
            yield from self.sources(module, node.orelse, position)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self.sources(module, value, position)
        elif isinstance(node, (ast.Await, ast.Starred, ast.NamedExpr)):
            yield from self.sources(module, node.value, position)
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            yield from self.sources(module, node.elt)
        elif isinstance(node, ast.Call):
            yield from self._call_sources(module, node, position)
        else:
            slot = self.slot(module, node)
            if slot is not None:
                yield slot
                if position is not None:
                    yield Slot(slot, f"#{position}")

    def _call_sources(self, module: Module, node: ast.Call, position: int | None) -> Iterator[Slot]:
        for function in self.callees(module, node):
            if function.name == "__init__":
                continue
            yield Slot(function, "return" if position is None else f"return#{position}")
        name = (self.qualify(module, node.func) or dotted(node.func) or "").rpartition(".")[2]
        if name == "initialize" and (self.qualify(module, node.func) or "").startswith("apex.amp"):
            if position is None or position == 0:
                yield from self.sources(module, argument(node, 0, "models"))
            if position is None or position == 1:
                yield from self.sources(module, argument(node, 1, "optimizers"))
        elif name in WRAPPERS:
            for arg in node.args[:1] if name not in ("zip",) else node.args:
                yield from self.sources(module, arg)
            for keyword in node.keywords:
                if keyword.arg in ("module", "model", "network", "init_optimizer"):
                    yield from self.sources(module, keyword.value)
        elif isinstance(node.func, ast.Attribute) and name in SAME_OBJECT_METHODS | {"values", "items", "get", "pop"}:
            yield from self.sources(module, node.func.value)

    def _flow(self) -> None:
        self.calls.clear()
        self.resolved.clear()
        for module in self.modules:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        self._assign(module, target, node.value)
                elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                    self._assign(module, node.target, node.value)
                elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                    self._iterate(module, node.target, node.iter)
                elif isinstance(node, (ast.With, ast.AsyncWith)):
                    pass
                elif isinstance(node, ast.Return) and node.value is not None:
                    self._return(module, node)
                elif isinstance(node, ast.Call):
                    self._call(module, node)

    def _iterate(self, module: Module, target: ast.expr, iterable: ast.expr) -> None:
        if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and isinstance(target, ast.Tuple):
            if iterable.func.id == "zip":
                for element, source in zip(target.elts, iterable.args, strict=False):
                    self._iterate(module, element, source)
                return
            if iterable.func.id == "enumerate" and len(target.elts) == 2 and iterable.args:
                self._iterate(module, target.elts[1], iterable.args[0])
                return
        if isinstance(target, (ast.Name, ast.Attribute)):
            slot = self.slot(module, target)
            if slot is not None:
                for origin in self.sources(module, iterable):
                    self.flows[origin].add(slot)

    def _assign(self, module: Module, target: ast.AST, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for index, element in enumerate(target.elts):
                if isinstance(value, (ast.Tuple, ast.List)) and index < len(value.elts):
                    self._assign(module, element, value.elts[index])
                else:
                    slot = self.slot(module, element)
                    if slot is not None:
                        for source in self.sources(module, value, index):
                            self.flows[source].add(slot)
            return
        slot = self.slot(module, target)
        if slot is None:
            return
        if isinstance(target, ast.Attribute):
            name = module.qualify(value)
            if name in ("apex.amp", "apex"):
                self.module_attributes[target.attr] = name
        for candidate in _alternatives(value):
            if isinstance(candidate, ast.Call):
                cls = self.find_class(module, candidate.func)
                if cls is not None:
                    self.instances[slot].add(cls)
        for source in self.sources(module, value):
            self.flows[source].add(slot)
            self.instances[slot] |= self.instances.get(source, set())

    def _return(self, module: Module, node: ast.Return) -> None:
        function = self.functions.get(module.scope_of(node).node)
        if function is None:
            return
        value = node.value
        for source in self.sources(module, value):
            self.flows[source].add(Slot(function, "return"))
            if not isinstance(value, ast.Tuple):
                for index in range(4):
                    self.flows[Slot(source, f"#{index}")].add(Slot(function, f"return#{index}"))
        if isinstance(value, ast.Tuple):
            for index, element in enumerate(value.elts):
                for source in self.sources(module, element):
                    self.flows[source].add(Slot(function, f"return#{index}"))
        elif isinstance(value, ast.Call):
            for index in range(4):
                for source in self.sources(module, value, index):
                    self.flows[source].add(Slot(function, f"return#{index}"))

    def _call(self, module: Module, call: ast.Call) -> None:
        functions = self.callees(module, call)
        self.resolved[call] = functions
        for function in functions:
            self.calls[function].append((module, call))
            for parameter, value in self.arguments(function, call):
                slot = Slot(function.scope, parameter)
                for candidate in _alternatives(value):
                    if isinstance(candidate, ast.Call):
                        cls = self.find_class(module, candidate.func)
                        if cls is not None:
                            self.instances[slot].add(cls)
                for source in self.sources(module, value):
                    self.flows[source].add(slot)
                    self.instances[slot] |= self.instances.get(source, set())
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "add", "extend") and call.args:
            container = self.slot(module, call.func.value)
            if container is not None:
                for source in self.sources(module, call.args[0]):
                    self.flows[source].add(container)

    def reaches(self, seeds: Iterable[Slot]) -> set[Slot]:
        """All slots that may hold a value of one of the seeds."""
        seen = set(seeds)
        queue = list(seen)
        while queue:
            for target in self.flows.get(queue.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    queue.append(target)
        return seen

    def origins(self, slots: Iterable[Slot]) -> set[Slot]:
        """The slots given, and all whose value may have come to be in one of them."""
        if self._reverse is None:
            self._reverse = defaultdict(set)
            for source, targets in self.flows.items():
                for target in targets:
                    self._reverse[target].add(source)
        seen = set(slots)
        queue = list(seen)
        while queue:
            for source in self._reverse.get(queue.pop(), ()):
                if source not in seen:
                    seen.add(source)
                    queue.append(source)
        return seen

    def function_of(self, module: Module, node: ast.AST) -> Function | None:
        """The function whose body holds a node."""
        return self.functions.get(module.scope_of(node).node)


# Method names too common to tell the class from.
COMMON_METHODS = frozenset(
    "__init__ forward backward step train eval update zero_grad state_dict load_state_dict save load "
    "run fit get set add "
    "append items keys values close open read write log reset init start stop process call apply "
    "parameters to cuda cpu "
    "next size mean item copy pop format join split strip index count sort extend clear insert remove".split()
)


def _alternatives(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.IfExp):
        yield from _alternatives(value.body)
        yield from _alternatives(value.orelse)
    else:
        yield value


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return call.args[position]
    return None


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` as text, for names and attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    parts.append(node.id)
    return ".".join(reversed(parts))
