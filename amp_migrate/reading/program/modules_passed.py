"""Where `apex.amp` goes as a value: the parameters, variables, fields, entries and results that hold it, or None in its place.

What else one of them is given makes it no such place: `self.amp = args.amp` beside `self.amp = amp` is a flag.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amp_migrate.reading.program.definitions import Function, entries, is_off
from amp_migrate.reading.program.given_values import alternatives
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.modules_held import MODULES
from amp_migrate.reading.program.scope import Scope
from amp_migrate.reading.program.tree import own_nodes, reached

if TYPE_CHECKING:
    from amp_migrate.reading.program.project import Project

Place = tuple[Module, ast.expr]
ASKS = ("get", "pop")  # what a mapping is asked for an entry by


class Passed:
    """Follows the module forward, from where an import names it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.held: dict[Slot, str] = {}
        self.calls: dict[ast.Call, str] = {}  # that give it: `get_amp()`, `options.get("amp")`
        self.targets: list[Place] = []  # that take it out of a tuple
        self._followed: set[ast.expr] = set()  # reads of it that were seen to put it somewhere
        self._pending: list[tuple[Module, ast.expr, str]] = []
        for module in project.modules if project.follows else ():
            if project.may_name_apex(module):
                self._pending += self._named(module)
        while self._pending:
            self._follow(*self._pending.pop())
        while wrong := [slot for slot in self.held if not self._fits(slot)]:
            for slot in wrong:
                del self.held[slot]
            self.calls = {call: name for call, name in self.calls.items() if self._gives(call)}

    def _named(self, module: Module) -> Iterator[tuple[Module, ast.expr, str]]:
        for node in module.of(ast.Name, ast.Attribute, ast.Call):
            parent = module.parents.get(node)
            if isinstance(parent, (ast.Attribute, ast.Compare)) or node in module.never:
                continue
            if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
                if (name := self.project.qualify(module, node)) in MODULES:
                    yield module, node, name

    # -- forward ---------------------------------------------------------------------------------------------------

    def _follow(self, module: Module, value: ast.expr, name: str) -> None:
        """Where one expression that stands for the module puts it."""
        read, parent = value, module.parents.get(value)
        while isinstance(parent, ast.IfExp) and value is not parent.test:
            value, parent = parent, module.parents.get(parent)
        slots: list[Slot | None] = []
        if isinstance(parent, ast.Assign):
            slots = [self.project.slot(module, target) for target in parent.targets]
        elif isinstance(parent, ast.AnnAssign) and parent.value is value:
            slots = [self.project.slot(module, parent.target)]
        elif isinstance(parent, ast.Return):
            slots = self._given_back(module, parent, None, name)
        elif isinstance(parent, ast.Tuple):
            outer, at = module.parents.get(parent), parent.elts.index(value)
            if isinstance(outer, ast.Return):
                slots = self._given_back(module, outer, at, name)
            elif isinstance(outer, ast.Assign) and isinstance(outer.targets[0], ast.Name):
                slots = [*self._spread_out(module, outer.targets[0], value)]
            else:
                slots = [*self._unpacked(module, outer, at)]
        elif isinstance(parent, (ast.Dict, ast.Call, ast.keyword)):
            slots = [*self._handed(module, parent, value)]
        for slot in slots:
            self._add(slot, name)
        if any(slot is not None for slot in slots) or isinstance(parent, ast.Return):
            self._followed.add(read)

    def _unpacked(self, module: Module, stmt: ast.AST | None, at: int) -> Iterator[Slot | None]:
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
        if isinstance(target, (ast.Tuple, ast.List)) and at < len(target.elts):
            if not any(isinstance(e, ast.Starred) for e in target.elts):
                self.targets.append((module, target.elts[at]))
                yield self.project.slot(module, target.elts[at])

    def _given_back(self, module: Module, stmt: ast.Return, at: int | None, name: str) -> list[Slot | None]:
        function, found = self.project.function_of(module, stmt), list[Slot | None]()
        for where, call in self.project.calls.get(function, ()) if function is not None else ():
            if at is not None:
                found += self._unpacked(where, where.parents.get(call), at)
            elif call not in self.calls:
                self.calls[call] = name
                self._pending.append((where, call, name))
        return found

    def _handed(self, module: Module, parent: ast.AST, value: ast.expr) -> Iterator[Slot]:
        """Where a call or a mapping that is written out takes a value."""
        if isinstance(parent, ast.Dict):
            at = next((i for i, v in enumerate(parent.values) if v is value), None)
            key = parent.keys[at] if at is not None else None
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield from self._entry(module, parent, key.value)
            return
        call = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call) or (isinstance(parent, ast.keyword) and parent.arg is None):
            return
        if isinstance(call.func, ast.Name) and call.func.id == "dict" and isinstance(parent, ast.keyword):
            yield from self._entry(module, call, str(parent.arg))
        made = [c for c, bound in self.project.through.items() if bound is call]  # `partial(train, amp=amp)`
        for run in (call, *made):
            for function in self.project.resolved.get(run, ()):
                yield from (_taken(function, p) for p, v in self.project.arguments(function, run) if v is value)
        for function in self.project.resolved.get(call, ()):
            for inner, p, v in self.project.passed_on(function, call) if function.unpacking else ():
                if v is value:
                    yield _taken(inner, p)
        if not self.project.resolved.get(call):
            for cls in self.project.classes_of(module, call):
                yield from (Slot(cls.family, field) for field, v in cls.given(call) if v is value)

    def _entry(self, module: Module, mapping: ast.expr, key: str) -> Iterator[Slot]:
        """Where a mapping goes that is written out, and what takes its entry as an argument."""
        parent = module.parents.get(mapping)
        if isinstance(parent, ast.Assign):
            slots = (self.project.slot(module, target) for target in parent.targets)
            yield from (Slot(slot, f"[{key}]") for slot in slots if slot is not None)
            for target in parent.targets:
                if isinstance(target, ast.Name):
                    given = next(v for k, v in entries(mapping) if k == key)
                    yield from self._spread_out(module, target, given)
        elif isinstance(parent, (ast.Call, ast.keyword)):
            yield from (Slot(slot, f"[{key}]") for slot in self._handed(module, parent, mapping))

    def _spread_out(self, module: Module, target: ast.Name, value: ast.expr) -> Iterator[Slot]:
        """The parameters that take what a variable holds among others: `Trainer(**parts)`, `train(*given)`."""
        owner = module.scope_of(target).lookup(target.id)
        for read in owner.reads(target.id) if owner is not None else ():
            call = module.parents.get(read)
            if isinstance(call, ast.Starred) or (isinstance(call, ast.keyword) and call.arg is None):
                call = module.parents.get(call)
            if isinstance(call, ast.Call):
                for function in self.project.resolved.get(call, ()):
                    yield from (_taken(function, p) for p, v in self.project.arguments(function, call) if v is value)

    def _add(self, slot: Slot | None, name: str) -> None:
        if slot is None or slot in self.held:
            return
        if isinstance(slot.holder, Slot):  # the same mapping, under another name
            if not slot.name.startswith("["):
                return  # of an object from outside: by its name alone, see `is_option`
            for other in reached([slot.holder], self.project.same_objects):
                self._add_one(Slot(other, slot.name), name)
        else:
            self._add_one(slot, name)

    def _add_one(self, slot: Slot, name: str) -> None:
        if slot not in self.held:
            self.held[slot] = name
            for module, node in self._reads(slot):
                if isinstance(node, ast.Call):
                    self.calls[node] = name
                self._pending.append((module, node, name))

    # -- what is there ---------------------------------------------------------------------------------------------

    def _reads(self, slot: Slot) -> Iterator[Place]:
        if isinstance(slot.holder, Scope):
            if slot.name.isidentifier():
                yield from ((slot.holder.module, node) for node in slot.holder.reads(slot.name))
            return
        name = slot.name.strip("[]")
        for module in (m for m in self.project.modules if name in m.text):
            for node in module.named.get(name, ()):
                read = module.parents.get(node) if isinstance(node, ast.Constant) else node
                if isinstance(read, ast.Subscript) and not isinstance(read.ctx, ast.Load):
                    continue
                if isinstance(read, (ast.Attribute, ast.Subscript, ast.Call)) and self._slot(module, read) == slot:
                    yield module, read

    def _slot(self, module: Module, node: ast.expr) -> Slot | None:
        """Where a value is read from, also by `options.get("amp")`."""
        if not isinstance(node, ast.Call):
            return self.project.slot(module, node)
        key = key_asked(node)
        if key is None or not isinstance(node.func, ast.Attribute) or (node.args[1:] and not is_off(node.args[1])):
            return None
        base = self.project.slot(module, node.func.value)
        return Slot(base, f"[{key.value!s}]") if base is not None else None

    def _fits(self, slot: Slot) -> bool:
        """Whether all that a place is given is the module, or nothing."""
        if isinstance(slot.holder, Scope):
            if slot.name in slot.holder.params or not slot.name.isidentifier():
                return True  # a call that gives something else is another program's
            if slot.holder.is_class:
                return False
            if slot.holder.is_module and any(self.project.handed_on.readers(slot.holder.module, slot.name)):
                return False
            if not all(self._seen(module, node) for module, node in self._reads(slot)):
                return False
            return all(self._binds(slot.holder.module, b, slot) for b in slot.holder.bindings.get(slot.name, ()))
        return all(self._brings(module, value) for module, value in self._stores(slot))

    def _seen(self, module: Module, node: ast.expr) -> bool:
        """Whether it is seen what is done with the module where a variable is read."""
        parent = module.parents.get(node)
        asks = (ast.Attribute, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.If, ast.Assert)
        chooses = isinstance(parent, ast.IfExp) and parent.test is node
        return isinstance(parent, asks) or chooses or node in self._followed or isinstance(node, ast.Call)

    def _binds(self, module: Module, binding: ast.AST, slot: Slot) -> bool:
        if isinstance(binding, (ast.Import, ast.ImportFrom)):
            return True
        stmt = module.parents.get(binding)
        if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt.value is not None:
            return self._brings(module, stmt.value)
        return isinstance(stmt, ast.Tuple) and self._brings_in_place(module, stmt, binding)

    def _brings_in_place(self, module: Module, target: ast.Tuple, binding: ast.AST) -> bool:
        """Whether what one place of an unpacked tuple is given is the module."""
        stmt, at = module.parents.get(target), target.elts.index(binding)  # type: ignore[arg-type]
        value = stmt.value if isinstance(stmt, ast.Assign) else None
        if isinstance(value, (ast.Tuple, ast.List)):
            return at < len(value.elts) and self._brings(module, value.elts[at])
        functions = self.project.resolved.get(value, []) if isinstance(value, ast.Call) else []
        return bool(functions) and all(self._gives_back(f, at) for f in functions)

    def _stores(self, slot: Slot) -> Iterator[Place]:
        name, key = slot.name.strip("[]"), slot.name.startswith("[")
        for module in (m for m in self.project.modules if name in m.text):
            for node in module.of(ast.Assign, ast.AnnAssign):
                assert isinstance(node, (ast.Assign, ast.AnnAssign))
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in (t for t in targets if isinstance(t, ast.Subscript if key else ast.Attribute)):
                    last = target.slice if isinstance(target, ast.Subscript) else None
                    said = last.value if isinstance(last, ast.Constant) else getattr(target, "attr", None)
                    if said == name and node.value is not None and self.project.slot(module, target) == slot:
                        yield module, node.value
                written = entries(node.value) if key and node.value is not None else ()
                for value in [v for k, v in written if k == name]:
                    if any(self.project.slot(module, target) == slot.holder for target in targets):
                        yield module, value

    def _brings(self, module: Module, value: ast.expr) -> bool:
        """Whether an expression gives the module, or nothing."""
        return all(is_off(each) or self._stands(module, each) for each in alternatives(value))

    def _stands(self, module: Module, node: ast.expr) -> bool:
        if isinstance(node, ast.Call) and node in self.calls:
            return True
        return self.project.qualify(module, node) in MODULES or (
            isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and self._slot(module, node) in self.held
        )

    def _gives(self, call: ast.Call) -> bool:
        """Whether a call still gives the module, and nothing else."""
        functions = self.project.resolved.get(call)
        if functions:
            return all(self._gives_back(function, None) for function in functions)
        return any(self._slot(m, call) in self.held for m in self.project.modules if call in m.parents)

    def _gives_back(self, function: Function, at: int | None) -> bool:
        """Whether every return of a function gives the module, or nothing, whole or in one place of a tuple."""
        returns = [n for n in own_nodes(function.node.body) if isinstance(n, ast.Return)]
        values = [n.value if at is None else _element(n.value, at) for n in returns]
        return bool(values) and all(v is not None and self._brings(function.module, v) for v in values)


def key_asked(node: ast.expr) -> ast.Constant | None:
    """The key of `options["amp"]`, `options.get("amp")`."""
    key = node.slice if isinstance(node, ast.Subscript) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKS and node.args:
        key = node.args[0]
    return key if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _element(value: ast.expr | None, at: int) -> ast.expr | None:
    return value.elts[at] if isinstance(value, ast.Tuple) and at < len(value.elts) else None


def _taken(function: Function, name: str) -> Slot:
    """The parameter of a name, or the entry of what takes all others."""
    extra = function.node.args.kwarg
    if function.parameter(name) is None and extra is not None:
        return Slot(Slot(function.scope, extra.arg), f"[{name}]")
    return Slot(function.scope, name)
