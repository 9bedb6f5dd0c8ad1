"""What a call may run: the functions and methods of a program, a class's `__init__`, an object's `__call__`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import COMMON_METHODS, Function, entries, unpacks, written_out
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.lookup import Lookup, Slot, is_super
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import reached


class Callees(Lookup):
    """The functions that the calls of a program run, and what they are given."""

    def callees(self, module: Module, call: ast.Call) -> list[Function]:
        """The project functions that a call may run; a class stands for its `__init__`. What the parentheses behind a
        property call is what that gives, not the property itself."""
        found = [f for f in self._callees(module, call) if not f.is_property]
        return found or self._of_object(module, call.func)

    def _of_object(self, module: Module, func: ast.expr) -> list[Function]:
        """What is run where an object is called: `updater = Updater(optimizer)`, `updater()`."""
        if not isinstance(func, (ast.Name, ast.Attribute, ast.Call)):
            return []
        return list(dict.fromkeys(m for cls in self.classes_of(module, func) for m in cls.variants_of("__call__")))

    def _callees(self, module: Module, call: ast.Call) -> list[Function]:
        named_here = super().called(module, call.func)
        if isinstance(call.func, ast.Subscript):
            named_here = self._of_table(module, call.func)
        if named_here:
            run = (
                self.classes[f].variants_of("__init__") if f in self.classes else [self.functions[f]]
                for f in named_here
            )
            found = list(dict.fromkeys(function for functions in run for function in functions))
            fitting = [f for f in found if f.takes(call)] if len(found) > 1 else []
            return fitting or found
        if not isinstance(call.func, ast.Attribute):
            return []
        name = call.func.attr
        classes = self.classes_of(module, call.func.value)
        if classes:
            methods: list[Function] = []
            for cls in classes:
                methods += cls.variants_of(name)
                if is_super(call.func.value):
                    continue  # what is above, not what overrides it
                methods += [m for d in cls.descendants() if d is not cls for m in d.variants.get(name, ())]
            return list(dict.fromkeys(methods))
        if name in COMMON_METHODS or name not in self.methods_named or module.qualify(call.func) is not None:
            return []
        if self._is_foreign(module, call.func.value):
            return []
        named = [f for f in self.methods_named[name] if self.programs[f.module] == self.programs[module]]
        return named if len(named) == 1 else []

    def _of_table(self, module: Module, entry: ast.Subscript) -> list[ast.AST]:
        """The functions of an entry by its name: `phases = {"train": train}`, `phases["train"](loader)`."""
        table = single_assignment(module, entry.value) if isinstance(entry.value, ast.Name) else entry.value
        key = entry.slice.value if isinstance(entry.slice, ast.Constant) else None
        held = [value for name, value in entries(table) if name == key] if table is not None else []
        return [d for value in held[-1:] for d in self.definitions(module, value) if d in self.functions]

    def called(self, module: Module, func: ast.expr) -> list[ast.AST]:
        found = super().called(module, func)
        return found or (self._by_default(module, func) if isinstance(func, ast.Name) else [])

    def _by_default(self, module: Module, name: ast.Name) -> list[ast.AST]:
        """What a parameter stands for where calls leave it out, and what else they give it: `def build(params, make=Solver)`,
        `make(params)`; nothing where something else is given."""
        owner = module.scope_of(name).lookup(name.id)
        function = self.functions.get(owner.node) if owner is not None else None
        default = function.defaults.get(name.id) if function is not None else None
        if owner is None or function is None or default is None or len(owner.bindings[name.id]) > 1:
            return []
        given = [(module, default)]
        made = function.cls.descendants() if function.cls is not None and function.name == "__init__" else ()
        for called in [c.name for c in made] or [function.name]:
            for where in (m for m in self.modules if called in m.text):
                for call, _ in where.calls_naming([called]):
                    if unpacks(call):
                        return []
                    given += [(where, value) for key, value in self.arguments(function, call) if key == name.id]
        found = [self.definitions(*one) for one in given]
        return [d for one in found for d in one] if all(found) else []

    def _is_foreign(self, module: Module, node: ast.expr) -> bool:
        """Whether an object is in any case made by a class from outside of the program, called itself or by a method of its
        own: `Tokenizer.from_pretrained(path)`."""
        if not isinstance(node, ast.Call):
            return self._made_outside(self.slot(module, node))
        name = module.qualify(node.func) or ""
        if not any(part[:1].isupper() for part in name.split(".")[-2:]) or self.definitions(module, node.func):
            return False
        return not self.may_be_own(name.partition(".")[0])

    def _made_outside(self, slot: Slot | None) -> bool:
        """Whether all that a slot is given, also by way of others, is made so."""
        if slot is None:
            return False
        given = [held for at in reached([slot], self._held_by) for held in self.foreign.get(at) or (False,)]
        return all(held is not False for held in given) and True in given

    def _held_by(self, slot: Slot) -> list[Slot]:
        return [held for held in self.foreign.get(slot, ()) if isinstance(held, Slot)]

    def passes_self(self, function: Function, call: ast.Call) -> bool:
        """Whether a call of a method gives the object as its first argument: `Base.train(self, loader)`."""
        return (
            function.cls is not None
            and not function.is_unbound
            and isinstance(call.func, ast.Attribute)
            and self.find_class(function.module, call.func.value) is not None
        )

    def arguments(self, function: Function, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        """Parameter name and argument, for the arguments of a call that can be told."""
        names = function.positional
        for index, value in enumerate(written_out(call.args[1:] if self.passes_self(function, call) else call.args)):
            if isinstance(value, ast.Starred):
                break
            if index < len(names):
                yield names[index], value
            elif function.node.args.vararg:
                yield function.node.args.vararg.arg, value
        for keyword in call.keywords:
            if keyword.arg is not None:
                yield keyword.arg, keyword.value
            else:
                yield from entries(keyword.value)
