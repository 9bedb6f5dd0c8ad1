"""What reads gradients or runs a backward, as far as no unit has a say in it: found once for the whole program."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from amp_migrate.reading.gradients.attributes import GradAttributes, input_like, parameter_like
from amp_migrate.reading.gradients.directions import is_read
from amp_migrate.reading.gradients.named_methods import NamedMethods
from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project

READER_NAMES = re.compile(
    r"(clip_grad|clip_master_grads|grad_?norm|gradient_?clip|clip_?gradient|grad_?clip|log_grad|get_total_norm|check_grad|adaptive_clip)",
    re.IGNORECASE,
)
NOT_READERS = frozenset(
    "zero_grad set_grad_enabled no_grad enable_grad is_grad_enabled requires_grad_ requires_grad".split()
)
_VARIABLES = (ast.Name, ast.Attribute, ast.Subscript)


@dataclass(frozen=True)
class Body:
    """What the statements of a function, those of nested functions included, have to do with gradients."""

    reads: bool  # by themselves, or by the name of what they call
    called: frozenset[Slot]  # the variables that its calls run: one may hold a reader
    methods: tuple[Function, ...]  # `__call__` of the objects that its calls run, and methods run by their name
    followed: tuple[Function, ...]  # the project's functions that its calls run


class GradientUses:
    """Answers for the nodes and functions of one program; see `Project.once`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.grads = GradAttributes()
        self.named = project.once(NamedMethods)
        self._reads: dict[ast.AST, bool] = {}
        self._bodies: dict[Function, Body] = {}
        self.reading: dict[tuple[Function, int], bool] = {}  # what units that have no say in it found out
        self._backwards: dict[tuple[Function, int], bool] = {}

    def reads(self, module: Module, node: ast.AST) -> bool:
        """Whether an expression itself reads gradients, or calls by its name something that does."""
        if not isinstance(node, (ast.Attribute, ast.Call)):
            return False
        if node not in self._reads:
            self._reads[node] = (
                reads_by_name(called_name(node)) if isinstance(node, ast.Call) else self._grad(module, node)
            )
        return self._reads[node]

    def _grad(self, module: Module, node: ast.Attribute) -> bool:
        return is_read(module, node) and self.grads.reads(module, node) and not self._of_given_input(module, node.value)

    def _of_given_input(self, module: Module, tensor: ast.expr) -> bool:
        """Whether each call gives a function, for a parameter, a tensor that is made to require gradients there, as inputs are."""
        function = self.project.function_of(module, tensor)
        if function is None or not isinstance(tensor, ast.Name) or tensor.id not in function.scope.params:
            return False
        calls = self.project.calls.get(function, ())
        given = [(where, dict(self.project.arguments(function, call)).get(tensor.id)) for where, call in calls]
        return bool(given) and all(
            isinstance(value, ast.Name) and not parameter_like(value) and input_like(where, value)
            for where, value in given
        )

    def body(self, function: Function) -> Body:
        """What is known of a function's body."""
        if function not in self._bodies:
            self._bodies[function] = self._body(function)
        return self._bodies[function]

    def _body(self, function: Function) -> Body:
        module = function.module
        calls = [n for n in function.inside if isinstance(n, ast.Call) and called_name(n) not in NOT_READERS]
        followed = (f for n in calls for f in self.followed(n))
        slots, methods = set[Slot](), dict[Function, None]()
        for call in calls:
            slots.update(self.slots(module, call))
            methods.update(dict.fromkeys(self.methods(module, call)))
        reads = any(self.reads(module, n) for n in function.inside)
        return Body(reads, frozenset(slots), tuple(methods), tuple(dict.fromkeys(followed)))

    def followed(self, call: ast.Call) -> list[Function]:
        """The project's functions in which a call may read gradients."""
        if called_name(call) in ("backward", "step"):
            return []
        return [f for f in self.project.resolved.get(call, ()) if f.name != "__init__"]

    def slots(self, module: Module, call: ast.Call) -> list[Slot]:
        """The variable or attribute that a call runs; of an item, what holds it as well: it may be put there under any key."""
        func = call.func
        parts = [func, func.value] if isinstance(func, ast.Subscript) else [func]
        found = [self.project.slot(module, part) for part in parts if isinstance(part, _VARIABLES)]
        return [slot for slot in found if slot is not None]

    def methods(self, module: Module, call: ast.Call) -> list[Function]:
        """The `__call__` that a call runs, where what it calls is an object of the project's classes; the methods whose
        name it is given."""
        named = self.named.run(call)
        if not isinstance(call.func, _VARIABLES):
            return named
        methods = (cls.method("__call__") for cls in self.project.classes_of(module, call.func))
        return [*named, *(m for m in methods if m is not None)]

    # -- backward ------------------------------------------------------------------------------------------------

    def runs_backward(self, node: ast.AST, depth: int = 3) -> bool:
        """Whether an expression runs a backward; `depth` is how many calls are followed."""
        if not isinstance(node, ast.Call):
            return False
        functions = self.project.resolved.get(node, [])
        if isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            return not functions or (depth > 0 and any(self._has_backward(f, depth - 1) for f in functions))
        return depth > 0 and any(self._has_backward(f, depth - 1) for f in functions if f.name != "__init__")

    def _has_backward(self, function: Function, depth: int) -> bool:
        key = (function, depth)
        if key not in self._backwards:
            self._backwards[key] = any(self.runs_backward(n, depth) for n in function.inside)
        return self._backwards[key]


def reads_by_name(name: str) -> bool:
    """Whether a function is named as those are that read gradients: `clip_grad_norm_`."""
    return READER_NAMES.search(name) is not None and not name.startswith(("set_", "add_")) and name not in NOT_READERS
