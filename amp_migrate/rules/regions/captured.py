"""What is captured into a CUDA graph: a graph replays the kernels of its capture, whatever stands around the replay.

Apex: https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use
Native: https://pytorch.org/docs/stable/notes/cuda.html#usage-with-torch-cuda-amp
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP521",
        "Training that is captured into a CUDA graph",
        "torch.cuda.graph",
        apex="Casts with patched functions, in the capture as anywhere; with a static scale nothing in a step waits for the "
        "device.",
        native="Capture within the region, which is entered anew there: with torch.autocast(..., cache_enabled=False) around "
        "make_graphed_callables, and around the forward in a torch.cuda.graph. scaler.step and scaler.update ask the device "
        "whether gradients overflowed, and stand outside of the capture.",
        why="A region around the call of a graphed module casts nothing: its kernels were chosen when it was captured. A "
        "capture that waits for the device is an error.",
        links=(
            "https://pytorch.org/docs/stable/notes/cuda.html#usage-with-torch-cuda-amp",
            "https://pytorch.org/docs/stable/generated/torch.cuda.make_graphed_callables.html",
        ),
    ),
)

_GRAPH = ("torch.cuda.graph", "torch.cuda.graphs.graph")
_CALLABLES = ("torch.cuda.make_graphed_callables", "torch.cuda.graphs.make_graphed_callables")
# Of what a step is made; a capture of anything else is none of the unit's.
_STEP = frozenset(("backward", "step", "scale_loss"))


def apply(m: Migration) -> None:
    """Raise Blocked where code that shares a process with the unit captures a forward, a backward or a step."""
    for module in m.unit.reach:
        if module not in m.unit.tied or not any(
            w in module.text for w in ("graphed_callables", "cuda.graph", "CUDAGraph")
        ):
            continue
        for call, _ in module.calls:
            name = m.project.qualify(module, call.func)
            captures = isinstance(call.func, ast.Attribute) and call.func.attr == "capture_begin"
            if name in _CALLABLES or captures or (name in _GRAPH and _trains(m, module, call)):
                if m.live(module, call):
                    raise Blocked(module, call, "AMP521", module.source(call.func), _MESSAGE)


_MESSAGE = (
    "a CUDA graph is captured here, and replays what autocast chose while it was captured: capture under "
    "torch.autocast(..., cache_enabled=False), and leave scaler.step and scaler.update outside"
)


def _trains(m: Migration, module: Module, call: ast.Call) -> bool:
    """Whether the block under `with torch.cuda.graph(...)` runs a model or a part of a step, or functions of the program."""
    stmt = module.statement(call)
    if not isinstance(stmt, (ast.With, ast.AsyncWith)):
        return True
    for node in (n for s in stmt.body for n in walk(s)):
        if isinstance(node, ast.Call):
            if called_name(node) in _STEP or m.regions.is_forward(module, node) or m.project.callees(module, node):
                return True
    return False
