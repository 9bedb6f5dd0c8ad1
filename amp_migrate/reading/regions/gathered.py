"""Helpers: functions that run a forward for a training step, whose region can take all of them in."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import LOOP_NODES, WITH_NODES, Module
from amp_migrate.reading.program.own_regions import casts_itself, own_switch
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import reached
from amp_migrate.reading.regions.place import RegionReader
from amp_migrate.reading.regions.refused import refuses, second_order


def gathers(reader: RegionReader, function: Function) -> bool:
    """Whether the region of who calls a function can take all of it in: a loss that is scaled comes from it, and it runs the model
    once, no backward, nothing that autocast refuses, and no region of the program's own."""
    project = reader.project
    calls = project.calls.get(function, ())
    if not any(c in reader.losses.feeding(m.scope_of(c)) for m, c in calls) or reader.runs_backward(function):
        return False
    inside, module = set(function.inside), function.module
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in inside):
        return False
    runs = [n for n in inside if reader.is_forward(module, n)]
    if any(isinstance(a, LOOP_NODES) and a in inside for n in runs for a in module.ancestors(n)):
        return False
    code = ((f.module, n) for f in reached([function], lambda f: _called(project, f)) for n in f.inside)
    return not any(_apart(reader, m, n) for m, n in code)


def _called(project: Project, function: Function) -> list[Function]:
    return [f for n in function.inside if isinstance(n, ast.Call) for f in project.resolved.get(n, ())]


def _apart(reader: RegionReader, module: Module, node: ast.AST) -> bool:
    """Whether code cannot stand in a region, or stands in one of its own."""
    if isinstance(node, WITH_NODES):
        return casts_itself(module, node) or own_switch(module, node) is not None
    return isinstance(node, ast.Call) and (refuses(reader.project, module, node) or second_order(module, node))
