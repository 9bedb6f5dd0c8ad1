"""Is what an expression reads there in every run? An item of a configuration that was loaded may be missing in the runs
that had no need of it."""

from __future__ import annotations

import ast
from collections.abc import Collection

from amp_migrate.reading.program.definitions import ClassInfo, argument, called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.sources import Sources, key_of, own_class
from amp_migrate.reading.values.table import Value

# What hands out all that was declared, whether a run sets it or not.
PARSERS = frozenset(
    "parse_args parse_known_args parse_intermixed_args parse_known_intermixed_args parse_args_into_dataclasses".split()
)
SOMETIMES = (ast.If, ast.IfExp, ast.BoolOp, ast.Try, ast.For, ast.AsyncFor, ast.While, ast.Match, ast.comprehension)


def may_lack(project: Project, module: Module, node: ast.expr, apart: Collection[ast.AST] = ()) -> ast.expr | None:
    """The first attribute or item in an expression that some run may not have, unless it is read or put there whatever
    comes, outside of the statements `apart`."""
    for part in walk(node):
        if not isinstance(part, (ast.Attribute, ast.Subscript)) or isinstance(part.ctx, ast.Store):
            continue
        if isinstance(above := module.parents.get(part), ast.Call) and above.func is part:
            continue  # a method: every object of the kind has it
        if not _there(project, module, part) and not _read_anyway(module, part, apart):
            return part
    return None


def may_be_none(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether an expression is seen to come to None in some run: `float()` of it raises."""
    return any(_is_none(value) for value in project.once(Values).may_be(module, node))


def certainly_parsed(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether an attribute is an option of a command line for sure, so that what is declared says what it is."""
    if not isinstance(node, ast.Attribute):
        return True
    values = project.once(Values).may_be(module, node.value)
    return bool(values) and all(is_parsed(value) for value in values)


def _is_none(value: Value) -> bool:
    if value.kind != "option" or not isinstance(value.node, ast.Call):
        return value.kind == "constant" and value.constant is None
    given = {k.arg for k in value.node.keywords}
    default = argument(value.node, 99, "default")
    unset = "default" not in given and not given & {"required", "action", "nargs"}
    return unset or (isinstance(default, ast.Constant) and default.value is None)


def is_parsed(value: Value) -> bool:
    """Whether a value is what a parser of a command line hands out."""
    return value.kind in ("call", "item") and isinstance(value.node, ast.Call) and called_name(value.node) in PARSERS


def _there(project: Project, module: Module, node: ast.Attribute | ast.Subscript) -> bool:
    if module.qualify(node.value) is not None:
        return True  # a module's
    values = project.once(Values).may_be(module, node.value)
    if isinstance(node, ast.Subscript):
        key = key_of(node.slice)
        return bool(values) and all(_has_key(value, key) for value in values)
    if own_class(project, module.scope_of(node), node.value) is not None:
        return True
    sources, name = project.once(Sources), node.attr
    stored = [(where, t, own_class(project, where.scope_of(t), t.value)) for where, t, _ in sources.stored(name)]
    if any(cls is None and _always(where, target) for where, target, cls in stored) or sources.set_by_name(name):
        return True
    own = {cls for _, _, cls in stored if cls is not None}
    named = bool(sources.options(module, name) or sources.declaring(name) or sources.fields(name))
    return bool(values) and all(_has(project, value, name, named, own) for value in values)


def _has(project: Project, value: Value, name: str, named: bool, own: Collection[ClassInfo]) -> bool:
    """Whether a value has an attribute: `named` as an option or a field of some class, given by methods to objects of `own`."""
    if value.kind in ("class", "function", "named"):
        return True
    if value.kind == "instance" and (cls := project.classes.get(value.node)) is not None:
        family = (*cls.ancestry(), *cls.descendants())
        return any(name in c.scope.bindings or name in c.annotated or c in own for c in family)
    return is_parsed(value) or (value.kind == "parameter" and (named or bool(own)))


def _has_key(value: Value, key: str | int | None) -> bool:
    if not isinstance(value.node, ast.Dict):
        return False
    return any(isinstance(k, ast.Constant) and k.value == key for k in value.node.keys)


def _read_anyway(module: Module, node: ast.expr, apart: Collection[ast.AST]) -> bool:
    """Whether a function that comes to its end has read or stored the same place, in whichever branch it went."""
    scope, text = module.scope_of(node), ast.unparse(node)
    nodes = module.of(type(node))
    return any(
        other is not node
        and module.scope_of(other) is scope
        and not any(a in apart for a in module.ancestors(other))
        and _always(module, other)
        and ast.unparse(other) == text
        for other in nodes
    )


def _always(module: Module, node: ast.AST) -> bool:
    """Whether nothing around a node, in its function, says when it runs."""
    child: ast.AST = node
    for parent in module.ancestors(node):
        if parent in module.scopes:
            return True
        first = getattr(parent, "test", None) or getattr(parent, "iter", None)
        if isinstance(parent, ast.BoolOp):
            first = parent.values[0]
        if isinstance(parent, SOMETIMES) and child is not first:
            return False
        child = parent
    return True
