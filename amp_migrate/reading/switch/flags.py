"""The condition under which mixed precision is on, and whether a piece of code can evaluate it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from amp_migrate.reading.conditions.tests import Availability, availability, conjunction, opposite
from amp_migrate.reading.program.command_line import declared
from amp_migrate.reading.program.definitions import given_once, is_none, single_assignment
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import apex_imports
from amp_migrate.reading.units.unit import Init
from amp_migrate.reading.values.analysis import Values


@dataclass(frozen=True)
class Flag:
    """A conjunction of source texts, evaluated in `scope`. Empty: always on; None as parts: always off."""

    scope: Scope
    parts: tuple[str, ...] | None = field(default=())

    @property
    def always(self) -> bool:
        return self.parts == ()

    @property
    def never(self) -> bool:
        return self.parts is None

    def text(self) -> str:
        """The condition as an expression; `True` and `False` for the constant ones."""
        if self.parts is None:
            return "False"
        return " and ".join(self.parts) if self.parts else "True"

    @property
    def simple(self) -> bool:
        """Whether it is short enough to be repeated at every autocast region."""
        return self.parts is not None and len(self.parts) <= 1

    def same(self, other: Flag) -> bool:
        """Whether both ask the same, in whatever order."""
        if self.parts is None or other.parts is None:
            return self.parts is other.parts
        return set(self.parts) == set(other.parts)

    def either(self, other: Flag) -> Flag:
        """On where this or the other is."""
        if self.parts is None or other.parts is None or self.same(other):
            return self if self.parts is not None else other
        common = [p for p in self.parts if p in other.parts]
        mine, theirs = ([p for p in f.parts or () if p not in common] for f in (self, other))
        exhaustive = len(mine) == len(theirs) == 1 and opposite(mine[0], theirs[0])
        if not mine or not theirs or exhaustive:
            return Flag(self.scope, tuple(common))
        return Flag(self.scope, (*common, f"({' and '.join(mine)} or {' and '.join(theirs)})"))

    def joined(self, parts: list[str]) -> Flag:
        if self.parts is None:
            return self
        return Flag(self.scope, without_implied(distinct([*parts, *self.parts])))


def without_implied(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Without each `not (a and b)` that another part makes true: `not a`, or `a` where it says `not a`; and without
    `level != "O0"` beside `level == "O1"`."""
    equal = [node for p in parts if isinstance(node := ast.parse(p, mode="eval").body, ast.Compare)]

    def implied(part: str) -> bool:
        node = ast.parse(part, mode="eval").body
        if isinstance(node, ast.Compare):
            return any(_excludes(other, node) for other in equal)
        if (
            not isinstance(node, ast.UnaryOp)
            or not isinstance(node.op, ast.Not)
            or not isinstance(node.operand, ast.BoolOp)
        ):
            return False
        if not isinstance(node.operand.op, ast.And):
            return False
        return any(ast.unparse(ast.UnaryOp(ast.Not(), v)) in parts for v in node.operand.values) or any(
            isinstance(v, ast.UnaryOp) and isinstance(v.op, ast.Not) and ast.unparse(v.operand) in parts
            for v in node.operand.values
        )

    return tuple(p for p in parts if not implied(p))


def _excludes(given: ast.Compare, other: ast.Compare) -> bool:
    """Whether `x == a` makes `x != b` true, for two different literals."""
    if not isinstance(given.ops[0], ast.Eq) or not isinstance(other.ops[0], ast.NotEq):
        return False
    mine, theirs = given.comparators[0], other.comparators[0]
    return (
        len(given.ops) == len(other.ops) == 1
        and ast.dump(given.left) == ast.dump(other.left)
        and isinstance(mine, ast.Constant)
        and isinstance(theirs, ast.Constant)
        and mine.value != theirs.value
    )


def distinct(parts: Iterable[str]) -> tuple[str, ...]:
    """Conditions without repetition, whatever their quotes and spaces."""
    return tuple({ast.unparse(ast.parse(p, mode="eval")): p for p in reversed(list(parts))}.values())[::-1]


def init_flag(project: Project, init: Init) -> Flag:
    """When an `initialize` call switches mixed precision on, as its own arguments say: `enabled` and `opt_level`."""
    module, scope = init.module, init.site.scope
    parts: list[str] = []
    enabled = init.arguments.get("enabled")
    if enabled is not None:
        literal = init.literal("enabled")
        if literal is ...:
            parts += conjunction(module, availability(project, module), enabled) or []
        elif not literal:
            return Flag(scope, None)
    level = init.arguments.get("opt_level")
    if level is not None:
        more = _level_parts(project, module, level)
        if more is None:
            return Flag(scope, None)
        parts += more
    return Flag(scope, distinct([*import_parts(project, init), *parts]))


def _asks_for_amp(project: Project, module: Module, test: ast.expr, part: str) -> bool:
    """Whether a conjunct only asks whether `amp` is there: `import_parts` says what that comes to."""
    for node in ast.walk(test):
        if isinstance(node, ast.Name) and (project.qualify(module, node) or "").startswith("apex"):
            if part in (node.id, f"{node.id} is not None", f"{node.id} != None"):
                return True
    return False


def import_parts(project: Project, init: Init) -> list[str]:
    """What `if amp:` asks where `amp` is imported only under a switch and is None otherwise."""
    available = availability(project, init.module)
    asks = any(
        available.is_switch(n)
        for guard, _ in guard_parts(project, init.module, init.site.stmt, None)
        for n in ast.walk(guard.test)
        if isinstance(n, ast.Name) and (project.qualify(init.module, n) or "").startswith("apex")
    )
    if not asks:
        return []
    for module in dict.fromkeys([init.module, *(m for calls in project.calls.values() for m, _ in calls)]):
        for node in apex_imports(module):
            scope = module.scope_of(node)
            if not scope.is_function:
                continue
            parts: list[str] = []
            for guard, inner in guard_parts(project, module, node, None):
                if any(_sets_none(s) for s in guard.orelse) or any(_sets_none(s) for s in guard.body):
                    parts += inner or []
            if parts and all(visible(project, p, scope, init.site.scope) for p in parts):
                return parts
    return []


def _sets_none(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Assign) and is_none(stmt.value)


def _level_parts(project: Project, module: Module, level: ast.expr) -> list[str] | None:
    levels = {str(value).upper() for value in project.once(Values).fixed(module, level) or ()}
    if levels and (levels == {"O0"} or "O0" not in levels):
        return None if "O0" in levels else []
    if isinstance(level, ast.IfExp):
        return _choice(project, module, level)
    if isinstance(level, ast.Name):
        value = single_assignment(module, level)
        if isinstance(value, ast.IfExp) and all(isinstance(x, ast.Constant) for x in (value.body, value.orelse)):
            return _choice(project, module, value)
    quote = '"' if module.prefers_double else "'"
    return [f"{module.source(level)} != {quote}O0{quote}"]


def _choice(project: Project, module: Module, level: ast.IfExp) -> list[str] | None:
    """`"O1" if use_fp16 else "O0"` is on when use_fp16 is."""
    on, off = (_level_parts(project, module, x) for x in (level.body, level.orelse))
    available = availability(project, module)
    if on == [] and off is None:
        return conjunction(module, available, level.test) or []
    if on is None and off == []:
        return conjunction(module, available, level.test, negate=True) or []
    if on == [] and off == []:
        return []
    return [f'({module.source(level)}) != "O0"']


def visible(project: Project, text: str, home: Scope, there: Scope) -> bool:
    """Whether an expression that is valid in `home` means the same in `there`."""
    tree = ast.parse(text, mode="eval")
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return all(_same(project, name, home, there, _fields(tree, name)) for name in names)


def through_field(project: Project, text: str, home: Scope, there: Scope) -> str | None:
    """An expression of `home` as a method reads it off its own object, which was made with what the expression starts from:
    `args.loss_scale` is `self.args.loss_scale`. None where no field of the object, set in its `__init__`, is given that."""
    tree = ast.parse(text, mode="eval")
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
    cls = project.classes[there.owner_class.node] if there.owner_class is not None else None
    made = cls.methods.get("__init__") if cls is not None else None
    owner = home.lookup(names[0].id) if len({n.id for n in names}) == 1 else None
    if made is None or owner is None or there.self_name is None:
        return None
    given = _slot(project, owner, names[0].id)
    for node in made.inside:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own = isinstance(node.value, ast.Name) and node.value.id == made.scope.self_name
            slot = project.slot(made.module, node) if own else None
            if slot is not None and given in project.origins([slot]):
                for name in names:
                    name.id = f"{there.self_name}.{node.attr}"
                return there.module.written(tree)
    return None


def _fields(tree: ast.AST, name: str) -> set[str]:
    """The attributes that an expression reads of a name."""
    return {
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == name
    }


def _same(project: Project, name: str, home: Scope, there: Scope, fields: set[str]) -> bool:
    owner, other = home.lookup(name), there.lookup(name)
    if owner is None or other is None:
        return owner is other
    if owner is other:
        return True
    if name == home.self_name and name == there.self_name:
        mine, theirs = home.owner_class, there.owner_class
        if mine is None or theirs is None:
            return False
        return project.classes[mine.node].shares_instances(project.classes[theirs.node])
    if owner.imports.get(name) is not None and owner.imports.get(name) == other.imports.get(name):
        return True
    if other.is_module and there.is_function and not owner.is_module and _only_in_main(other, name):
        return False  # whoever imports the function has no such name
    mine_slot, other_slot = _slot(project, owner, name), _slot(project, other, name)
    if project.origins([mine_slot]) & project.origins([other_slot]):
        return True
    uncalled = other.is_function and not project.calls.get(project.functions[other.node])
    return uncalled and name in other.params and name in home.params and _may_have(other.module, name, fields)


def _may_have(module: Module, name: str, fields: set[str]) -> bool:
    """Whether what a file calls `args` may have some attributes: a file with a command line of its own says which."""
    options = {option for option, _ in declared(module)}
    read = {
        node.attr
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
    }
    return not options or fields <= options | read


def _only_in_main(scope: Scope, name: str) -> bool:
    """Whether a module binds a name under `if __name__ == "__main__":` alone."""
    module = scope.module
    return all(
        any(isinstance(a, ast.If) and "__name__" in ast.unparse(a.test) for a in module.ancestors(binding))
        for binding in scope.bindings[name]
    )


def _slot(project: Project, owner: Scope, name: str) -> Slot:
    """Where the value of a name lives that a scope binds: for an imported one, in the module it comes from."""
    target = owner.imports.get(name)
    found = project.exported(target) if target is not None else None
    return found or Slot(owner, name)


def expanded(flag: Flag, text: str) -> str:
    """A flag text with its local names replaced by the one value they are given: `use_amp` is `cfg.dtype == "float16"`."""
    tree = ast.parse(text, mode="eval")

    class _Expand(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            value = given_once(flag.scope.lookup(node.id), node.id)
            return value if value is not None and stable(value) else node

    before = ast.dump(tree)
    new: ast.Expression = _Expand().visit(tree)
    if ast.dump(new) == before:
        return text
    return flag.scope.module.written(new)


def stable(value: ast.expr) -> bool:
    """A value that may be evaluated again: it only reads and compares."""
    return not any(
        isinstance(n, (ast.Call, ast.Await, ast.Yield, ast.NamedExpr)) and "is_available" not in ast.unparse(n)
        for n in ast.walk(value)
    )


def guard_parts(
    project: Project, module: Module, stmt: ast.stmt, up_to: ast.AST | None
) -> list[tuple[ast.If, list[str] | None]]:
    """The `if`s around a statement, innermost first, with what each asks beyond Apex being installed."""
    available: Availability = availability(project, module)
    found: list[tuple[ast.If, list[str] | None]] = []
    child: ast.AST = stmt
    for parent in module.ancestors(stmt):
        if parent is up_to or parent in module.scopes:
            break
        if isinstance(parent, ast.If):
            inside = any(child is s for s in parent.body)
            parts = conjunction(module, available, parent.test, negate=not inside)
            if parts is not None:
                parts = [p for p in parts if not _asks_for_amp(project, module, parent.test, p)]
            found.append((parent, parts))
        child = parent
    return found
