"""Whether a run whose call left a function before it came to `initialize` is the only one that comes to another place.

`solver = Solver(args.mode)`, whose constructor returns above `initialize` where the mode is "test", and below it
`if args.mode == "test": solver.test()`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from amp_migrate.reading.conditions.conjunctions import conjunction
from amp_migrate.reading.conditions.tests import availability, excludes
from amp_migrate.reading.program.definitions import Function, unpacks
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import own_nodes
from amp_migrate.reading.switch.elsewhere import expanded, in_call
from amp_migrate.reading.switch.flags import asked_around

LEAVES = (ast.Return, ast.Raise)


def left_early(
    project: Project,
    module: Module,
    node: ast.AST,
    lead: ast.Call,
    function: Function,
    inner: ast.AST,
    stays: Callable[[Module, str, ast.AST, ast.AST], bool],
) -> bool:
    """Whether what is asked around a node excludes what a call `lead` of a function of the same scope asks on its way to a
    place in that function; `stays`: whether a test is the same at two places."""
    here = asked_around(project, module, node)
    if not here or module.scope_of(node) is not module.scope_of(lead):
        return False
    given = {name: module.source(value) for name, value in project.arguments(function, lead)}
    if not unpacks(lead):
        given = {**function.constant_defaults, **given}
    for asked in _asked(project, function, inner):
        there = in_call(project, asked, given, function.scope, module.scope_of(lead))
        if there is not None and any(excludes(there, part) and stays(module, part, lead, node) for part in here):
            return True
    return False


def _asked(project: Project, function: Function, inner: ast.AST) -> Iterator[str]:
    """What holds in every run of a function that comes to a place in it, over its parameters: what `if`s around it ask, and
    what those above it did not, which leave."""
    module = function.module
    at = module.statement(inner)
    told = asked_around(project, module, at)
    while at is not function.node:
        block = module.block(at)
        for above in block[: block.index(at)]:
            if isinstance(above, ast.If) and not above.orelse and isinstance(above.body[-1], LEAVES):
                told += conjunction(module, availability(project, module), above.test, negate=True) or []
        parent = module.parents[at]
        while not isinstance(parent, (ast.stmt, ast.Module)):
            parent = module.parents[parent]
        if not isinstance(parent, ast.stmt):
            break
        at = parent
    yield from (expanded(function.scope, _by_parameters(function, part)) for part in told)


def _by_parameters(function: Function, text: str) -> str:
    """A test with the fields of the object that are given once, in this function and to a parameter as it is: `self.mode`."""
    own = function.scope.self_name
    stored: dict[str, list[ast.expr | None]] = {}
    for node in own_nodes(function.node.body):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == own:
                stored.setdefault(target.attr, []).append(node.value if isinstance(node, ast.Assign) else None)

    class _Swap(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            values = stored.get(node.attr, []) if isinstance(node.value, ast.Name) and node.value.id == own else []
            if len(values) == 1 and isinstance(values[0], ast.Name) and values[0].id in function.scope.params:
                return values[0]
            return self.generic_visit(node)

    return ast.unparse(_Swap().visit(ast.parse(text, mode="eval")))
