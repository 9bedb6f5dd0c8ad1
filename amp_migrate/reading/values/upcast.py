"""Which parts of what a model returns autocast computes in float32 on CUDA devices: what ends in a norm or a softmax.

https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import own_nodes
from amp_migrate.reading.values.returned import Returns
from amp_migrate.reading.values.whole import KEEPS

FUNCTIONS = frozenset(
    "softmax log_softmax softmin softplus layer_norm group_norm normalize cosine_similarity exp log log10 log2 pow sum norm "
    "cumsum cumprod prod rsqrt reciprocal logsumexp".split()
)
LAYERS = frozenset("LayerNorm GroupNorm Softmax LogSoftmax Softmin Softplus CosineSimilarity".split())
DEPTH = 5  # assignments followed


class Upcast:
    """Answers for the calls of one program; see `Project.once`."""

    def __init__(self, returns: Returns) -> None:
        self.returns = returns

    def single(self, module: Module, call: ast.Call) -> bool:
        """Whether the one thing that a call returns is float32, where it runs in a region."""
        return self._all(
            (function, node.value)
            for function in self.returns.functions(module, call)
            for node in own_nodes(function.node.body)
            if isinstance(node, ast.Return) and node.value is not None
        )

    def part(self, module: Module, call: ast.Call, index: int, length: int) -> bool:
        """The same of the part at an index of the `length` parts that a call returns."""
        return self._all(
            (function, node.value.elts[index])
            if isinstance(node.value, ast.Tuple) and len(node.value.elts) == length
            else (function, node.value)
            for function in self.returns.functions(module, call)
            for node in own_nodes(function.node.body)
            if isinstance(node, ast.Return) and node.value is not None
        )

    def _all(self, found: Iterable[tuple[Function, ast.expr]]) -> bool:
        answers = [self._is(function, value, DEPTH) for function, value in found]
        return bool(answers) and all(answers)

    def _is(self, function: Function, node: ast.expr, depth: int) -> bool:
        if depth == 0:
            return False
        if isinstance(node, ast.Name):
            scope, module = function.scope, function.module
            bound = [(b, module.statement(b)) for b in scope.bindings.get(node.id, ())]
            return bool(bound) and all(
                isinstance(stmt, ast.Assign) and binding in stmt.targets and self._is(function, stmt.value, depth - 1)
                for binding, stmt in bound
            )
        if not isinstance(node, ast.Call):
            return False
        name = function.module.qualify(node.func) or ""
        if name.startswith("torch."):
            return name.rpartition(".")[2] in FUNCTIONS and not any(k.arg in ("dtype", "out") for k in node.keywords)
        if isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS:
            return self._is(function, node.func.value, depth - 1)
        made = self.returns.made(function.module, node.func)
        if not made and isinstance(node.func, ast.Attribute) and node.func.attr in FUNCTIONS:  # x.softmax(1)
            own = isinstance(node.func.value, ast.Name) and node.func.value.id == function.scope.self_name
            return not own and not self.returns.project.resolved.get(node) and not node.keywords
        return bool(made) and all(
            isinstance(v.node, ast.Call)
            and (layer := v.module.qualify(v.node.func) or "").startswith("torch.nn.")
            and layer.rpartition(".")[2] in LAYERS
            for v in made
        )
