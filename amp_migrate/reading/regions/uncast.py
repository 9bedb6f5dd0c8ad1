"""What runs where casts are disabled, however `amp.disable_casts()` is entered: by a `with`, by a name or a choice that one
enters, on an `ExitStack`, as a decorator, or by a context manager or a function of the program that hands it on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from amp_migrate.reading.program.module import FUNCTION_NODES, WITH_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import own_nodes

DEEPEST = 5  # names and functions that hand it on


@dataclass
class Uncast:
    """`roots`: the nodes in which casts are disabled. `choices`: what enters that or something else. `guards`: the tests under
    which only it is entered, of nodes that also run without it. `decided`: the tests, and how they come out, under which only
    a function of the program hands it on."""

    roots: list[ast.AST] = field(default_factory=list)
    choices: list[tuple[Module, ast.IfExp]] = field(default_factory=list)
    guards: list[tuple[Module, ast.If]] = field(default_factory=list)
    decided: list[tuple[Module, ast.If, bool]] = field(default_factory=list)


def uncast(project: Project, module: Module, call: ast.Call) -> Uncast | None:
    """Where the casts are off that a call disables; None where that is not in sight."""
    found = Uncast()
    return found if _follow(project, module, call, found, 0) else None


def _follow(project: Project, module: Module, node: ast.expr, found: Uncast, depth: int) -> bool:
    parent = module.parents.get(node)
    while isinstance(parent, ast.IfExp) and node is not parent.test:
        found.choices.append((module, parent))
        node, parent = parent, module.parents.get(parent)
    if depth > DEEPEST:
        return False
    if isinstance(parent, ast.withitem):
        holder = module.parents[parent]
        found.roots.append(holder)
        return not isinstance(holder, WITH_NODES) or _handed_on(project, module, holder, found, depth)
    if isinstance(parent, FUNCTION_NODES) and node in parent.decorator_list:
        found.roots.append(parent)
        return True
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        name = parent.targets[0]
        scope = module.scope_of(name).lookup(name.id)
        reads = scope.reads(name.id) if scope is not None and len(scope.bindings[name.id]) == 1 else []
        return bool(reads) and all(_follow(project, module, read, found, depth + 1) for read in reads)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "enter_context":
        return _on_stack(module, parent, parent.func.value, found)
    if isinstance(parent, ast.Return):
        found.decided += _deciding(module, parent, ast.Return)
    return isinstance(parent, ast.Return) and _by_callers(project, module, parent, found, depth)


def _handed_on(project: Project, module: Module, holder: ast.With | ast.AsyncWith, found: Uncast, depth: int) -> bool:
    """What a context manager of the program yields to, if the region is in one."""
    yields = any(isinstance(n, ast.Yield) for n in own_nodes(holder.body))
    if yields:
        found.decided += _deciding(module, holder, ast.Yield)
    return not yields or _by_callers(project, module, holder, found, depth)


def _deciding(
    module: Module, node: ast.stmt, gives: type[ast.Return | ast.Yield]
) -> Iterator[tuple[Module, ast.If, bool]]:
    """The tests by which a function gives something else than at a node: those around it, and those above that give it."""
    at: ast.AST = node
    while isinstance(at, ast.stmt) and not isinstance(at, FUNCTION_NODES):
        block = module.block(at)
        for above in block[: block.index(at)]:
            if isinstance(above, ast.If) and any(isinstance(n, gives) for n in own_nodes([above])):
                yield module, above, False
        at, below = module.parents[at], at
        if isinstance(at, ast.If):
            yield module, at, below in at.body


def _by_callers(project: Project, module: Module, node: ast.AST, found: Uncast, depth: int) -> bool:
    """What calls of the function that a node stands in hand on."""
    function = project.function_of(module, node)
    calls = project.calls.get(function, ()) if function is not None else ()
    return all(_follow(project, where, call, found, depth + 1) for where, call in calls)


def _on_stack(module: Module, entered: ast.Call, stack: ast.expr, found: Uncast) -> bool:
    """All that follows in the `with` that opens a stack: `with ExitStack() as stack:`."""
    holder = next(
        (
            a
            for a in module.ancestors(entered)
            if isinstance(a, WITH_NODES)
            for item in a.items
            if isinstance(stack, ast.Name)
            and isinstance(named := item.optional_vars, ast.Name)
            and named.id == stack.id
        ),
        None,
    )
    at: ast.AST = module.statement(entered)
    if holder is at:
        found.roots.append(holder)
    while holder is not None and at is not holder:
        if isinstance(at, ast.stmt):
            block = module.block(at)
            found.roots += block[block.index(at) + 1 :]
            if isinstance(at, ast.If):
                found.guards.append((module, at))
        at = module.parents[at]
    return holder is not None
