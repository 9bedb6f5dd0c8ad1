"""What a call returns, as far as the program's text tells: one tensor, something else, or nothing that can be known.

A model's forward may return a tensor, a list, a dict or an object that holds several; only a tensor has `.float()`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Literal

from amp_migrate.reading.program.definitions import ClassInfo, Function, dotted
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.occurrences import Occurrences
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import own_nodes
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.table import Value
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
DEPTH = 6  # calls followed into each other


class Returns:
    """What the calls of one program return."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def of(self, module: Module, call: ast.Call) -> Returned:
        """What a call of a model, a method or a function returns."""
        return self._call(module, call, DEPTH)

    def functions(self, module: Module, call: ast.Call) -> Iterator[Function]:
        """The functions of the program whose value a call returns: those it calls, or the forwards of the networks that the
        variable it runs may hold."""
        called = [f for f in self.project.resolved.get(call, ()) if f.name != "__init__"]
        yield from called or self.forwards(module, call.func)

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
            return self.project.find_class(module, made.func.value)
        return None

    def holds_tensor(self, module: Module, variable: ast.expr) -> bool:
        """Whether a variable is only ever given tensors."""
        slot = self.project.slot(module, variable)
        answers = [
            self._call(m, stmt.value, DEPTH) if isinstance(stmt.value, ast.Call) else "unknown"
            for m in self.project.modules
            for stmt in self.project.once(Occurrences, m).assigned_to({slot})
            if not any(isinstance(target, ast.Subscript) for target in stmt.targets)
        ]
        return bool(answers) and set(answers) == {"tensor"}

    def takes_tensor(self, module: Module, func: ast.expr) -> bool:
        """Whether the first thing that is handed to a function must be a tensor: those of torch that compute, and its
        criterions, held in a variable."""
        name = module.qualify(func) or ""
        if name.startswith("torch.") and name.rpartition(".")[2] in TAKES:
            return True
        return any(
            isinstance(v.node, ast.Call)
            and (v.module.qualify(v.node.func) or "").startswith("torch.nn.")
            and _loss(v.node)
            for v in self.made(module, func)
        )

    def made(self, module: Module, func: ast.expr) -> list[Value]:
        """The calls that made what an expression may hold."""
        found = (v for v in self.project.once(Values).may_be(module, func) if v.kind == "call")
        return sorted(
            found, key=lambda v: (v.module.display, getattr(v.node, "lineno", 0), getattr(v.node, "col_offset", 0))
        )

    # -- calls ---------------------------------------------------------------------------------------------------

    def _call(self, module: Module, call: ast.Call, depth: int) -> Returned:
        if depth == 0:
            return "unknown"
        name = module.qualify(call.func) or ""
        last = name.rpartition(".")[2]
        if name.startswith(("torch.nn.functional.", "torch.")) and (last in FLOAT_ARGUMENTS or last in MAKERS):
            return "tensor"
        functions = [f for f in self.project.resolved.get(call, ()) if f.name != "__init__"]
        if functions:
            if any(self._hands_back_several(f, call) for f in functions):
                return "other"
            return _agreed(self._function(f, depth - 1) for f in functions)
        if self.project.find_class(module, call.func) is not None or dotted(call.func) in BUILDERS:
            return "other"
        if isinstance(call.func, ast.Attribute) and call.func.attr in KEEPS:
            return "tensor"
        return self._held(module, call.func, depth)

    def _hands_back_several(self, function: Function, call: ast.Call) -> bool:
        """Whether a function returns a list or a dict that this call builds: `self.masked([mel, gate])`."""
        back = self.project.handed_back(function)
        given = dict(self.project.arguments(function, call))
        return any(isinstance(given.get(name), (ast.List, ast.Tuple, ast.Dict)) for name in back)

    def _held(self, module: Module, func: ast.expr, depth: int) -> Returned:
        """What running a variable that holds a network returns."""
        found = {
            self._network(v.module, v.node, depth) for v in self.made(module, func) if isinstance(v.node, ast.Call)
        }
        return _agreed(answer for answer in found if answer is not None)

    def _network(self, module: Module, made: ast.Call, depth: int) -> Returned | None:
        """What running a network that a call makes returns; None where it only hands one on."""
        cls = self._class_of(module, made)
        if cls is not None:
            return self._class(cls, depth - 1)
        name = module.qualify(made.func) or ""
        last = (dotted(made.func) or "").rpartition(".")[2]
        if isinstance(made.func, ast.Name) and made.func.id == "cls":
            return None  # in a class method, whose caller names the class
        if name == "torch.nn.Sequential" and made.args and depth:
            return self._held(module, made.args[-1], depth - 1)
        if name.startswith("torch.nn.") and name.count(".") == 2:  # torch.nn.Linear
            return "other" if last in SEVERAL else "unknown" if last in HOLDERS else "tensor"
        return None if self.project.resolved.get(made) else "unknown"

    def _class(self, cls: ClassInfo, depth: int) -> Returned:
        forward = cls.method("forward") or cls.method("__call__")
        return self._function(forward, depth) if forward is not None else "unknown"

    def _function(self, function: Function, depth: int) -> Returned:
        if is_generator(function.node):
            return "other"
        values = [node.value for node in own_nodes(function.node.body) if isinstance(node, ast.Return)]
        return _agreed("other" if v is None else self._value(function, v, depth, frozenset()) for v in values)

    # -- expressions of a function -------------------------------------------------------------------------------

    def _value(self, function: Function, value: ast.expr, depth: int, seen: frozenset[str]) -> Returned:
        if isinstance(value, (ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Constant, ast.JoinedStr, ast.Compare)):
            return "other"
        if isinstance(value, (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp, ast.Lambda)):
            return "other"
        if isinstance(value, ast.IfExp):
            return _agreed(self._value(function, v, depth, seen) for v in (value.body, value.orelse))
        if isinstance(value, ast.Call):
            return self._call(function.module, value, depth)
        if isinstance(value, ast.Name):
            return self._name(function, value.id, depth, seen)
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
            return self._value(function, value.operand, depth, seen)
        if isinstance(value, ast.BinOp):
            sides = {self._value(function, v, depth, seen) for v in (value.left, value.right)}
            return "tensor" if "tensor" in sides else "unknown"
        return "unknown"

    def _name(self, function: Function, name: str, depth: int, seen: frozenset[str]) -> Returned:
        """What a local name holds: the same whatever was assigned to it."""
        if name in seen:
            return "unknown"
        found: set[Returned] = set()
        for binding in function.scope.bindings.get(name, ()):
            stmt = function.module.statement(binding)
            if isinstance(binding, ast.arg) or isinstance(stmt, ast.AugAssign):
                continue
            if not isinstance(stmt, ast.Assign) or not any(t is binding for t in stmt.targets):
                return "unknown"
            found.add(self._value(function, stmt.value, depth, seen | {name}))
        # `x = x.squeeze()` of what may not have been a tensor is one all the same, and says nothing where it is unknown.
        return _agreed(found)


def _agreed(found: Iterable[Returned]) -> Returned:
    """One answer of several: where they differ, a forward returns now a tensor and now something else."""
    answers = set(found)
    return answers.pop() if len(answers) == 1 else "unknown"


def _loss(value: ast.Call) -> bool:
    return ast.unparse(value.func).endswith("Loss")
