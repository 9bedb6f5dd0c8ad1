"""What the values of an expression include: through names, items of containers and calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.values.calls import Calls
from amp_migrate.reading.values.fields import Fields
from amp_migrate.reading.values.passed import Passed
from amp_migrate.reading.values.reaching import reaching
from amp_migrate.reading.values.sources import Put, Sources, given_to, key_of, own_class
from amp_migrate.reading.values.table import BESIDE, Answer, Part, Path, Question, Value, setting, typed

LONGEST = 4  # items of items
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


class Expressions:
    """The rules of the table."""

    def __init__(self, project: Project, casts: bool) -> None:
        self.project = project
        self.sources = project.once(Sources)
        self._reached: dict[ast.Name, Sequence[ast.AST]] = {}
        fields = Fields(project, self.value, self.put)
        self.passed = Passed(project, self.value)
        self._calls = Calls(project, self.value, self.passed, casts)
        self._rules: dict[str, Callable[..., Sequence[Part]]] = {
            "expression": self._expression,
            "name": self._name,
            "kept": lambda part, truth: [part],
            "instead": lambda part, kinds, value: [part],
            "returned": self._calls.returned,
            "field": fields.field,
            "loose": fields.loose,
            "parameter": self.passed.parameter,
        }

    def includes(self, question: Question) -> Sequence[Part]:
        return self._rules[question.rule](*question.about)

    def keeps(self, question: Question, found: Answer) -> Answer:
        """Of the left side of `or` only what is true, of that of `and` only what is not, where that can be told; one value
        instead of those of some kinds."""
        if question.rule == "instead":
            _, kinds, value = question.about
            return frozenset(value if v.kind in kinds else v for v in found)  # type: ignore[misc, operator]
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
                return Question("name", (owner, node.id, path, *self._reaching(owner, node)))
        return Question("expression", (module, node, path))

    def _reaching(self, owner: Scope, use: ast.Name) -> Sequence[ast.AST]:
        """The bindings that a use may read, where those are not all that its variable has."""
        if use not in self._reached:
            found = reaching(owner, use)
            self._reached[use] = found if len(found) < len(owner.bindings[use.id]) else ()
        return self._reached[use]

    def _expression(self, module: Module, node: ast.expr, path: Path) -> Sequence[Part]:
        if isinstance(node, ast.Name):
            return self._unbound(module, node, path)
        if isinstance(node, ast.Attribute):
            return self._attribute(module, node, path)
        if isinstance(node, ast.IfExp):
            return self._calls.values(module, (node.body, node.orelse), path)
        if isinstance(node, ast.BoolOp):
            truth = isinstance(node.op, ast.Or)
            first = self._calls.values(module, node.values[:-1], path)
            kept = [Question("kept", (part, truth)) for part in first] if not path else first
            return [*kept, self.value(module, node.values[-1], path)]
        if isinstance(node, (ast.NamedExpr, ast.Starred, ast.Await)):
            return [self.value(module, node.value, path)]
        if isinstance(node, ast.Call):
            return self._calls.call(module, node, path)
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
            return self._calls.values(module, items[first:][:1] if -len(items) <= first else (), rest)
        single = [e for e in items if not isinstance(e, ast.Starred)]
        return self._calls.values(module, single, rest) + self._calls.values(module, starred, (None, *rest))

    def _mapping(self, module: Module, node: ast.Dict, path: Path) -> list[Part]:
        found: list[Part] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found.append(self.value(module, value, path))
            elif path[0] is None or not isinstance(key, ast.Constant) or key.value == path[0]:
                found.append(setting(self.value(module, value, path[1:])))
        return found

    # -- names -------------------------------------------------------------------------------------------------------

    def _name(self, scope: Scope, name: str, path: Path, *reached: ast.AST) -> Sequence[Part]:
        """What a name holds that a scope binds, wherever it is bound, or by some of its bindings."""
        module, bindings = scope.module, reached or scope.bindings[name]
        parts = [p for b in bindings if b not in module.never for p in self._binding(scope, name, b, path)]
        if scope.is_module and any(isinstance(b, ast.Name) for b in scope.bindings[name]):
            for other, target, given in self.sources.stored(name):
                if other is not module and self.project.qualify(other, target.value) == module.name:
                    parts.append(self._given(other, target, given.value, (*given.path, *path)))
        for use in self.sources.changed(scope, name) if path else ():
            parts.append(Value("unknown", module, use, BESIDE))
        for put in self.sources.puts(name, path[0]) if path else ():
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
        if isinstance(parent, ast.AugAssign) and not path:
            return [Value("computed", module, parent)]
        given = given_to(module, binding)
        parts: Sequence[Part] = [self._given(module, binding, given.value, (*given.path, *path))]
        if isinstance(parent, ast.AnnAssign) and not path:
            parts = typed(module, parent.annotation, parts)
            parts = parts if parent.value is not None or isinstance(parts[0], Question) else []
        return [setting(part) for part in parts] if scope.is_class else parts

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
        return any(arg.arg == node.id for a in around for arg in walk(a.args) if isinstance(arg, ast.arg))

    def _attribute(self, module: Module, node: ast.Attribute, path: Path) -> Sequence[Part]:
        own = own_class(self.project, module.scope_of(node), node.value) or self.project.find_class(module, node.value)
        if own is not None:
            return [Question("field", (own, module, node.attr, path))]
        name = module.qualify(node)
        if name is not None and not self._holds_object(module, node.value):
            return [self._imported(module, node, name, path)]
        classes = self.project.classes_of(module, node.value)
        if classes:
            return [Question("field", (cls, module, node.attr, path)) for cls in classes]
        return [Question("loose", (module, node.attr, path))]

    def _holds_object(self, module: Module, node: ast.expr) -> bool:
        """Whether a name that is imported is a variable of a file of the program: `args` of `args.fp16`."""
        slot = self.project.exported(module.qualify(node) or "")
        return (
            slot is not None
            and isinstance(slot.holder, Scope)
            and any(isinstance(b, ast.Name) for b in slot.holder.bindings.get(slot.name, ()))
        )


def _lambda_parameters(_: Project, module: Module) -> frozenset[str]:
    return frozenset(a.arg for n in module.of(ast.Lambda) for a in walk(n.args) if isinstance(a, ast.arg))
