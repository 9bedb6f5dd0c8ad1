"""`torch.autograd.grad` of a loss inside the training step: scaled like every backward, and divided back.

Native: https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-penalty
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.gradients.carried import may_carry_scale
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.migration import Migration

LINK = "https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-penalty"

CODES = (
    Code(
        "AMP206",
        "A gradient penalty scales the loss and divides the gradient back",
        "torch.autograd.grad",
        apex="autograd.grad runs unscaled: small float16 gradients vanish.",
        native="autograd.grad(scaler.scale(loss), ...) outside autocast, divided by the scale; the penalty under autocast.",
        why="Otherwise the penalty is computed from underflowed gradients, or from scaled ones.",
        links=(LINK,),
        examples=(
            Example(
                "gradient = torch.autograd.grad(loss, x, create_graph=True)[0]",
                "gradient = torch.autograd.grad(scaler.scale(loss), x, create_graph=True)[0] / scaler.get_scale()",
            ),
        ),
    ),
)


def apply(m: Migration) -> None:
    if not m.scales:
        return
    for module in dict.fromkeys(loss.module for loss in m.unit.losses):
        for node in m.project.once(_penalties, module):
            if m.live(module, node):
                _migrate(m, module, node)


def _penalties(project: Project, module: Module) -> list[ast.Call]:
    if "autograd" not in module.text:
        return []
    return [n for n in walk(module.tree) if isinstance(n, ast.Call) and is_penalty(module, n)]


def is_penalty(module: Module, node: ast.AST) -> bool:
    """`torch.autograd.grad(loss, x, create_graph=True)[0]`: the gradient of one input, differentiated again."""
    if not isinstance(node, ast.Call) or module.qualify(node.func) not in (
        "torch.autograd.grad",
        "torch.autograd.functional.grad",
    ):
        return False
    graph = any(
        k.arg == "create_graph" and not (isinstance(k.value, ast.Constant) and k.value.value is False)
        for k in node.keywords
    )
    parent = module.parents.get(node)
    return graph and isinstance(parent, ast.Subscript) and bool(node.args or node.keywords)


def _migrate(m: Migration, module: Module, node: ast.Call) -> None:
    scope = module.scope_of(node)
    if not any(loss.module is module and module.scope_of(loss.call) is scope for loss in m.unit.losses):
        return
    outputs = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "outputs"), None)
    parent = module.parents[node]
    if outputs is None or not isinstance(parent, ast.Subscript):
        return
    if may_carry_scale(m.project, m.unit.losses, module, outputs):
        m.output.note(
            module,
            node,
            "AMP206",
            "torch.autograd.grad",
            "not scaled again: what it differentiates is multiplied by the loss scale already, or may be, as with Apex",
            "look",
        )
        return
    if m.regions.read(scope).outputs.holds(outputs):
        m.output.note(
            module,
            node,
            "AMP206",
            "torch.autograd.grad",
            "left unscaled, as Apex ran it: the outputs may be float16, in which their gradient, the scale, is infinite",
            "look",
        )
        return
    scaler = m.scaler_at(module, node)
    edits = m.edit(module)
    edits.insert("before", outputs, f"{scaler}.scale(")
    edits.insert("after", outputs, ")")
    edits.insert("after", parent, f" / {scaler}.get_scale()")
    m.output.note(
        module, node, "AMP206", "torch.autograd.grad", "scaled for the inner gradient, divided back after", "look"
    )
