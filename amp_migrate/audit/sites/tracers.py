"""Functions that run a model they are given: a trace, an export, a summary are forwards as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program

# What runs a model on inputs that follow it: by full name; by the last name, where the object is out of sight.
TRACERS = {
    "torch.jit.trace": "example_inputs",
    "torch.onnx.export": "args",
    "torch.onnx.dynamo_export": "args",
    "torch.export.export": "args",
    "thop.profile": "inputs",
}
METHODS = {"add_graph": "input_to_model"}


@dataclass(frozen=True, eq=False)
class Traced:
    """One such call: the model and the tensors that it is run on."""

    module: Module
    call: ast.Call
    model: ast.expr
    inputs: tuple[ast.expr, ...]


def traced(program: Program, module: Module) -> Iterator[Traced]:
    """The calls of a file that trace, export or sum up a model."""
    last = {n.rpartition(".")[2] for n in TRACERS} | set(METHODS)
    for name in last & module.words:
        for call in module.calls_named.get(name, ()):
            full = program.dotted(module.scope_of(call), call.func)
            keyword = TRACERS.get(full or "") if full is not None else METHODS.get(name)
            if keyword is None or not call.args or isinstance(call.args[0], ast.Starred):
                continue
            given = call.args[1:2] or [k.value for k in call.keywords if k.arg == keyword]
            inputs = [e for g in given for e in (g.elts if isinstance(g, (ast.Tuple, ast.List)) else [g])]
            yield Traced(module, call, call.args[0], tuple(inputs))
