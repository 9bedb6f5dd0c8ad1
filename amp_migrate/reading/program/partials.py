"""What `functools.partial` binds of functions of the program, and what calls of that run and are given."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from amp_migrate.reading.program.callees import Callees
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module


class Partials(Callees):
    """The calls of a program, those of bound functions among them."""

    def __init__(self, modules: Iterable[Module]) -> None:
        super().__init__(modules)
        self.bound: dict[Function, list[tuple[Module, ast.Call]]] = defaultdict(list)  # `partial(function, ...)`
        self.through: dict[ast.Call, ast.Call] = {}  # calls of a variable that holds one, and the one it holds
        self._partials: dict[Slot, ast.Call] = {}  # variables that hold one
        self._spelled: dict[ast.Call, ast.Call] = {}  # calls with what they unpack in its place

    def find_partials(self, nodes_of: Mapping[Module, Iterable[ast.AST]]) -> None:
        """Note what is bound, and names that are bound once, to a function with its first arguments: `backward =
        partial(run_backward, fp16)`."""
        for module, nodes in nodes_of.items():
            if "partial" not in module.text:
                continue
            for node in nodes:
                functions = self.partial_of(module, node)
                if not functions or not isinstance(node, ast.Call):
                    continue
                for function in functions:
                    self.bound[function].append((module, node))
                stmt = module.parents[node]
                target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
                owner = module.scope_of(node).lookup(target.id) if isinstance(target, ast.Name) else None
                if isinstance(target, ast.Name) and owner is not None and len(owner.bindings[target.id]) == 1:
                    self._partials[Slot(owner, target.id)] = node

    def partial_of(self, module: Module, node: ast.AST) -> list[Function]:
        """The functions that a call of `functools.partial` may bind arguments of."""
        if not isinstance(node, ast.Call) or not node.args or module.qualify(node.func) != "functools.partial":
            return []
        return [self.functions[d] for d in self.definitions(module, node.args[0]) if d in self.functions]

    def callees(self, module: Module, call: ast.Call) -> list[Function]:
        found = super().callees(module, call)
        if found:
            return found
        bound: ast.AST | None = call.func  # `partial(train, model)(loader)`
        if isinstance(call.func, ast.Name):
            bound = self._partials.get(Slot(module.scope_of(call).lookup(call.func.id), call.func.id))
        functions = self.partial_of(module, bound) if isinstance(bound, ast.Call) else []
        if not isinstance(bound, ast.Call) or not functions:
            return []
        self.through[call] = bound
        return functions

    def arguments(self, function: Function, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        bound = self.through.get(call)
        call = self._spelled.get(call, call)
        if bound is None:
            yield from super().arguments(function, call)
            return
        whole = ast.Call(call.func, [*bound.args[1:], *call.args], [])
        yield from super().arguments(function, whole)
        keywords = {k.arg: k.value for k in (*bound.keywords, *call.keywords) if k.arg is not None}
        yield from keywords.items()
