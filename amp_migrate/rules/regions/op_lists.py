"""Operations that Apex O1 ran in float32 and autocast does not: named, for the results differ a little.

Apex: https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use
Native: https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.rules.migration import Migration

NATIVE = "https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior"
UPCAST = frozenset("torch.nn.functional.gelu torch.nn.GELU torch.std torch.var".split())

CODES = (
    Code(
        "AMP508",
        "An operation that O1 ran in float32 runs in its input's dtype",
        "torch.nn.functional.gelu",
        apex="O1's list of float32 functions holds gelu, std and var.",
        native="Autocast's list does not: they run in the dtype of what they are given, float16 after a matrix product.",
        why="The difference is of the size of float16 rounding. Where it matters, call the operation on input.float().",
        links=("https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use", NATIVE),
    ),
)


def apply(m: Migration) -> None:
    """Name each such operation once a file."""
    if not m.unit.inits or all(i.only("opt_level") in ("O0", "O2", "O3") for i in m.unit.inits):
        return
    for module in m.unit.modules:
        for name, call in m.project.once(_first_calls, module).items():
            short = name.rpartition(".")[2]
            message = f"O1 computed {short} in float32, autocast computes it in its input's dtype: a small difference"
            m.output.note(module, call, "AMP508", name, message, "as-is")


def _first_calls(project: Project, module: Module) -> dict[str, ast.Call]:
    """The first call of each such operation in a file, by its name; see `Project.once`."""
    found: dict[str, ast.Call] = {}
    for call, _ in module.calls:
        name = module.qualify(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
        if name is not None and name in UPCAST:
            found.setdefault(name, call)
    return found
