"""What a call returns, as far as the program's text tells: one tensor, something else, or nothing that can be known.

A model's forward may return a tensor, a list, a dict or an object that holds several; only a tensor has `.float()`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from amp_migrate.reading.program.definitions import ClassInfo, Function, called_name, dotted
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import own_nodes, reached, values_returned
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.calls import NONE
from amp_migrate.reading.values.entries import DISPLAYS
from amp_migrate.reading.values.handed_back import parameters_of
from amp_migrate.reading.values.table import Answer, Path, Value
from amp_migrate.reading.values.tensors import FLOAT_ARGUMENTS, FLOAT_METHODS, SHAPE_METHODS, is_generator

Returned = Literal["tensor", "other", "unknown"]

# Parts of torch.nn that return several tensors, or whatever the modules in them return.
SEVERAL = frozenset("LSTM GRU RNN LSTMCell MultiheadAttention AdaptiveLogSoftmaxWithLoss ModuleList ModuleDict".split())
HOLDERS = frozenset("Module Sequential DataParallel".split())
# torch and torch.nn.functional: one tensor, beside those that compute from leading tensors.
MAKERS = frozenset("cat stack zeros ones zeros_like ones_like einsum where exp sum embedding flatten add mul".split())
# Methods that only tensors have and that return one; `max`, `min` and `sort` may return a pair, and lists have `copy`.
KEEPS = (FLOAT_METHODS | SHAPE_METHODS) - {"max", "min", "chunk", "split", "backward", "to", "cpu", "cuda", "select"}
# torch and torch.nn.functional: what computes from a tensor given first.
TAKES = frozenset(FLOAT_ARGUMENTS) | frozenset("argmax max min topk sort stft istft sum abs exp flatten".split())
BUILDERS = frozenset("list dict tuple set zip sorted len int float str".split())


class Returns:
    """What the calls of one program return."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.values = project.once(Values)
        self._known: dict[ast.AST, Returned | None] = {}  # what networks and calls out of sight give

    def of(self, module: Module, node: ast.expr) -> Returned:
        """What a call of a model, a method or a function returns, or another expression is."""
        return self._agreed(self.values.may_be(module, node))

    def functions(self, module: Module, call: ast.Call) -> Iterator[Function]:
        """The functions of the program whose value a call returns: those it calls, or the forwards of the networks that the
        variable it runs may hold."""
        called = [f for f in self.project.resolved.get(call, ()) if f.name != "__init__"]
        yield from called or self.forwards(module, call.func)

    def given_back(
        self, module: Module, call: ast.Call, forwards: Iterable[Function] = ()
    ) -> list[tuple[Module, ast.expr]]:
        """What the functions that a call may run return, each time. `forwards`: what it runs where that is not in sight."""
        return [
            (function.module, value)
            for function in list(self.functions(module, call)) or forwards
            for value in values_returned(function.node.body)
        ]

    def apart(
        self, module: Module, call: ast.Call, length: int, forwards: Iterable[Function] = (), depth: int = 4
    ) -> list[tuple[Module, ast.Tuple | ast.List]]:
        """The tuples and lists of so many things that a call gives back, also by way of what it calls in turn."""
        found: list[tuple[Module, ast.Tuple | ast.List]] = []
        for home, value in self.given_back(module, call, forwards):
            made = only_value(home, value) if isinstance(value, ast.Name) else value
            if isinstance(made, DISPLAYS) and len(made.elts) == length:
                found.append((home, made))
            elif isinstance(made, ast.Call) and depth:
                found += self.apart(home, made, length, depth=depth - 1)
        return [(home, t) for home, t in found if not any(isinstance(e, ast.Starred) for e in t.elts)]

    def entries(
        self, module: Module, call: ast.Call, forwards: Iterable[Function] = (), depth: int = 4
    ) -> list[tuple[Module, list[ast.expr]]] | None:
        """The entries of each tuple, list or dictionary that a call gives back, also by way of what it calls in turn, or hands
        over to have it back; None where that may be anything else."""
        found: list[tuple[Module, list[ast.expr]]] = []
        for function in list(self.functions(module, call)) or list(forwards):
            given = dict(self.project.arguments(function, call))
            for value in values_returned(function.node.body):
                names = parameters_of(function, value) if isinstance(value, ast.Name) else set()
                sources = [(module, given.get(name)) for name in names] or [(function.module, value)]
                for home, source in sources:
                    made = only_value(home, source) if isinstance(source, ast.Name) else source
                    listed = (
                        made.elts if isinstance(made, DISPLAYS) else made.values if isinstance(made, ast.Dict) else None
                    )
                    if isinstance(made, ast.Call) and depth:
                        inner = self.entries(home, made, depth=depth - 1)
                        if not inner:
                            return None
                        found += inner
                    elif listed is None or any(isinstance(e, ast.Starred) for e in listed):
                        return None
                    else:
                        found.append((home, listed))
        return found

    def handed(
        self, module: Module, call: ast.Call, index: int, forwards: Iterable[Function] = (), length: int | None = None
    ) -> list[ast.expr] | None:
        """The arguments that a call gets back at a place of several things, or an item of which, in the dtype it gave them: `y`
        of `logits, y = model(x, y)`, `batch` of `logits, y = run(model, batch)`. None where that may be anything else.
        `length`: of how many things."""
        found: list[ast.expr] = []
        for function in list(self.functions(module, call)) or forwards:
            given = dict(self.project.arguments(function, call))
            for value in (n.value for n in own_nodes(function.node.body) if isinstance(n, ast.Return)):
                if not isinstance(value, DISPLAYS) or any(isinstance(e, ast.Starred) for e in value.elts):
                    return None
                if length not in (None, len(value.elts)) or not -len(value.elts) <= index < len(value.elts):
                    continue
                names = parameters_of(function, value.elts[index])
                if not names or not names <= given.keys():
                    return None
                found += [given[name] for name in sorted(names)]
        return found or None

    def forwards(self, module: Module, network: ast.expr) -> Iterator[Function]:
        """The forwards of the networks that a variable may hold."""
        for value in self.made(module, network):
            cls = self._class_of(value.module, value.node)
            forward = (cls.method("forward") or cls.method("__call__")) if cls is not None else None
            if forward is not None:
                yield forward

    def _class_of(self, module: Module, made: ast.AST) -> ClassInfo | None:
        """The program's own class of the network that an expression makes."""
        if not isinstance(made, ast.Call):
            return None
        cls = self.project.find_class(module, made.func)
        if cls is not None or not isinstance(made.func, (ast.Name, ast.Attribute)):
            return cls
        if isinstance(made.func, ast.Attribute) and made.func.attr == "from_pretrained":
            return self.project.find_class(module, made.func.value) or self._picked(module, made.func.value)
        return self._picked(module, made.func)

    def _picked(self, module: Module, func: ast.expr) -> ClassInfo | None:
        """The one class that what is called may be, out of a mapping: `CLASSES[name]`."""
        found = self.values.may_be(module, func)
        classes = {self.project.classes.get(v.node) for v in found if v.kind == "class"}
        return next(iter(classes)) if len(classes) == 1 and all(v.kind == "class" for v in found) else None

    def takes_tensor(self, module: Module, func: ast.expr) -> bool:
        """Whether the first thing that is handed to a function must be a tensor: those of torch that compute, and its
        criterions, held in a variable."""
        name = module.qualify(func) or ""
        if name.startswith("torch.") and name.rpartition(".")[2] in TAKES:
            return True
        return any(
            isinstance(v.node, ast.Call)
            and (v.module.qualify(v.node.func) or "").startswith("torch.nn.")
            and ast.unparse(v.node.func).endswith("Loss")
            for v in self.made(module, func)
        )

    def made(self, module: Module, func: ast.expr, path: Path = ()) -> list[Value]:
        """The calls that made what an expression, or an item of it, may hold."""
        found = (v for v in self.values.may_be(module, func, path) if v.kind == "call")
        return sorted(found, key=lambda v: v.place)

    # -- what values are -----------------------------------------------------------------------------------------

    def _agreed(self, values: Answer) -> Returned:
        """One answer of several: where they differ, a forward returns now a tensor and now something else."""
        answers = {self._told(value) for value in values} - {None}
        found = answers.pop() if len(answers) == 1 else None
        return found or "unknown"

    def _told(self, value: Value) -> Returned | None:
        """What a value is; None of what is given from outside, which says nothing of what is made of it."""
        module, node = value.module, value.node
        if value.kind == "parameter" or node is NONE:
            return None
        if value.kind == "call" and isinstance(node, ast.Call):
            return self._once(node, lambda: self._call(module, node))
        if value.kind in ("unknown", "item"):
            return "other" if isinstance(node, FUNCTION_NODES) and is_generator(node) else "unknown"
        if value.kind != "computed":
            return "unknown" if value.kind in ("named", "option") else "other"
        return self._once(node, lambda: self._computed(module, node))

    def _computed(self, module: Module, node: ast.AST) -> Returned | None:
        if isinstance(node, ast.AugAssign):
            return "tensor" if self.of(module, node.value) == "tensor" else None
        if isinstance(node, ast.UnaryOp):
            return self.of(module, node.operand)
        if isinstance(node, ast.BinOp):
            return "tensor" if "tensor" in (self.of(module, side) for side in (node.left, node.right)) else "unknown"
        return "unknown" if isinstance(node, ast.Subscript) else "other"

    def _once(self, node: ast.AST, ask: Callable[[], Returned | None]) -> Returned | None:
        """An answer that may hang on itself, where networks run each other: nothing is known of it then."""
        if node not in self._known:
            self._known[node] = "unknown"
            self._known[node] = ask()
        return self._known[node]

    def _call(self, module: Module, call: ast.Call) -> Returned:
        name = module.qualify(call.func) or ""
        last = name.rpartition(".")[2]
        if name.startswith("torch.") and (last in FLOAT_ARGUMENTS or last in MAKERS):
            return "tensor"
        if self.project.find_class(module, call.func) is not None or dotted(call.func) in BUILDERS:
            return "other"
        if isinstance(call.func, ast.Attribute) and call.func.attr in KEEPS:
            return "tensor"
        return self._held(module, call.func)

    def _held(self, module: Module, func: ast.expr) -> Returned:
        """What running a variable that holds a network returns. A network may stand in itself: `net = Sequential(*net)`."""
        held = reached(self._networks(module, func), self._last)
        found = {self._network(m, node) for m, node in held} - {None}
        return (found.pop() if len(found) == 1 else None) or "unknown"

    def _networks(self, module: Module, node: ast.expr, path: Path = ()) -> list[tuple[Module, ast.Call]]:
        """The calls that made what an expression, or an item of it, may hold."""
        return [(v.module, v.node) for v in self.made(module, node, path) if isinstance(v.node, ast.Call)]

    def _last(self, network: tuple[Module, ast.Call]) -> list[tuple[Module, ast.Call]]:
        """What runs last in networks in a row: that is what they return."""
        module, made = network
        if not made.args or module.qualify(made.func) != "torch.nn.Sequential":
            return []
        last = made.args[-1]
        return (
            self._networks(module, last.value, (None,))
            if isinstance(last, ast.Starred)
            else self._networks(module, last)
        )

    def _network(self, module: Module, made: ast.Call) -> Returned | None:
        """What running a network that a call makes returns; None where it only hands one on, or runs others in a row."""
        cls = self._class_of(module, made)
        if cls is not None:
            forward = cls.method("forward") or cls.method("__call__")
            if forward is None:
                return "unknown"
            return self._once(forward.node, lambda: self._agreed(self.values.returned(forward)))
        name = module.qualify(made.func) or ""
        last = called_name(made)
        if isinstance(made.func, ast.Name) and made.func.id == "cls":
            return None  # in a class method, whose caller names the class
        if self._last((module, made)):
            return None
        if name.startswith("torch.nn.") and name.count(".") == 2:  # torch.nn.Linear
            return "other" if last in SEVERAL else "unknown" if last in HOLDERS else "tensor"
        return None if self.project.resolved.get(made) else "unknown"


def only_value(module: Module, name: ast.Name) -> ast.expr | None:
    """What a name of a function is given in the one place that binds it."""
    scope = module.scope_of(name)
    bound = scope.bindings.get(name.id, ())
    stmt = module.statement(bound[0]) if len(bound) == 1 else None
    if not isinstance(stmt, ast.Assign) or not any(isinstance(t, ast.Name) and t.id == name.id for t in stmt.targets):
        return None
    return stmt.value
