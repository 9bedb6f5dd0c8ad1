"""Which parts of what a model returns autocast computes in float32 on CUDA devices: what ends in a norm or a softmax.

https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.values.table import Value
from amp_migrate.reading.values.whole import KEEPS, Certain

FUNCTIONS = frozenset(
    "softmax log_softmax softmin softplus layer_norm group_norm normalize cosine_similarity exp log log10 log2 pow sum norm "
    "cumsum cumprod prod rsqrt reciprocal logsumexp".split()
)
LAYERS = frozenset("LayerNorm GroupNorm Softmax LogSoftmax Softmin Softplus CosineSimilarity".split())


class Upcast(Certain):
    """Answers for the calls of one program; see `Project.once`."""

    def single(self, module: Module, call: ast.Call) -> bool:
        """Whether the one thing that a call returns is float32, where it runs in a region."""
        return self._all(self.returns.given_back(module, call))

    def part(self, module: Module, call: ast.Call, index: int, length: int) -> bool:
        """The same of the part at an index of the `length` parts that a call returns."""
        return self._all(
            (home, value.elts[index] if isinstance(value, ast.Tuple) and len(value.elts) == length else value)
            for home, value in self.returns.given_back(module, call)
        )

    def _all(self, found: Iterable[tuple[Module, ast.expr]]) -> bool:
        answers = [self.of(module, value) for module, value in found]
        return bool(answers) and all(answers)

    def _told(self, value: Value) -> bool:
        module, node = value.module, value.node
        if value.kind != "call" or not isinstance(node, ast.Call):
            return False
        name = module.qualify(node.func) or ""
        if name.startswith("torch."):
            return name.rpartition(".")[2] in FUNCTIONS and not any(k.arg in ("dtype", "out") for k in node.keywords)
        if isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS:
            return self.of(module, node.func.value)
        made = self.returns.made(module, node.func)
        if not made and isinstance(node.func, ast.Attribute) and node.func.attr in FUNCTIONS:  # x.softmax(1)
            own = isinstance(node.func.value, ast.Name) and node.func.value.id == module.scope_of(node).self_name
            return not own and not self.project.resolved.get(node) and not node.keywords
        return bool(made) and all(
            isinstance(v.node, ast.Call)
            and (layer := v.module.qualify(v.node.func) or "").startswith("torch.nn.")
            and layer.rpartition(".")[2] in LAYERS
            for v in made
        )
