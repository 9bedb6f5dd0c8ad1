"""What of a network is seen to get no gradient: parts that it makes and never uses, or freezes once it runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Set

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
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


def unused(program: Program, cls: Class) -> Iterator[tuple[str, str]]:
    """What a network makes in `__init__`, with parameters, and does not use where it is trained; with where it does."""
    if not in_sight(program, cls):
        return
    used: set[str] = set()
    evaluated: set[str] = set()
    for c in program.family(cls):
        for node in syntax.walk(c.node):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                if isinstance(node.ctx, ast.Load):
                    (evaluated if _evaluating(c.module, node) else used).add(node.attr)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(node.value)  # getattr(self, "layer1")
    if used.isdisjoint(IN_TURN):
        made = (name for name, call in kept(cls.node) if has_parameters(program, cls, call))
        for name in _unnamed(program, made, used):
            yield name, "only where it is not trained" if name in evaluated else "nowhere"


def _evaluating(module: Module, node: ast.AST) -> bool:
    """Whether a place is only come to where a network is not trained: `if not self.training:`."""
    inner = node
    for around in module.ancestors(node):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(around, ast.If):
            text = syntax.text(around.test)
            if (text == "self.training" and inner in around.orelse) or (
                text == "not self.training" and inner in around.body
            ):
                return True
        inner = around
    return False


def in_sight(program: Program, cls: Class) -> bool:
    """Whether no base out of sight may use what a network makes: a Sequential runs all of it."""
    bases = program.external_bases(cls)
    known = all(".".join(b.split(".")[:2]) in ("torch.nn", "nn.Module") for b in bases)
    return known and not any(b.rpartition(".")[2] == "Sequential" for b in bases)


def kept(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The fields of `self` that are given what a call makes: `self.body = Body()`."""
    for stmt in syntax.every(node, ast.Assign):
        target = stmt.targets[0]
        if (
            isinstance(target, ast.Attribute)
            and syntax.text(target.value) == "self"
            and isinstance(stmt.value, ast.Call)
        ):
            yield target.attr, stmt.value


def _unnamed(program: Program, made: Iterable[str], used: Set[str]) -> Iterator[str]:
    """Of some fields of a network those that it does not use, and that no other code asks it for."""
    yield from (name for name in dict.fromkeys(made) if name not in used and not named_elsewhere(program, name))


def named_elsewhere(program: Program, name: str) -> bool:
    """Whether code asks anything but `self` for a field: `self.bn1` of a class that is none of its family is another's."""
    named = re.compile(rf"(?<!\bself)\.{re.escape(name)}\b(?!\s*=[^=])")
    return any(named.search(m.text) for m in program.modules.values())


# What is asked of a network beside its forward, and runs none of its parts.
ASKED = frozenset(
    "train eval to cuda cpu half float state_dict load_state_dict parameters named_parameters apply requires_grad_".split()
)


def past_forward(program: Program, cls: Class) -> Iterator[tuple[str, str]]:
    """Fields of a network that hold another whose own forward never runs, `self.base.features(x)`, each with a part of that
    which nothing else runs: its head."""
    for init in cls.methods.get("__init__", ()) if in_sight(program, cls) else ():
        for name, call in kept(init.node):
            taken = _taken(program, cls, name)
            if taken is None or not taken - ASKED:
                continue
            for kind in program.definitions(init.scope, call.func, guess=False):
                if isinstance(kind, Class) and program.is_network(kind):
                    yield from ((name, part) for part in _without(program, kind, taken))


def _taken(program: Program, cls: Class, name: str) -> set[str] | None:
    """The attributes that the methods of a class read of one of its fields; None where it is used otherwise: it runs."""
    found: set[str] = set()
    for c in program.family(cls):
        for node in syntax.walk(c.node):
            if not (isinstance(node, ast.Attribute) and node.attr == name and syntax.text(node.value) == "self"):
                continue
            if isinstance(node.ctx, ast.Store):
                continue
            around = c.module.parents.get(node)
            if not isinstance(around, ast.Attribute):
                return None
            found.add(around.attr)
    return found


def _without(program: Program, cls: Class, taken: set[str]) -> Iterator[str]:
    """The parts of a network, with parameters, that neither some attributes of it are nor methods among them use."""
    used, todo = set(taken), list(taken)
    while todo:
        for method in program._method(cls, todo.pop()):
            read = {n.attr for n in syntax.every(method.node, ast.Attribute) if syntax.text(n.value) == "self"}
            todo += read - used
            used |= read
    if in_sight(program, cls) and used.isdisjoint({"forward", "__call__", *IN_TURN}):
        inits = ((c, init) for c in program.family_up(cls) for init in c.methods.get("__init__", ()))
        made = ((c, name, call) for c, init in inits for name, call in kept(init.node))
        yield from _unnamed(program, (name for c, name, call in made if has_parameters(program, c, call)), used)


def has_parameters(program: Program, cls: Class, call: ast.Call) -> bool:
    """Whether what a call makes is a layer with parameters, or a network of the program that has one."""
    scope = cls.module.scope_of(call)
    if (program.dotted(scope, call.func) or "").startswith("torch.nn.Sequential"):
        return any(isinstance(a, ast.Call) and has_parameters(program, cls, a) for a in call.args)
    called = _may_be(cls.module, call.func)
    if any(_layer(program.dotted(scope, kind)) for kind in called):
        return True
    definitions = [d for k in called for d in program.definitions(scope, k, guess=False)]
    if any(_makes_layer(program, d) for d in definitions):
        return True
    kinds = [d for d in definitions if isinstance(d, Class)]
    return any(
        _layer(program.dotted(init.scope, inner.func))
        or any(_makes_layer(program, d) for d in program.definitions(init.scope, inner.func, guess=False))
        for kind in kinds
        if program.is_network(kind)
        for part in nested(program, kind)
        for init in part.methods.get("__init__", ())
        for inner in syntax.every(init.node, ast.Call)
    )


def _makes_layer(program: Program, definition: Function | Class) -> bool:
    """Whether a function makes a layer: `conv_bn_act(3, 8)`."""
    if not isinstance(definition, Function):
        return False
    calls = syntax.every(definition.node, ast.Call)
    return any(_layer(program.dotted(definition.scope, inner.func)) for inner in calls)


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
