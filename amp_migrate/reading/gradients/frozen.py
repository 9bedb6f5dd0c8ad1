"""Which parameters lose their gradients once a model is wrapped: an encoder that is frozen for some epochs."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.logic import LOOKING
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk


def frozen_after(module: Module, stmt: ast.stmt, model: str) -> ast.AST | None:
    """Where a part of a model is frozen below a statement of the same function: `for p in model.module.encoder.parameters():
    p.requires_grad = False`. A model that is frozen whole is not trained."""
    scope = module.scope_of(stmt)
    for node in module.nodes:
        if module.scope_of(node) is not scope or getattr(node, "lineno", 0) <= stmt.lineno:
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
            if any(_false(v) for v in (*node.args, *(k.value for k in node.keywords))):
                if _is_part(ast.unparse(node.func.value), model):
                    return node
        if isinstance(node, ast.For) and any(_freezes(n) for n in walk(node)):
            iterated = node.iter.func if isinstance(node.iter, ast.Call) else node.iter
            if isinstance(iterated, ast.Attribute) and iterated.attr in ("parameters", "named_parameters"):
                holder = ast.unparse(iterated.value)
                if _is_part(holder, model) or (holder in (model, f"{model}.module") and _chooses(node)):
                    return node
        if isinstance(node, ast.Assign) and _freezes(node):  # one parameter: `model.module.gate.requires_grad = False`
            if any(_is_part(ast.unparse(t.value), model) for t in node.targets if isinstance(t, ast.Attribute)):
                return node
    return None


def frozen_whole(module: Module, stmt: ast.stmt, model: str) -> ast.AST | None:
    """Where all of a model is frozen above a statement of the same function, on every way to it, and nothing of it is trained
    again before: `for p in model.parameters(): p.requires_grad = False`."""
    scope, around = module.scope_of(stmt), {*module.ancestors(stmt)}
    found: ast.AST | None = None
    for node in sorted(module.nodes, key=lambda n: getattr(n, "lineno", 0)):
        if module.scope_of(node) is not scope or getattr(node, "lineno", 0) >= stmt.lineno:
            continue
        sure = all(a in around for a in module.ancestors(node) if isinstance(a, (ast.If, ast.For, ast.While, ast.Try)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
            off = any(_false(v) for v in (*node.args, *(k.value for k in node.keywords)))
            on = ast.unparse(node.func.value)
            if on == model and off:
                found = node if sure else None
            elif on == model or on.startswith(f"{model}."):
                found = found if off else None
        elif (
            isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Attribute)
        ):
            holder = ast.unparse(node.iter.func.value)
            if node.iter.func.attr in ("parameters", "named_parameters") and _is_of(holder, model):
                if holder == model and not _chooses(node) and any(_freezes(n) for n in node.body):
                    found = node if sure else None
                elif any(isinstance(n, ast.Attribute) and n.attr in GRADIENTS for n in walk(node)):
                    found = None
        elif isinstance(node, ast.Assign):
            written = [ast.unparse(t) for t in node.targets]
            kept = isinstance(node.value, ast.Call) and model in ast.unparse(node.value)  # `model = model.cuda()`
            if (model in written and not kept) or any(t.startswith(f"{model}.") for t in written):
                found = None  # another one, a head of its own: `model.fc = nn.Linear(...)`
        elif isinstance(node, ast.Call) and not _converting(node):
            if any(_is_of(ast.unparse(v), model) for v in (*node.args, *(k.value for k in node.keywords))):
                found = None  # which may set some of it free
    return found


def _converting(call: ast.Call) -> bool:
    """Whether a call that is given a model makes another of it, or only looks: `DDP(model)`, `convert_syncbn_model(model)`,
    `amp.initialize(model, optimizer)`, `torch.optim.SGD(...)`, `len(model)`."""
    name = ast.unparse(call.func).rpartition(".")[2]
    return name[:1].isupper() or name in CONVERTING


CONVERTING = LOOKING | {"convert_syncbn_model", "convert_sync_batchnorm", "initialize", "repr"}


GRADIENTS = frozenset({"requires_grad", "requires_grad_"})


def _is_of(text: str, model: str) -> bool:
    return text == model or text.startswith(f"{model}.")


def _is_part(text: str, model: str) -> bool:
    return text.startswith(f"{model}.") and text != f"{model}.module"


def _chooses(loop: ast.For) -> bool:
    return any(isinstance(n, ast.If) and any(_freezes(s) for s in walk(n)) for n in loop.body)


def _freezes(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign) or not _false(node.value):
        return False
    return any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets)


def _false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False
