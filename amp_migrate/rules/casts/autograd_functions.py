"""Autograd functions of the program whose backward computes: it is to run as their forward did, under autocast or not.

Apex: https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use
Native: https://pytorch.org/docs/stable/notes/amp_examples.html#autocast-and-custom-autograd-functions
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.module import FUNCTION_NODES, FunctionNode, Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.casts.functions import is_autograd_function
from amp_migrate.rules.migration import Migration

CUSTOM = "https://pytorch.org/docs/stable/notes/amp_examples.html#autocast-and-custom-autograd-functions"

CODES = (
    Code(
        "AMP520",
        "An autograd function whose backward computes runs it as its forward",
        "autograd.Function",
        apex="O1 patched torch for the whole process: matrix products and convolutions of a backward written by hand, or of "
        "a forward that it repeats (activation checkpointing), were cast like any other.",
        native="Backward passes run outside of autocast. torch.amp.custom_fwd(device_type=...) notes whether the forward ran "
        "under it, torch.amp.custom_bwd(device_type=...) runs the backward in the same way.",
        why="Without them gradients in float16 meet weights in float32, which raises; or what is computed once more is not "
        "what was computed before.",
        links=("https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use", CUSTOM),
        examples=(
            Example(
                "class Product(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, weight):\n"
                "        ctx.save_for_backward(x, weight)\n        return x.mm(weight)\n\n    @staticmethod\n"
                "    def backward(ctx, grad):\n        x, weight = ctx.saved_tensors\n"
                "        return grad.mm(weight.t()), x.t().mm(grad)\n",
                "class Product(torch.autograd.Function):\n    @staticmethod\n"
                '    @torch.amp.custom_fwd(device_type="cuda")\n    def forward(ctx, x, weight):\n'
                "        ctx.save_for_backward(x, weight)\n        return x.mm(weight)\n\n    @staticmethod\n"
                '    @torch.amp.custom_bwd(device_type="cuda")\n    def backward(ctx, grad):\n'
                "        x, weight = ctx.saved_tensors\n        return grad.mm(weight.t()), x.t().mm(grad)\n",
            ),
        ),
    ),
)

# What autocast computes in half, as functions of torch and methods of tensors.
_CAST = frozenset(
    "mm bmm mv matmul addmm addmv addr addbmm baddbmm chain_matmul multi_dot einsum linear bilinear prelu conv1d conv2d "
    "conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc conv2d_input conv2d_weight conv1d_input "
    "conv1d_weight conv3d_input conv3d_weight scaled_dot_product_attention".split()
)
_CUSTOM = frozenset(
    "custom_fwd custom_bwd float_function half_function promote_function disable_casts autocast".split()
)


def apply(m: Migration) -> None:
    """Decorate the forward and backward of each such function that shares a process with the unit."""
    if not m.casts or m.unit.only_inference:
        return
    for module in m.unit.reach:
        if module not in m.unit.tied or "Function" not in module.text or "def backward" not in module.text:
            continue
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and is_autograd_function(m, module, node):
                _function(m, module, node)


def _function(m: Migration, module: Module, cls: ast.ClassDef) -> None:
    methods = {s.name: s for s in cls.body if isinstance(s, FUNCTION_NODES)}
    forward, backward = methods.get("forward"), methods.get("backward")
    if forward is None or backward is None or not _computes(m, module, backward):
        return
    if any(_says(d) & _CUSTOM for f in (forward, backward) for d in f.decorator_list):
        return
    static = [_static(f) for f in (forward, backward)]
    if "setup_context" in methods or None in static:
        m.output.note(
            module,
            backward,
            "AMP520",
            f"{cls.name}.backward",
            "runs outside of autocast, where gradients in float16 meet weights in float32: put what it computes under "
            "torch.autocast where the forward ran so",
            "review",
        )
        return
    earlier = m.earlier.edits.get(module)
    quote = m.style(module).quote
    torch = m.torch(module, module.scope_of(cls))
    for function, decorator, name in zip((forward, backward), static, ("custom_fwd", "custom_bwd"), strict=True):
        assert decorator is not None, "tested above"
        if earlier is not None and decorator in earlier.insertions:
            return  # another unit's, in the same file
        indent = (
            " " * function.col_offset if module.lines[function.lineno - 1][:1] != b"\t" else "\t" * function.col_offset
        )
        newline = "\r\n" if module.lines[function.lineno - 1].endswith(b"\r\n") else "\n"
        text = f"{newline}{indent}@{torch}.amp.{name}(device_type={quote}{m.options.device}{quote})"
        m.edit(module).insert("after", decorator, text)
    m.output.done(module, cls, "AMP520", cls.name, "its backward computes, and runs as its forward did", "look")


def _static(function: FunctionNode) -> ast.expr | None:
    return next((d for d in function.decorator_list if isinstance(d, ast.Name) and d.id == "staticmethod"), None)


def _says(node: ast.AST) -> set[str]:
    return {
        n.attr if isinstance(n, ast.Attribute) else n.id for n in walk(node) if isinstance(n, ast.Attribute | ast.Name)
    }


def _computes(m: Migration, module: Module, function: FunctionNode, depth: int = 3) -> bool:
    """Whether operations that autocast casts run in a function, or forwards once more, through functions of the program
    as well. Code that opens a region of its own has decided for itself."""
    for node in walk(function):
        if isinstance(node, (ast.With, ast.AsyncWith)) and any("autocast" in _says(i.context_expr) for i in node.items):
            return False
    for node in walk(function):
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult):
            return True
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _CAST or name == "enable_grad" or (name == "set_grad_enabled" and _switches_on(node)):
            return True
        for callee in [*m.project.callees(module, node), *_applied(m, module, node.func)] if depth else ():
            if isinstance(callee.node, FUNCTION_NODES) and _computes(m, callee.module, callee.node, depth - 1):
                return True
    return False


def _applied(m: Migration, module: Module, called: ast.expr) -> list[Function]:
    """The forward of another such function that a call runs: `Inner.apply(grad)`, or `inner = Inner.apply` by its name."""
    if isinstance(called, ast.Name):
        called = single_assignment(module, called) or called
    cls = (
        m.project.find_class(module, called.value)
        if isinstance(called, ast.Attribute) and called.attr == "apply"
        else None
    )
    return [] if cls is None or "forward" not in cls.methods else [cls.methods["forward"]]


def _switches_on(call: ast.Call) -> bool:
    return any(isinstance(a, ast.Constant) and a.value is True for a in [*call.args, *(k.value for k in call.keywords)])
