"""Parameters and buffers that a network makes itself: under O2 they were half, and now they are float32."""

from __future__ import annotations

import ast

from amp_migrate.audit import dtypes as known
from amp_migrate.audit.program.module import Class, Module, Scope
from amp_migrate.audit.values.values import Values

MAKING = frozenset(f"torch.{name}" for name in known.MAKING)
MADE = MAKING | {"torch.Tensor", "torch.FloatTensor"}
KEEPING = frozenset("to cuda cpu float double astype clone detach requires_grad_".split())  # dimensions
PARAMETERS = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")


class Weights:
    """The attributes of networks that are tensors of numbers along some dimension. Without one, a tensor promotes nothing."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.program = values.program
        self._made: dict[tuple[Class, str], bool] = {}

    def made(self, scope: Scope, expr: ast.Attribute, owner: Class) -> bool:
        """Whether an attribute of a network, read in one of its methods, is such a tensor that the network made."""
        key = owner, expr.attr
        if key not in self._made:
            buffer = self._buffer(owner, expr.attr)
            origins = self.values.origins(scope, expr) if buffer is None else ()
            given = [buffer] if buffer is not None else [(o.module, o.node) for o in origins]
            self._made[key] = bool(given) and all(self._sized(module, node) for module, node in given)
        return self._made[key]

    def _buffer(self, owner: Class, name: str) -> tuple[Module, ast.AST] | None:
        """What a network registers as a buffer: `self.register_buffer("t", torch.zeros(1))`."""
        for cls in self.program.family_up(owner):
            for call, holder in cls.module.method_calls("register_buffer"):
                named = len(call.args) > 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == name
                if named and self.program.is_self(cls.module.scope_of(call), holder) is cls:
                    return cls.module, call.args[1]
        return None

    def _sized(self, module: Module, node: ast.AST) -> bool:
        """Whether a call makes numbers along some dimension: `nn.Parameter(torch.ones(size))`, `torch.Tensor(size).normal_()`,
        `0.02 * torch.randn(size)`."""
        if isinstance(node, ast.BinOp):
            return self._sized(module, node.left) or self._sized(module, node.right)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            return self._sized(module, node.func.value)
        if not isinstance(node, ast.Call) or not node.args:
            return False
        name, first = self.program.dotted(module.scope_of(node), node.func), node.args[0]
        if name in PARAMETERS:
            return self._sized(module, first)
        empty = isinstance(first, (ast.List, ast.Tuple)) and not first.elts
        return name in MADE and not empty and not any(k.arg == "dtype" for k in node.keywords)

    def flat(self, scope: Scope, expr: ast.expr) -> bool:
        """Whether a variable holds a tensor of one dimension, as it is made: an item of it promotes nothing."""
        origins = self.values.origins(scope, expr)
        return bool(origins) and all(not o.path and self._flat(o.module, o.node) for o in origins)

    def _flat(self, module: Module, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name, first = self.program.dotted(module.scope_of(node), node.func), next(iter(node.args), None)
        if name in (*PARAMETERS, "torch.from_numpy") and first is not None:
            return self._flat(module, first)
        if (
            name in ("torch.tensor", "torch.Tensor", "torch.FloatTensor", "torch.as_tensor", "numpy.array")
            and first is not None
        ):
            return isinstance(first, (ast.List, ast.Tuple)) and all(
                isinstance(e, (ast.Constant, ast.UnaryOp)) for e in first.elts
            )
        if name in MAKING:
            sizes = [a for a in node.args if isinstance(a, ast.Constant) and type(a.value) is int]
            return name == "torch.linspace" or (len(node.args) == len(sizes) == 1)
        moved = isinstance(node.func, ast.Attribute) and name is None and node.func.attr in KEEPING
        return moved and isinstance(node.func, ast.Attribute) and self._flat(module, node.func.value)
