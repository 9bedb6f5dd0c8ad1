"""What a model is built of, as far as the program's own classes and functions tell."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.review import Review

MOST = 400  # classes and functions that are looked at
HARMLESS = frozenset("torch numpy math logging copy functools collections itertools os sys re time".split())


@dataclass
class Built:
    """The classes of the program that a model has parts of, the layers of torch's by name, and whether that is all."""

    classes: list[Class] = field(default_factory=list)
    layers: set[str] = field(default_factory=set)
    whole: bool = True

    @property
    def surely_without_buffers(self) -> bool:
        """Whether nothing in it keeps statistics or registers a buffer."""
        own = any("register_buffer" in c.module.source(c.node) for c in self.classes)
        return (
            self.whole
            and bool(self.classes)
            and not own
            and not any("Norm" in n and n != "LayerNorm" for n in self.layers)
        )


def built(review: Review, module: Module, model: ast.expr) -> Built:
    """What the model that an expression stands for, after the migration, is built of."""
    found = Built()
    todo: list[Class | Function] = []
    for origin in review.values_after.of(module, model):
        if not isinstance(origin.node, ast.Call):
            found.whole = False
            continue
        func = origin.node.func
        if isinstance(func, ast.Attribute) and func.attr == "from_pretrained":
            func = func.value
        own = review.after.definitions(origin.module.scope_of(origin.node), func, guess=False)
        found.whole = found.whole and bool(own)
        todo += own
    for part in todo:
        if len(todo) > MOST:
            found.whole = False
            break
        if isinstance(part, Class):
            found.classes.append(part)
            todo += [c for c in review.after.family_up(part) if c not in todo]
        for call in syntax.every(part.node, ast.Call):
            _called(review, part.module, call, todo, found)
    return found


def _called(review: Review, module: Module, call: ast.Call, todo: list[Class | Function], found: Built) -> None:
    scope = module.scope_of(call)
    own = review.after.definitions(scope, call.func, guess=False)
    if own:
        todo += [d for d in own if d not in todo]
        return
    name = review.after.dotted(scope, call.func)
    if name is None:
        found.whole = found.whole and not _makes(review, module, call)
    elif name.startswith("torch.nn.") and name.rpartition(".")[2][:1].isupper():
        found.layers.add(name.rpartition(".")[2])
    elif name.partition(".")[0] not in HARMLESS:
        found.whole = False  # a library's
    elif name.startswith("torch.hub"):
        found.whole = False


def _makes(review: Review, module: Module, call: ast.Call) -> bool:
    """Whether a call of something that is not seen may make a part: `block(planes)` of a parameter, `self.kind(8)`."""
    if isinstance(call.func, ast.Name):
        bound = module.scope_of(call).binder(call.func.id)
        return bound is not None and any(isinstance(n, ast.arg) for n in bound.bindings.get(call.func.id, ()))
    function = module.function_around(call)
    inner = (
        isinstance(call.func, ast.Attribute)
        and review.after.is_self(module.scope_of(call), call.func.value) is not None
    )
    return inner and function is not None and function.name == "__init__"
