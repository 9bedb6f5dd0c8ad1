"""An expression of one scope as it reads in another: under the same names, in terms of what a call passes, or not at all."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.command_line import declared
from amp_migrate.reading.program.given_values import given_once
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers, walk
from amp_migrate.reading.switch.bound_anew import held_anew
from amp_migrate.reading.values import run_by_variables


def visible(project: Project, text: str, home: Scope, there: Scope, at: ast.stmt | None = None) -> bool:
    """Whether an expression that is valid in `home` means the same in `there`, or at a statement of it."""
    tree = ast.parse(text, mode="eval")
    names = identifiers(tree)
    return all(
        _same(project, name, home, there, _fields(tree, name)) and not held_anew(project, text, name, home, there, at)
        for name in names
    )


def through_field(project: Project, text: str, home: Scope, there: Scope) -> str | None:
    """An expression of `home` as a method reads it off its own object, which was made with what the expression starts from:
    `args.loss_scale` is `self.args.loss_scale`. None where no field of the object, set in its `__init__`, is given that."""
    tree = ast.parse(text, mode="eval")
    names = [n for n in walk(tree) if isinstance(n, ast.Name)]
    cls = project.class_of(there)
    made = cls.methods.get("__init__") if cls is not None else None
    owner = home.lookup(names[0].id) if len({n.id for n in names}) == 1 else None
    if made is None or owner is None or there.self_name is None:
        return None
    given = project.bound_slot(owner, names[0].id)
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
        for n in walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == name
    }


def _same(project: Project, name: str, home: Scope, there: Scope, fields: set[str]) -> bool:
    owner, other = home.lookup(name), there.lookup(name)
    if owner is None or other is None:
        return owner is other
    if owner is other:
        return True
    if name == home.self_name and name == there.self_name:
        mine, theirs = project.class_of(home), project.class_of(there)
        return mine is not None and theirs is not None and mine.shares_instances(theirs)
    if owner.imports.get(name) is not None and owner.imports.get(name) == other.imports.get(name):
        return True
    if other.is_module and there.is_function and not owner.is_module and _only_in_main(other, name):
        return False  # whoever imports the function has no such name
    mine_slot, other_slot = project.bound_slot(owner, name), project.bound_slot(other, name)
    origins = project.origins([mine_slot])
    if origins & project.origins([other_slot]):
        return True
    handed = run_by_variables.values_of(project, other_slot)  # all that is seen to be handed over
    if handed and all(slot is not None and origins & project.origins([slot]) for slot in handed):
        return True
    uncalled = other.is_function and not project.calls.get(project.functions[other.node])
    if not uncalled or name not in other.params or not _may_have(other.module, name, fields):
        return False
    return name in home.params or (owner is home and home.module is other.module and _reads_alike(name, home, other))


def _reads_alike(name: str, home: Scope, other: Scope) -> bool:
    """Whether a function reads a field of what it calls `args` that another function of the file reads of its own, or an option
    that the file declares."""
    read, own = (
        {n.attr for n in walk(s.node) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == name}
        for s in (other, home)
    )
    return not read.isdisjoint(own.union(option for option, _ in declared(home.module)))


def _may_have(module: Module, name: str, fields: set[str]) -> bool:
    """Whether what a file calls `args` may have some attributes: a file with a command line of its own says which."""
    options = {option for option, _ in declared(module)}
    read = {
        node.attr
        for node in walk(module.tree)
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


def expanded(scope: Scope, text: str) -> str:
    """A condition with its local names replaced by the one value they are given: `use_amp` is `cfg.dtype == "float16"`."""
    tree = ast.parse(text, mode="eval")

    class _Expand(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            value = given_once(scope.lookup(node.id), node.id)
            return value if value is not None and stable(value) else node

    before = ast.dump(tree)
    new: ast.Expression = _Expand().visit(tree)
    if ast.dump(new) == before:
        return text
    return scope.module.written(new)


def stable(value: ast.expr) -> bool:
    """A value that may be evaluated again: it only reads and compares."""
    return not any(
        isinstance(n, (ast.Call, ast.Await, ast.Yield, ast.NamedExpr)) and "is_available" not in ast.unparse(n)
        for n in walk(value)
    )


def in_call(project: Project, text: str, given: dict[str, str], home: Scope, there: Scope) -> str | None:
    """An expression of a function, over its parameters and names that both sides know, in terms of one call."""
    tree = ast.parse(text, mode="eval")
    for name in identifiers(tree):
        if name in home.params:
            if (
                len(home.bindings[name]) > 1
                or name not in given
                or not stable(ast.parse(given[name], mode="eval").body)
            ):
                return None
        elif not visible(project, name, home, there):
            return None

    class _Swap(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.parse(given[node.id], mode="eval").body if node.id in home.params else node

    return there.module.written(_Swap().visit(tree))
