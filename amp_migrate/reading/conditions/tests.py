"""Conditions: which ask only whether Apex is installed, which switch mixed precision on, and what is left of both."""

from __future__ import annotations

import ast
import itertools
import re
from functools import partial

from amp_migrate.reading.program.definitions import dotted, is_none
from amp_migrate.reading.program.logic import truth
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk, within_apex
from amp_migrate.reading.sites.apex import apex_imports

AVAILABLE_CALLS = re.compile(r"(is_apex_available|has_apex|apex_available|is_apex_installed|is_apex_amp_available)$")


class Availability:
    """Names and tests of one module that tell whether Apex could be imported."""

    def __init__(self, project: Project, module: Module) -> None:
        self.project = project
        self.module = module
        self.flags: dict[str, bool] = {}  # name -> its value where Apex is installed
        self.fields: dict[tuple[Scope, str], bool] = {}  # the same of attributes of `self`, by class and name
        self.modules: set[str] = set()  # names that are an Apex module, or None without Apex
        for node in apex_imports(module):
            guard = self._guard(node)
            for alias in node.names:
                self.modules.add(alias.asname or alias.name.split(".")[0])
            if guard is not None and not only_shipped(guard):
                self._read_guard(guard)
        self._read_lookups()

    def _guard(self, node: ast.stmt) -> ast.Try | None:
        for parent in self.module.ancestors(node):
            if isinstance(parent, ast.Try):
                return parent
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                return None
        return None

    def _read_guard(self, guard: ast.Try) -> None:
        inside = {**_constants(guard.body), **_constants(guard.orelse)}
        failing: dict[str, bool] = {}
        for handler in guard.handlers:
            failing.update(_constants(handler.body))
        before = _constants(self.module.block(guard))
        for name in {*inside, *failing}:
            value = inside.get(name, before.get(name) if name in failing else None)
            if value is None and name in failing:
                value = not failing[name] if name not in self.modules | _imported(guard.body) else None
            other = failing.get(name, before.get(name))
            if value is not None and other is not None and value != other and not self._set_later(guard, name):
                self.flags[name] = value
        self._read_fields(guard)

    def _read_lookups(self) -> None:
        """`has_apex = find_spec("apex") is not None`, which nothing else in the file assigns."""
        for name, bound in self.module.root.bindings.items() if "apex" in self.module.text else ():
            stmt = self.module.parents.get(bound[0]) if len(bound) == 1 else None
            if isinstance(stmt, ast.Assign) and stmt.targets == bound:
                if (found := truth(stmt.value, partial(_looked_up, self.module))) is not None:
                    self.flags[name] = found

    def _read_fields(self, guard: ast.Try) -> None:
        """`self.has_apex`, which nothing else in its class assigns."""
        scope = self.module.scope_of(guard)
        if scope.owner_class is None:
            return
        inside = _constants([*guard.body, *guard.orelse], scope.self_name)
        failing = _constants([s for handler in guard.handlers for s in handler.body], scope.self_name)
        stored = [
            n.attr
            for n in walk(scope.owner_class.node)
            if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
        ]
        for name in inside.keys() & failing.keys():
            if inside[name] != failing[name] and stored.count(name) == 2:
                self.fields[scope.owner_class, name] = inside[name]

    def _set_later(self, guard: ast.Try, name: str) -> bool:
        """Whether a name is bound again below a guard in the same scope, under a condition of its own: a switch then, which
        a machine without Apex only turns off (`if device.type == "cpu": mixed_precision = False`)."""
        scope = self.module.scope_of(guard)
        others = [self.module.statement(b) for b in scope.bindings.get(name, ()) if not isinstance(b, ast.arg)]
        return any(s.lineno > (guard.end_lineno or 0) and not _alternative(self.module, s) for s in others)

    def value(self, test: ast.expr) -> bool | None:
        """What a test is where Apex is installed, if that is all it asks; else None."""
        return truth(test, self._told)

    def _told(self, test: ast.expr) -> bool | None:
        if isinstance(test, ast.Name):
            if test.id in self.flags:
                return self.flags[test.id]
            if self._is_apex(test) and not self.is_switch(test):
                return True
            return self._imported_flag(test)
        if isinstance(test, ast.Attribute):
            own = self._field(test) if self.fields else None
            return own if own is not None else self._imported_flag(test)
        if isinstance(test, ast.Call) and AVAILABLE_CALLS.search(dotted(test.func) or ""):
            return True
        if (looked_up := _looked_up(self.module, test)) is not None:
            return looked_up
        if asks_for_part(test) and any(self._is_apex(n) for n in walk(test) if isinstance(n, ast.expr)):
            return True
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
            constant = test.comparators[0].value
            if (
                constant is None
                and isinstance(test.left, (ast.Name, ast.Attribute))
                and self._is_apex(test.left)
                and not self.is_switch(test.left)
            ):
                if isinstance(test.ops[0], (ast.Is, ast.Eq)):
                    return False
                if isinstance(test.ops[0], (ast.IsNot, ast.NotEq)):
                    return True
            if isinstance(constant, bool) and isinstance(test.ops[0], (ast.Is, ast.Eq)):
                inner = self.value(test.left)
                return None if inner is None else inner == constant
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
            return True if self._exhausts(test.values) else None
        return None

    def _field(self, test: ast.Attribute) -> bool | None:
        cls = self.project.class_of(self.module.scope_of(test)) if self.module.is_self(test.value) else None
        found = (self.fields.get((c.scope, test.attr)) for c in cls.ancestry()) if cls is not None else ()
        return next((value for value in found if value is not None), None)

    def _exhausts(self, values: list[ast.expr]) -> bool:
        """Whether one of several tests holds in any case once Apex is there: `not fp16 or fp16 and HAS_APEX`."""
        rests = [(v, rest) for v in values if (rest := self.rest(v)) is not None]
        if all(rest == [v] for v, rest in rests):
            return False
        asked = [ast.unparse(rest[0]) for _, rest in rests if len(rest) == 1]
        return any(opposite(one, other) for one, other in itertools.combinations(asked, 2))

    def is_switch(self, node: ast.expr) -> bool:
        """Whether a name holds `amp` only where mixed precision is asked for, and None otherwise: a parameter, or a
        name whose import stands under a condition of its own with `amp = None` beside it."""
        if not isinstance(node, ast.Name):
            return False
        owner = self.module.scope_of(node).lookup(node.id)
        if owner is None:
            return False
        if owner.imports.get(node.id) is None:
            return True
        return any(
            isinstance(parent, ast.If) and any(_sets_none(s, node.id) for s in (*parent.body, *parent.orelse))
            for binding in owner.bindings.get(node.id, ())
            if isinstance(binding, (ast.Import, ast.ImportFrom))
            for parent in self.module.ancestors(binding)
        )

    def _is_apex(self, node: ast.expr) -> bool:
        return within_apex(self.project.qualify(self.module, node))

    def _imported_flag(self, node: ast.Name | ast.Attribute) -> bool | None:
        """A flag of another module of the project, by whatever modules it comes here: `from utils import APEX_AVAILABLE`."""
        name, handed_on = self.module.taken(node), self.project.handed_on
        if name is None and isinstance(node, ast.Name) and self.module.scope_of(node).lookup(node.id) is None:
            name = handed_on.brought(self.module, node.id)
        for step in handed_on.way(name) if name is not None else ():
            head, _, last = step.rpartition(".")
            other = self.project.by_name.get(head)
            if (
                other is not None
                and other is not self.module
                and last in (flags := availability(self.project, other).flags)
            ):
                return flags[last]
        return None

    def rest(self, test: ast.expr) -> list[ast.expr] | None:
        """The conjuncts of a test that ask for more than whether Apex is installed; None where it is false then."""
        if self.value(test) is not None:
            return [] if self.value(test) else None
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            kept: list[ast.expr] = []
            for value in test.values:
                part = self.rest(value)
                if part is None:
                    return None
                kept += part
            return kept
        return [test]


# Parts that nothing of torch takes the place of, and that need no apex.amp: whether they are there is asked as before.
SHIPPED = ("apex.contrib", "apex.mlp", "apex.fused_dense", "apex.transformer")


def only_shipped(guard: ast.Try) -> bool:
    """Whether a guard looks for such parts of Apex, and for nothing else of it."""
    imported = [
        name
        for stmt in guard.body
        if isinstance(stmt, (ast.Import, ast.ImportFrom))
        for alias in stmt.names
        if (name := f"{stmt.module}.{alias.name}" if isinstance(stmt, ast.ImportFrom) else alias.name).split(".")[0]
        == "apex"
    ]
    return bool(imported) and all(name.startswith(SHIPPED) for name in imported)


def _alternative(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement stands in a guard of imports, or in a branch that imports, too: it tells of another way."""
    for parent in module.ancestors(stmt):
        if isinstance(parent, ast.Try):
            return True
        if isinstance(parent, ast.If) and any(
            isinstance(s, (ast.Import, ast.ImportFrom)) for b in (parent.body, parent.orelse) for s in b
        ):
            return True
    return False


def _looked_up(module: Module, test: ast.expr) -> bool | None:
    """What a test is with Apex, if it looks Apex up by name: `"apex" in sys.modules`, `find_spec("apex") is None`."""
    found = True
    if (
        isinstance(test, ast.Call)
        and isinstance(test.func, ast.Name)
        and test.func.id == "bool"
        and len(test.args) == 1
    ):
        return _looked_up(module, test.args[0])
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        op, right = test.ops[0], test.comparators[0]
        if isinstance(op, (ast.In, ast.NotIn)) and module.qualify(right) == "sys.modules":
            return isinstance(op, ast.In) if _names_apex(test.left) else None
        if not is_none(right) or not isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            return None
        found, test = isinstance(op, (ast.IsNot, ast.NotEq)), test.left
    if not isinstance(test, ast.Call) or not test.args or not _names_apex(test.args[0]):
        return None
    called = module.qualify(test.func) or dotted(test.func) or ""
    return found if called in ("importlib.util.find_spec", "find_spec", "pkgutil.find_loader") else None


def _names_apex(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.split(".")[0] == "apex"


def is_chosen(module: Module, node: ast.AST) -> bool:
    """Whether something is done with what an operation comes to that a node is an operand of, so that it is no question:
    `(found and amp).scale_loss`."""
    parent = module.parents.get(node)
    if not isinstance(parent, ast.BoolOp):
        return False
    while isinstance(parent, (ast.BoolOp, ast.NamedExpr)):
        node, parent = parent, module.parents.get(parent)
    if isinstance(parent, (ast.Attribute, ast.Subscript)):
        return parent.value is node
    return isinstance(parent, ast.Call) and parent.func is node


def asks_for_part(test: ast.AST) -> bool:
    """`"state_dict" in amp.__dict__` and `hasattr(amp, "state_dict")`: early Apex could not save its state."""
    name: ast.AST | None = None
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.In):
        holder = test.comparators[0]
        name = test.left if isinstance(holder, ast.Attribute) and holder.attr == "__dict__" else None
    elif isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "hasattr":
        name = test.args[1] if len(test.args) == 2 else None
    return isinstance(name, ast.Constant) and name.value in ("state_dict", "load_state_dict")


def availability(project: Project, module: Module) -> Availability:
    """The availability names of a module, read once."""
    return project.once(Availability, module)


OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Lt: "<",
    ast.GtE: ">=",
    ast.Gt: ">",
    ast.LtE: "<=",
}
PAIRS = (("==", "!="), ("is", "is not"), ("in", "not in"), ("<", ">="), (">", "<="))
NEGATED = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}


def opposite(one: str, two: str) -> bool:
    """Whether one condition is the negation of another: `not a` of `a`, `a != 0` of `a == 0`."""
    if f"not {one}" == two or f"not {two}" == one:
        return True
    left, right = (ast.parse(text, mode="eval").body for text in (one, two))
    if not isinstance(left, ast.Compare) or not isinstance(right, ast.Compare) or len(left.ops) > 1:
        return False
    same = ast.dump(left.left) == ast.dump(right.left) and ast.dump(left.comparators[0]) == ast.dump(
        right.comparators[0]
    )
    return same and len(right.ops) == 1 and NEGATED[OPERATORS[type(left.ops[0])]] == OPERATORS[type(right.ops[0])]


def excludes(one: str, two: str) -> bool:
    """Whether one condition makes another false: its negation, `a == "x"` beside `a == "y"`."""
    if opposite(one, two):
        return True
    left, right = _equal_to(one), _equal_to(two)
    return left is not None and right is not None and left[0] == right[0] and left[1] != right[1]


def _equal_to(text: str) -> tuple[str, object] | None:
    """What a condition compares, and the constant that it is to be: `a == "x"`."""
    test = ast.parse(text, mode="eval").body
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], (ast.Eq, ast.Is)):
        return None
    constant = test.comparators[0]
    return (ast.dump(test.left), constant.value) if isinstance(constant, ast.Constant) else None


def _sets_none(stmt: ast.stmt, name: str) -> bool:
    return (
        isinstance(stmt, ast.Assign)
        and is_none(stmt.value)
        and any(isinstance(t, ast.Name) and t.id == name for t in stmt.targets)
    )


def _imported(block: list[ast.stmt]) -> set[str]:
    """Names that a block imports: None for one of them tells of that module, not of Apex."""
    return {
        a.asname or a.name.split(".")[0] for s in block if isinstance(s, (ast.Import, ast.ImportFrom)) for a in s.names
    }


def _constants(block: list[ast.stmt], holder: str | None = None) -> dict[str, bool]:
    """The names that a block makes constants, or the attributes of a `holder`."""
    found: dict[str, bool] = {}
    for stmt in block:
        if (
            isinstance(stmt, ast.Assign)
            and isinstance(stmt.value, ast.Constant)
            and (isinstance(stmt.value.value, bool) or stmt.value.value is None)
        ):
            for target in stmt.targets:
                if holder is None and isinstance(target, ast.Name):
                    found[target.id] = bool(stmt.value.value)
                elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    if target.value.id == holder:
                        found[target.attr] = bool(stmt.value.value)
        elif (
            holder is None
            and isinstance(stmt, ast.AnnAssign)
            and isinstance(stmt.target, ast.Name)
            and isinstance(stmt.value, ast.Constant)
        ):
            if isinstance(stmt.value.value, bool):
                found[stmt.target.id] = stmt.value.value
    return found
