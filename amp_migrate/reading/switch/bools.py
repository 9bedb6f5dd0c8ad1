"""Whether a switch is a bool, as autocast wants it: options of a command line are text and numbers too, and what a
configuration file holds is anything."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from amp_migrate.reading.program.command_line import declared
from amp_migrate.reading.program.definitions import called_name, dotted, entries, field_name
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project

Given: TypeAlias = (
    "tuple[Scope, ast.expr | bool]"  # a value and whose names it reads, or whether what is given is a bool
)


def as_bool(project: Project, scope: Scope, text: str) -> str:
    """The condition, read in a scope, made a real bool unless the program shows that it is one: autocast refuses None,
    numbers and text."""
    tree = ast.parse(text, mode="eval").body
    if _Proof(project).of(scope, tree):
        return text
    return f"bool{text}" if _in_parentheses(text, tree) else f"bool({text})"


def _in_parentheses(text: str, tree: ast.expr) -> bool:
    """Whether parentheses stand around all of an expression: `(a or b)`, not `(a or b) and (c or d)`."""
    inside = tree.col_offset > 0 and tree.end_col_offset == len(text.encode()) - 1
    return text[:1] == "(" and text[-1:] == ")" and "\n" not in text and inside


# Calls that give a bool, whatever they are methods of. Names that ask (`is_main_process`) count too.
ASKING = frozenset(
    "bool isinstance issubclass hasattr callable any all startswith endswith exists isfile isdir".split()
)


class _Proof:
    """Whether expressions are bools for certain: True, False, or None for what leads back to itself."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.asked: set[tuple[Scope | None, str]] = set()

    def of(self, scope: Scope, node: ast.expr) -> bool | None:
        if isinstance(node, ast.Constant):
            return isinstance(node.value, bool)
        if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return True
        if isinstance(node, ast.BoolOp):
            compared = {ast.unparse(side) for v in node.values for side in _compared(v)}
            return _every(False if ast.unparse(v) in compared else self.of(scope, v) for v in node.values)
        if isinstance(node, ast.IfExp):
            return _every(self.of(scope, v) for v in (node.body, node.orelse))
        if isinstance(node, ast.NamedExpr):
            return self.of(scope, node.value)
        if isinstance(node, ast.Call):
            return self._call(scope, node)
        if isinstance(node, ast.Name) and (owner := scope.lookup(node.id)) is not None:
            return self._name(owner, node.id)
        if (slot := self._exported(scope, node)) is not None and isinstance(slot.holder, Scope):
            return self._name(slot.holder, slot.name)
        field = field_name(node)
        return self._held(scope.module, field) if field is not None else False

    def _exported(self, scope: Scope, node: ast.expr) -> Slot | None:
        """Where `settings.FP16` is kept, for a module of the program."""
        first, _, rest = (dotted(node) or "").partition(".")
        owner = scope.lookup(first) if rest else None
        target = owner.imports.get(first) if owner is not None else None
        slot = self.project.exported(f"{target}.{rest}") if target is not None else None
        return (
            slot if slot is not None and isinstance(slot.holder, Scope) and slot.name in slot.holder.bindings else None
        )

    def _call(self, scope: Scope, call: ast.Call) -> bool | None:
        name = called_name(call)
        if name in ASKING or name.startswith(("is_", "has_")):
            return True
        if (key := _looked_up(call)) is not None and not self.project.once(_givers).get(key):
            return True  # what stands for it where it is missing says what it is
        if key is not None:
            return self._held(scope.module, key)
        functions = self.project.callees(scope.module, call) if call in scope.module.parents else []
        return bool(functions) and all(_annotated(f.node.returns) for f in functions)

    def _name(self, owner: Scope, name: str) -> bool | None:
        """A variable of a scope: all that it is bound to, by assignments, its default and the calls of its function."""
        target = owner.imports.get(name)
        slot = self.project.exported(target) if target is not None else None
        if slot is not None and isinstance(slot.holder, Scope):
            owner, name = slot.holder, slot.name
        if (owner, name) in self.asked:
            return None
        self.asked.add((owner, name))
        return _every(self._given(given) for given in self._bound(owner, name))

    def _bound(self, owner: Scope, name: str) -> Iterator[Given]:
        for binding in owner.bindings.get(name, ()):
            stmt = owner.module.parents.get(binding)
            while isinstance(stmt, (ast.Tuple, ast.List)):
                stmt = owner.module.parents.get(stmt)
            if isinstance(stmt, ast.AnnAssign) and _annotated(stmt.annotation):
                yield owner, True
            elif isinstance(stmt, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and stmt.value is not None:
                pairs = [p for t in getattr(stmt, "targets", [binding]) for p in _taken_apart(t, stmt.value)]
                yield owner, next((v for t, v in pairs if t is binding), False)
            elif not isinstance(binding, ast.arg):
                yield owner, False
        function = self.project.functions.get(owner.node)
        parameter = function.parameter(name) if function is not None else None
        if function is None or parameter is None:
            return
        if _annotated(parameter.annotation) or _flag_of_click(owner, name):
            yield owner, True
            return
        if name in function.defaults:
            yield owner.parent or owner, function.defaults[name]
        called = self.project.calls.get(function, ())
        if name not in function.defaults and not called:
            yield owner, False
        for module, call in called:
            for parameter_name, value in self.project.arguments(function, call):
                if parameter_name == name:
                    yield module.scope_of(call), value

    def _held(self, module: Module, field: str) -> bool | None:
        """What an attribute or a key of that name is given, wherever in the program: an option, an assignment, an entry."""
        if (None, field) in self.asked:
            return None
        self.asked.add((None, field))
        givers = self.project.once(_givers).get(field, ())
        # A parser in the file itself says what its options are; another program's are none of its own.
        here = [g for g in givers if g[0].module is module and g[2]]
        return _every(self._given((s, v)) for s, v, option in givers if not option or not here or s.module is module)

    def _given(self, given: Given) -> bool | None:
        scope, value = given
        return value if isinstance(value, bool) else self.of(scope, value)


def _every(found: Iterator[bool | None]) -> bool | None:
    """Whether all that there is are bools; what leads back to itself alone adds nothing."""
    given = list(found)
    told = [f for f in given if f is not None]
    return all(told) if told else None if given else False


def _looked_up(call: ast.Call) -> str | None:
    """The key of `config.get("fp16", False)` and `getattr(args, "fp16", False)`."""
    function = called_name(call)
    given = call.args[1:] if function == "getattr" else call.args if function == "get" else []
    key, default = given if len(given) == 2 else (None, None)
    typed = isinstance(default, ast.Constant) and isinstance(default.value, bool)
    return key.value if typed and isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _givers(project: Project) -> dict[str, list[tuple[Scope, ast.expr | bool, bool]]]:
    """What attributes, keys and options are given by their names, and whether it is the declaration of an option."""
    found: dict[str, list[tuple[Scope, ast.expr | bool, bool]]] = defaultdict(list)
    for module in project.modules:
        for name, call in declared(module):
            found[name].append((module.scope_of(call), _switch(call), True))
        for node in module.nodes:
            scope = module.scope_of(node)
            if isinstance(node, ast.AnnAssign) and scope.is_class and isinstance(node.target, ast.Name):
                found[node.target.id].append((scope, _annotated(node.annotation), False))
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for one, value in _taken_apart(target, node.value):
                        field = field_name(one)
                        if field is not None and (scope.is_class or not isinstance(one, ast.Name)):
                            found[field].append((scope, value, False))
            elif isinstance(node, (ast.Dict, ast.Call)):
                for key, value in entries(node):
                    found[key].append((scope, value, False))
                if isinstance(node, ast.Call):
                    for key, value in _defined(node):
                        found[key].append((scope, value, False))
    return dict(found)


def _defined(call: ast.Call) -> Iterator[tuple[str, ast.expr | bool]]:
    """`parser.set_defaults(fp16=False)`, `Namespace(fp16=False)`, `flags.DEFINE_bool("fp16", False, "")`."""
    name = called_name(call)
    if name in ("set_defaults", "Namespace", "SimpleNamespace", "EasyDict"):
        yield from ((k.arg, k.value) for k in call.keywords if k.arg is not None)
    first = call.args[0] if call.args else None
    if name.startswith("DEFINE_") and isinstance(first, ast.Constant) and isinstance(first.value, str):
        yield first.value, name in ("DEFINE_bool", "DEFINE_boolean")


def _taken_apart(target: ast.AST, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr | bool]]:
    """Each thing that an assignment binds with its value; False where that cannot be told."""
    if isinstance(target, (ast.Tuple, ast.List)):
        paired = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for index, element in enumerate(target.elts):
            if isinstance(value, (ast.Tuple, ast.List)) and paired:
                yield from _taken_apart(element, value.elts[index])
            else:
                yield element, False
    elif isinstance(target, ast.expr):
        yield target, value


def _compared(value: ast.expr) -> list[ast.expr]:
    """What a test compares with text or a number: `args.amp != "O0"`."""
    if not isinstance(value, ast.Compare):
        return []
    sides = [value.left, *value.comparators]
    plain = [s.value for s in sides if isinstance(s, ast.Constant)]
    return sides if any(isinstance(v, (str, int)) and not isinstance(v, bool) for v in plain) else []


def _switch(call: ast.Call) -> bool:
    """Whether a command-line option is a switch: what it is without being given counts too."""
    given = {k.arg: k.value for k in call.keywords}
    action, default, kind = given.get("action"), given.get("default"), given.get("type")
    if default is not None and isinstance(default, ast.Constant) and not isinstance(default.value, bool):
        made = isinstance(default.value, str) and kind is not None  # argparse gives text to the type, nothing else
        if not made:
            return False
    if isinstance(action, ast.Constant):
        return action.value in ("store_true", "store_false")
    if action is not None:
        return "Boolean" in ast.unparse(action) and default is not None
    return kind is not None and "bool" in ast.unparse(kind).lower() and default is not None


def _flag_of_click(scope: Scope, name: str) -> bool:
    """Whether a parameter is a flag of click: `@click.option("--fp16", is_flag=True)`."""
    for decorator in getattr(scope.node, "decorator_list", ()):
        if isinstance(decorator, ast.Call) and called_name(decorator) == "option":
            texts = [a.value for a in decorator.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            flags = [k for k in decorator.keywords if k.arg == "is_flag" and ast.unparse(k.value) == "True"]
            if flags and any(t.partition("/")[0].lstrip("-").replace("-", "_") == name for t in texts):
                return True
    return False


def _annotated(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "bool"
