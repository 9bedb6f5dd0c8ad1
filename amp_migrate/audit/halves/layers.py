"""Which layer, of torch's or of the program, a callable is."""

from __future__ import annotations

import ast

from amp_migrate.audit import dtypes as known
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Scope
from amp_migrate.audit.sites.mentioned import Mentioned
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.values.origins import in_order
from amp_migrate.audit.values.values import Values

EMPTY = frozenset("list dict set OrderedDict defaultdict deque".split())


class Layers:
    """What the callables of a program are, as far as it is seen how they are made."""

    def __init__(self, values: Values, runs: Mentioned) -> None:
        """`runs`: what a run with mixed precision may come to; a library has setters that every network of it may be given to."""
        self.values = values
        self.program = values.program
        self.runs = runs

    def one(self, scope: Scope, func: ast.expr) -> str | Class | None:
        """What a callable is: `Linear` of torch.nn, or a class of the program; None where it may be several."""
        found = self.all(scope, func)
        return found[0] if len(found) == 1 else None

    def all(self, scope: Scope, func: ast.expr) -> list[str | Class]:
        """What a callable may be; empty where that is not seen."""
        found = self._seen(scope, func) or [
            kind if isinstance(kind, Class) else kind.rpartition(".")[2]
            for kind in self.values.instances.of(scope, func)
        ]
        found = found or self._inherited(scope, func)
        return [kind for kind in found if isinstance(kind, str) or self.runs.cls(kind)] or found

    def _seen(self, scope: Scope, func: ast.expr) -> list[str | Class]:
        """The same where all that makes it is seen."""
        if isinstance(func, ast.Call):
            return self._made(scope, func)
        if isinstance(func, ast.Attribute) and func.attr == "forward" and syntax.text(func.value).startswith("super("):
            cls = self.program.class_around(scope)
            return self._bases(cls) if cls is not None else []
        found: list[str | Class] = []
        for origin in in_order(self.values.origins(scope, func)):
            if origin.kind == "function" or (isinstance(origin.node, ast.Constant) and origin.node.value is None):
                continue
            if origin.path and starts_empty(origin.node):
                continue
            if not isinstance(origin.node, ast.Call):
                return []
            made = self._made(origin.module.scope_of(origin.node), origin.node)
            if not made:
                return []
            found += made
        return list(dict.fromkeys(found))

    def _inherited(self, scope: Scope, func: ast.expr) -> list[str | Class]:
        """The encoder that a class has of a library's that it is made from: `self.bert` of a `BertForTokenClassification`."""
        owner = self.program.is_self(scope, func.value) if isinstance(func, ast.Attribute) else None
        if owner is None or not isinstance(func, ast.Attribute):
            return []
        bases = [name.split(".") for name in self.program.external_bases(owner)]
        kinds = [b[-1].partition("For")[0] for b in bases if b[0] in known.ENCODING and "For" in b[-1]]
        held = [f"{k}Model" for k in kinds if func.attr in (k.lower(), known.HELD_AS.get(k))]
        return [name for name in held if name in known.ENCODERS]

    def _made(self, there: Scope, call: ast.Call, depth: int = 0) -> list[str | Class]:
        """What a call makes: a layer of torch's, a class of the program that has a forward; what a Sequential ends in."""
        classes = [d for d in self.program.definitions(there, call.func, guess=False) if isinstance(d, Class)]
        name = _layer_name(self.program.dotted(there, call.func))
        if name is not None and not classes:
            return [name]
        found: list[str | Class] = []
        if not classes and isinstance(
            call.func, ast.Name
        ):  # block(inplanes, planes), norm_layer(planes), of a parameter
            for origin in in_order(self.values.origins(there, call.func)):
                kind, scope = origin.node, origin.module.scope_of(origin.node)
                if isinstance(kind, ast.Call) and kind.args and last_name(kind.func) == "partial":
                    kind = kind.args[0]
                if isinstance(kind, ast.ClassDef):
                    classes.append(origin.module.class_of[kind])
                elif isinstance(kind, ast.Constant) and kind.value is None:
                    continue
                elif isinstance(kind, ast.expr) and (name := _layer_name(self.program.dotted(scope, kind))):
                    found.append(name)
                else:
                    return []
        for cls in classes:
            found += [cls] if self.program._method(cls, "forward") else self._bases(cls) or [cls]
        if found or depth > 2 or self.program.dotted(there, call.func) != "torch.nn.Sequential" or not call.args:
            return found
        last = call.args[-1]
        if not isinstance(last, ast.Starred):
            return self._of_sequence(there, call.args, depth)
        for origin in in_order(self.values.origins(there, last.value, (None,))):  # nn.Sequential(*layers): any of them
            node = origin.node
            if starts_empty(node):
                continue
            made = self._made(origin.module.scope_of(node), node, depth + 1) if isinstance(node, ast.Call) else []
            if not made or origin.path:
                return []
            found += made
        return found

    def _of_sequence(self, there: Scope, layers: list[ast.expr], depth: int) -> list[str | Class]:
        """What decides on the dtype of what layers in a row give: the last, but for those that keep what they are given."""
        last: list[str | Class] = []
        for layer in reversed(layers):
            made = self._made(there, layer, depth + 1) if isinstance(layer, ast.Call) else []
            last = last or made
            if not made or any(not isinstance(m, str) or m not in known.KEEPING_LAYERS for m in made):
                return made or last
        return last

    def _bases(self, cls: Class) -> list[str | Class]:
        """The layer of torch.nn that a class is made from."""
        names = [n.rpartition(".")[2] for n in self.program.external_bases(cls)]
        found: list[str | Class] = [n for n in names if n in known.HALF_LAYERS | known.FLOAT_LAYERS | known.ENCODERS]
        return found[:1]


def starts_empty(node: ast.AST) -> bool:
    """Whether a container is made that holds nothing yet: what it holds later is put into it."""
    if isinstance(node, ast.Call):
        name = syntax.last(node.func)
        return name in EMPTY and (not syntax.given(node) or name == "defaultdict")
    return (isinstance(node, (ast.List, ast.Tuple)) and not node.elts) or (isinstance(node, ast.Dict) and not node.keys)


def _layer_name(name: str | None) -> str | None:
    """What a layer of torch's is called, or an encoder of a library's; of layers in a row, none of them."""
    if name is None or not name.startswith("torch.nn."):
        made = (name or "").removesuffix(".from_pretrained").split(".")
        return made[-1] if made[0] in known.ENCODING and made[-1] in known.ENCODERS else None
    last = name.rpartition(".")[2]
    return None if last == "Sequential" else last
