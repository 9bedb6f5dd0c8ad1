"""What of a network is seen to get no gradient: parts that it makes and never uses, or freezes once it runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.program.program import Program

WITH_PARAMETERS = frozenset(
    "Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Embedding EmbeddingBag LSTM GRU "
    "RNN LayerNorm BatchNorm1d BatchNorm2d BatchNorm3d GroupNorm MultiheadAttention PReLU".split()
)
IN_TURN = frozenset({"children", "named_children", "_modules"})  # how a network runs whatever it has
RUNS = ("train", "forward")


def nested(program: Program, cls: Class) -> list[Class]:
    """A network of the program with those that it is made of, all the way."""
    found = [cls]
    for c in found:
        found += [n for f in program.family_up(c) for n in dict.fromkeys(_made(program, f)) if n not in found]
    return found


def _made(program: Program, cls: Class) -> Iterator[Class]:
    """The networks of the program that a class makes."""
    for init in cls.methods.get("__init__", ()):
        for call in syntax.every(init.node, ast.Call):
            for made in program.definitions(init.scope, call.func, guess=False):
                if isinstance(made, Class) and program.is_network(made):
                    yield made


def unused(program: Program, cls: Class) -> Iterator[str]:
    """What a network makes in `__init__`, with parameters, and uses nowhere."""
    if any(".".join(b.split(".")[:2]) not in ("torch.nn", "nn.Module") for b in program.external_bases(cls)):
        return  # a base out of sight may use what is made here
    used: set[str] = set()
    made: dict[str, None] = {}
    for c in program.family(cls):
        for node in syntax.walk(c.node):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                if isinstance(node.ctx, ast.Load):
                    used.add(node.attr)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(node.value)  # getattr(self, "layer1")
            if isinstance(node, ast.Assign) and c is cls and isinstance(node.value, ast.Call):
                target = node.targets[0]
                if isinstance(target, ast.Attribute) and syntax.text(target.value) == "self":
                    if _has_parameters(program, c, node.value):
                        made[target.attr] = None
    if not used.isdisjoint(IN_TURN):
        return
    text_elsewhere = [m.text for m in program.modules.values()]
    for name in made:
        # `self.bn1` of a class that is none of its family is another's.
        named = re.compile(rf"(?<!\bself)\.{re.escape(name)}\b(?!\s*=[^=])")
        if name not in used and not any(named.search(t) for t in text_elsewhere):
            yield name


def _has_parameters(program: Program, cls: Class, call: ast.Call) -> bool:
    """Whether what a call makes is a layer with parameters, or a network of the program that has one."""
    scope = cls.module.scope_of(call)
    called = _may_be(cls.module, call.func)
    if any(_layer(program.dotted(scope, kind)) for kind in called):
        return True
    kinds = [d for k in called for d in program.definitions(scope, k, guess=False) if isinstance(d, Class)]
    return any(
        _layer(program.dotted(init.scope, inner.func))
        for kind in kinds
        if program.is_network(kind)
        for part in nested(program, kind)
        for init in part.methods.get("__init__", ())
        for inner in syntax.every(init.node, ast.Call)
    )


def _may_be(module: Module, called: ast.expr) -> list[ast.expr]:
    """What a local name of a class may stand for: `norm = nn.BatchNorm2d` in one branch, another in the other."""
    scope = module.scope_of(called)
    if not isinstance(called, ast.Name) or scope.binder(called.id) is not scope:
        return [called]
    bound = scope.bindings.get(called.id, ())
    return [b.value for b in bound if isinstance(b, ast.Assign)] or [called]


def _layer(dotted: str | None) -> bool:
    return dotted is not None and dotted.startswith("torch.nn.") and dotted.rpartition(".")[2] in WITH_PARAMETERS


def frozen_later(program: Program, cls: Class) -> int | None:
    """The line at which a network's own `train()` or forward switches off gradients of parameters, itself or in a method
    that it calls for that: of a network that is wrapped, these have been announced."""
    for name in RUNS:
        for method in cls.methods.get(name, ()):
            called = [
                f
                for call in syntax.every(method.node, ast.Call)
                if isinstance(call.func, ast.Attribute) and syntax.text(call.func.value) == "self"
                for f in program._method(cls, call.func.attr)
            ]
            for function in (method, *called):
                if (line := _freezes(function.node)) is not None:
                    return line
    return None


def _freezes(function: ast.AST) -> int | None:
    for node in syntax.walk(function):
        off: ast.expr | None = None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            off = node.value if _of_weights(node.targets[0], "requires_grad") else None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            off = node.args[0] if _of_weights(node.func, "requires_grad_") else None
        if isinstance(off, ast.Constant) and off.value is False:
            return getattr(node, "lineno", None)
    return None


def _of_weights(node: ast.Attribute, name: str) -> bool:
    """`m.weight.requires_grad`, `param.requires_grad`: not that of an input."""
    return node.attr == name and bool(re.search(r"(weight|bias|^p|param)\w*$", syntax.text(node.value)))
