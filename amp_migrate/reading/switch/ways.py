"""What a run must have asked for to come by `amp.initialize` at all: `if args.do_train: train(args, model)`.

Where Apex was set up by a function that a run may pass by, an evaluation of such a run was in float32.
"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.command_line import declared
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.processes import imported
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.switch.flags import guard_parts
from amp_migrate.reading.units.unit import Init

DEPTH = 4  # calls followed up


def on_the_way(project: Project, init: Init, scope: Scope) -> list[tuple[str, Scope]]:
    """The conditions, each with the scope that it is read in, under which a run that comes to a scope has come by
    `initialize` before; none where it comes by it in any case, or where more than one way leads there."""
    made_in = project.functions.get(init.site.scope.node)
    there = _function(project, scope)
    if made_in is None or there is None or not _apart(project, there, made_in):
        return []
    found: list[tuple[str, Scope]] = []
    current = made_in
    for _ in range(DEPTH):
        calls = project.calls.get(current, [])
        if len(calls) != 1:
            return []
        module, call = calls[0]
        if module is not there.module:
            return []  # another program may come there that has no such option
        for guard, parts in guard_parts(project, module, module.statement(call), None):
            if "__name__" in ast.unparse(guard.test):
                continue
            if parts is None or not all(_is_option(project, module, part) for part in parts):
                return []
            found += [(part, module.scope_of(call)) for part in parts]
        caller = project.functions.get(module.scope_of(call).node)
        if caller is None:
            return found
        current = caller
    return []


def _function(project: Project, scope: Scope) -> Function | None:
    """The function that a scope is, or stands in."""
    return next((f for s in scope.chain() if (f := project.functions.get(s.node)) is not None), None)


def _apart(project: Project, there: Function, made_in: Function) -> bool:
    """Whether some way leads to a function that does not come by another, and all are in one file."""
    queue, seen = [there], {there}
    passed_by = False
    while queue:
        current = queue.pop()
        if current is made_in:
            continue
        calls = project.calls.get(current, [])
        if not calls or any(module is not there.module for module, _ in calls):
            return False
        for module, call in calls:
            caller = project.functions.get(module.scope_of(call).node)
            if caller is None:
                passed_by = True
            elif caller not in seen:
                seen.add(caller)
                queue.append(caller)
    return passed_by


def _is_option(project: Project, module: Module, part: str) -> bool:
    """Whether a condition is an option of the command line, which nothing changes between the two: `args.do_train`. What
    the file imports may declare it."""
    tree = ast.parse(part, mode="eval").body
    while isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        tree = tree.operand
    if not isinstance(tree, ast.Attribute) or not isinstance(tree.value, ast.Name):
        return False
    return any(option == tree.attr for m in imported(project, module) for option, _ in declared(m))
