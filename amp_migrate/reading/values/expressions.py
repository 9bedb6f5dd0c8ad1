"""What the values of an expression include: through names, items of containers and calls."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Sequence

from amp_migrate.reading.program.definitions import Function, argument, dotted
from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.project import SAME_OBJECT_METHODS, WRAPPERS, Project
from amp_migrate.reading.program.tree import own_nodes
from amp_migrate.reading.values.fields import Fields
from amp_migrate.reading.values.passed import Passed
from amp_migrate.reading.values.sources import Put, Sources, given_to, key_of, own_class
from amp_migrate.reading.values.table import SETTING, Answer, Part, Path, Question, Value

LONGEST = 4  # items of items
NONE = ast.Constant(None)
COPIES = frozenset(("copy.copy", "copy.deepcopy", "omegaconf.OmegaConf.create"))
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


class Expressions:
    """The rules of the table."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.sources = project.once(Sources)
        fields = Fields(project, self.value, self.put)
        passed = Passed(project, self.value)
        self.given = passed.given
        self._rules: dict[str, Callable[..., Sequence[Part]]] = {
            "expression": self._expression,
            "name": self._name,
            "kept": lambda part, truth: [part],
            "returned": self._returned,
            "field": fields.field,
            "loose": fields.loose,
            "parameter": passed.parameter,
        }

    def includes(self, question: Question) -> Sequence[Part]:
        return self._rules[question.rule](*question.about)

    def keeps(self, question: Question, found: Answer) -> Answer:
        """Of the left side of `or` only what is true, of that of `and` only what is not, where that can be told."""
        if question.rule != "kept":
            return found
        truth = question.about[1]
        return frozenset(v for v in found if v.kind != "constant" or bool(v.constant) is truth)

    def value(self, module: Module, node: ast.expr, path: Path = ()) -> Part:
        """What an expression may be, or an item of it."""
        if len(path) > LONGEST:
            return Value("unknown", module, node, "items of items")
        if isinstance(node, ast.Constant) and not path:
            return Value("constant", module, node)
        if isinstance(node, ast.Name) and not self._of_lambda(module, node):
            owner = module.scope_of(node).lookup(node.id)
            if owner is not None:
                return Question("name", (owner, node.id, path))
        return Question("expression", (module, node, path))

    def _values(self, module: Module, nodes: Iterable[ast.expr], path: Path) -> list[Part]:
        return [self.value(module, node, path) for node in nodes]

    def _expression(self, module: Module, node: ast.expr, path: Path) -> Sequence[Part]:
        if isinstance(node, ast.Name):
            return self._unbound(module, node, path)
        if isinstance(node, ast.Attribute):
            return self._attribute(module, node, path)
        if isinstance(node, ast.IfExp):
            return self._values(module, (node.body, node.orelse), path)
        if isinstance(node, ast.BoolOp):
            truth = isinstance(node.op, ast.Or)
            first = self._values(module, node.values[:-1], path)
            kept = [Question("kept", (part, truth)) for part in first] if not path else first
            return [*kept, self.value(module, node.values[-1], path)]
        if isinstance(node, (ast.NamedExpr, ast.Starred, ast.Await)):
            return [self.value(module, node.value, path)]
        if isinstance(node, ast.Call):
            return self._call(module, node, path)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            return [self.value(module, node.value, (key_of(node.slice), *path))]
        if isinstance(node, ast.Lambda):
            return [Value("function", module, node)]
        if not path:
            return [Value("computed", module, node)]
        if isinstance(node, ast.Constant):
            return [] if node.value is None else [Value("unknown", module, node, "an item of text")]
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return self._sequence(module, node.elts, path)
        if isinstance(node, ast.Dict):
            return self._mapping(module, node, path)
        if isinstance(node, COMPREHENSIONS):
            return [self.value(module, node.value if isinstance(node, ast.DictComp) else node.elt, path[1:])]
        return [Value("unknown", module, node, "an item of what is computed")]

    def _sequence(self, module: Module, items: Sequence[ast.expr], path: Path) -> list[Part]:
        first, rest = path[0], path[1:]
        starred = [e.value for e in items if isinstance(e, ast.Starred)]
        if isinstance(first, int) and not starred:
            return self._values(module, items[first:][:1] if -len(items) <= first else (), rest)
        single = [e for e in items if not isinstance(e, ast.Starred)]
        return self._values(module, single, rest) + self._values(module, starred, (None, *rest))

    def _mapping(self, module: Module, node: ast.Dict, path: Path) -> list[Part]:
        found: list[Part] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found.append(self.value(module, value, path))
            elif path[0] is None or not isinstance(key, ast.Constant) or key.value == path[0]:
                found.append(self._setting(module, value, path[1:]))
        return found

    def _setting(self, module: Module, node: ast.expr, path: Path) -> Part:
        """What stands in a mapping or a class, where people look for what they may change."""
        part = self.value(module, node, path)
        return part._replace(name=SETTING) if isinstance(part, Value) and part.kind == "constant" else part

    # -- names -------------------------------------------------------------------------------------------------------

    def _name(self, scope: Scope, name: str, path: Path) -> Sequence[Part]:
        """What a name holds that a scope binds, wherever it is bound."""
        module = scope.module
        parts = [p for b in scope.bindings[name] if b not in module.never for p in self._binding(scope, name, b, path)]
        if scope.is_module and any(isinstance(b, ast.Name) for b in scope.bindings[name]):
            for other, target, given in self.sources.stored(name):
                if other is not module and self.project.qualify(other, target.value) == module.name:
                    parts.append(self._given(other, target, given.value, (*given.path, *path)))
        for use in self.sources.changed(scope, name) if path else ():
            parts.append(Value("unknown", module, use, "what it holds is changed out of sight"))
        for put in self.sources.puts(path[0]) if path else ():
            same = isinstance(put.holder, ast.Name) and put.holder.id == name
            same = same and put.module.scope_of(put.holder).lookup(name) is scope
            parts += self.put(put, path, same)
        return parts

    def _binding(self, scope: Scope, name: str, binding: ast.AST, path: Path) -> Sequence[Part]:
        module = scope.module
        if isinstance(binding, ast.arg):
            return [Question("parameter", (self.project.functions[scope.node], binding, path))]
        if isinstance(binding, FUNCTION_NODES) and not path:
            return [Value("function", module, binding)]
        if isinstance(binding, ast.ClassDef) and not path:
            return [Value("class", module, binding)]
        if isinstance(binding, ast.ImportFrom):
            base = module.import_base(binding)
            names = [a.name for a in binding.names if name == (a.asname or a.name)]
            return [self._imported(module, binding, f"{base}.{n}", path) for n in names]
        if isinstance(binding, ast.Import):
            return [self._imported(module, binding, scope.imports.get(name, name), path)]
        parent = module.parents[binding]
        if isinstance(binding, ast.Name) and isinstance(binding.ctx, ast.Del):
            return []
        if isinstance(parent, ast.AnnAssign) and parent.value is None:
            return []
        given = given_to(module, binding)
        if scope.is_class and given.value is not None:
            return [self._setting(module, given.value, (*given.path, *path))]
        return [self._given(module, binding, given.value, (*given.path, *path))]

    def _given(self, module: Module, target: ast.AST, value: ast.expr | None, path: Path) -> Part:
        if value is None:
            return Value("unknown", module, target, "what it is given is not in sight")
        return self.value(module, value, path)

    def put(self, put: Put, path: Path, same: bool) -> list[Part]:
        """What a statement puts into a container: into this one, or into what may be the same under another name."""
        if not same and (put.key is None or put.whole or self._own_dict(put)):
            return []
        if put.whole:
            return [self._given(put.module, put.holder, put.given.value, path)]
        return [self._given(put.module, put.holder, put.given.value, (*put.given.path, *path[1:]))]

    def _own_dict(self, put: Put) -> bool:
        """Whether what is put into is another mapping for sure: one that is written out."""
        owner = put.module.scope_of(put.holder).lookup(put.holder.id) if isinstance(put.holder, ast.Name) else None
        bindings = owner.bindings[put.holder.id] if owner is not None and isinstance(put.holder, ast.Name) else []
        values = [given_to(owner.module, b).value for b in bindings if isinstance(b, ast.Name)] if owner else []
        return len(values) == len(bindings) and all(isinstance(v, (ast.Dict, ast.DictComp)) for v in values)

    def _imported(self, module: Module, node: ast.AST, target: str, path: Path) -> Part:
        slot = self.project.exported(target)
        if slot is not None and isinstance(slot.holder, Scope):
            if slot.name in slot.holder.bindings:
                return Question("name", (slot.holder, slot.name, path))
            for base in slot.holder.module.star_imports:
                if base != target.rpartition(".")[0]:
                    return self._imported(module, node, f"{base}.{slot.name}", path)
        return Value("named" if not path else "unknown", module, node, target)

    def _unbound(self, module: Module, node: ast.Name, path: Path) -> Sequence[Part]:
        """A name that nothing in the file binds: out of a star import, of Python, or a parameter of a lambda."""
        if not self._of_lambda(module, node):
            for base in module.star_imports:
                if (other := self.project.by_name.get(base)) is not None and node.id in other.root.bindings:
                    return [Question("name", (other.root, node.id, path))]
            if not path:
                return [Value("named", module, node, module.qualify(node) or node.id)]
        return [Value("unknown", module, node, "nothing in sight binds it")]

    def _of_lambda(self, module: Module, node: ast.Name) -> bool:
        if node.id not in self.project.once(_lambda_parameters, module):
            return False
        around = (a for a in module.around(node) if isinstance(a, ast.Lambda))
        return any(arg.arg == node.id for a in around for arg in ast.walk(a.args) if isinstance(arg, ast.arg))

    def _attribute(self, module: Module, node: ast.Attribute, path: Path) -> Sequence[Part]:
        own = own_class(self.project, module.scope_of(node), node.value) or self.project.find_class(module, node.value)
        if own is not None:
            return [Question("field", (own, module, node.attr, path))]
        name = module.qualify(node)
        if name is not None:
            return [self._imported(module, node, name, path)]
        classes = self.project.classes_of(module, node.value)
        if classes:
            return [Question("field", (cls, module, node.attr, path)) for cls in classes]
        return [Question("loose", (module, node.attr, path))]

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, module: Module, node: ast.Call, path: Path) -> Sequence[Part]:
        func, own = node.func, Value("call", module, node)
        if path:
            own = Value("unknown", module, node, "an item of what a call gives")
        name = module.qualify(func)
        if name in COPIES and node.args:
            return [self.value(module, node.args[0], path)]
        if name in ("dataclasses.field", "attr.ib", "attrs.field") and not path:
            return [self._setting(module, k.value, path) for k in node.keywords if k.arg == "default"] or [own]
        functions = self.project.resolved.get(node, []) or self.project.callees(module, node)
        if functions:
            back = [f for f in functions if f.name != "__init__"]
            return [p for f in back for p in self._given_back(f, module, node, path)] or [own]
        if isinstance(func, ast.Name) and module.scope_of(func).lookup(func.id) is None:
            return self._of_python(module, node, func.id, path) or [own]
        if isinstance(func, ast.Attribute) and name is None:
            return self._of_mapping(module, node, func, path) or self._wrapped(module, node, name, path) or [own]
        return self._wrapped(module, node, name, path) or [own]

    def _wrapped(self, module: Module, node: ast.Call, name: str | None, path: Path) -> Sequence[Part]:
        """What a call hands back, itself or in a wrapper that behaves as it does."""
        func, args = node.func, {k.arg: k.value for k in node.keywords}
        if name == "apex.amp.initialize":
            given = [argument(node, 0, "models"), argument(node, 1, "optimizers")]
            place = 0 if given[1] is None else path[0] if path else None
            chosen = given[place] if place in (0, 1) else None
            return [self.value(module, chosen, path if given[1] is None else path[1:])] if chosen is not None else []
        last = (name or dotted(func) or "").rpartition(".")[2]
        if last in WRAPPERS and (name or "").partition(".")[0] not in sys.stdlib_module_names:
            model = next((args[key] for key in ("module", "model", "network", "init_optimizer") if key in args), None)
            return self._values(module, node.args[:1] or ([model] if model is not None else []), path)
        if isinstance(func, ast.Attribute) and func.attr in SAME_OBJECT_METHODS and name is None:
            return [self.value(module, func.value, path)]
        return []

    def _of_python(self, module: Module, node: ast.Call, name: str, path: Path) -> Sequence[Part]:
        """Functions of Python that hand on what they are given."""
        args = node.args
        if name == "getattr" and len(args) >= 2 and isinstance(args[1], ast.Constant):
            attribute = self._attribute_of(module, node, args[1].value)
            return [self.value(module, attribute, path), *self._values(module, args[2:3], path)]
        if path and name == "dict":
            named = [k.value for k in node.keywords if k.arg is not None and path[0] in (None, k.arg)]
            rest = [*args, *(k.value for k in node.keywords if k.arg is None)]
            return [*(self._setting(module, v, path[1:]) for v in named), *self._values(module, rest, path)]
        if path and name == "vars" and args and isinstance(path[0], str):
            return [self.value(module, self._attribute_of(module, node, path[0]), path[1:])]
        if path and name in ("list", "tuple", "sorted", "set", "reversed", "iter") and args:
            return [self.value(module, args[0], (None, *path[1:]))]
        if name == "next" and args:
            return [self.value(module, args[0], (None, *path))]
        if len(path) > 1 and name == "enumerate" and args and path[1] == 1:
            return [self.value(module, args[0], (None, *path[2:]))]
        if len(path) > 1 and name == "zip" and isinstance(path[1], int) and path[1] < len(args):
            return [self.value(module, args[path[1]], (None, *path[2:]))]
        return []

    def _attribute_of(self, module: Module, call: ast.Call, name: object) -> ast.expr:
        """The attribute that a call reads by a name that is written out."""
        return module.imagine(f"{module.source(call.args[0])}.{name}", call)

    def _of_mapping(self, module: Module, node: ast.Call, func: ast.Attribute, path: Path) -> Sequence[Part]:
        """Methods that give what a mapping holds."""
        method, args = func.attr, node.args
        if method in ("get", "pop", "setdefault") and args and (key := key_of(args[0])) is not None:
            default = args[1:2] or [k.value for k in node.keywords if k.arg == "default"]
            missing = self._values(module, default, path)
            if not default and method == "get" and not path:
                missing = [Value("constant", module, NONE)]
            return [self.value(module, func.value, (key, *path)), *missing]
        if method == "copy" and not args:
            return [self.value(module, func.value, path)]
        if path and method == "values":
            return [self.value(module, func.value, (None, *path[1:]))]
        if len(path) > 1 and method == "items" and path[1] == 1:
            return [self.value(module, func.value, (None, *path[2:]))]
        return []

    def _given_back(self, function: Function, module: Module, call: ast.Call, path: Path) -> list[Part]:
        """What a call of a function gives: what is handed back as it came, comes back to this call alone."""
        parts: list[Part] = [Question("returned", (function, path))]
        for name in sorted(self.project.handed_back(function)):
            parts += self.given(function, module, call, name, path)
        return parts

    def _returned(self, function: Function, path: Path) -> Sequence[Part]:
        """What a function returns, but what it only hands back."""
        module, back = function.module, self.project.handed_back(function)
        nodes = list(own_nodes(function.node.body))
        if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in nodes):
            return [Value("unknown", module, function.node, "it yields")]
        values = [n.value for n in nodes if isinstance(n, ast.Return)]
        parts = [
            self.value(module, v, path)
            for v in values
            if v is not None and not (isinstance(v, ast.Name) and v.id in back)
        ]
        if not path and (None in values or _falls_off(function.node.body)):
            parts.append(Value("constant", module, NONE))
        return parts


def _falls_off(body: Sequence[ast.stmt]) -> bool:
    """Whether a body may end without a `return`."""
    last = body[-1] if body else None
    if isinstance(last, (ast.Return, ast.Raise)):
        return False
    if isinstance(last, ast.If):
        return _falls_off(last.body) or _falls_off(last.orelse)
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return _falls_off(last.body)
    if isinstance(last, ast.Try):
        ends = [last.orelse or last.body, *(h.body for h in last.handlers)]
        return _falls_off(last.finalbody) and any(_falls_off(block) for block in ends)
    return not (isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and bool(last.test.value))


def _lambda_parameters(_: Project, module: Module) -> frozenset[str]:
    lambdas = (n.args for n in module.nodes if isinstance(n, ast.Lambda)) if "lambda" in module.text else ()
    return frozenset(a.arg for args in lambdas for a in ast.walk(args) if isinstance(a, ast.arg))
