"""What torch.jit.script compiles: a function with what it calls, or an object with whatever it may hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program

_SCRIPT = "torch.jit.script"


def may_compile(program: Program, wanted: Class | Function) -> bool:
    """Whether some torch.jit.script of a program may come by one of its classes or functions."""
    todo: list[Class | Function] = []
    for module in program.modules.values():
        if "jit" in module.words and "script" in module.words:
            for found in _compiled(program, module):
                if found is None:
                    return True
                todo.append(found)
    seen: set[Class | Function] = set()
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += _named_in(program, one)
    return wanted in seen


def _compiled(program: Program, module: Module) -> Iterator[Class | Function | None]:
    """What a file hands to torch.jit.script; None for an object, of which nothing says what it holds."""
    names = {"script", *module.renamed, *(n for names in module.aliases.values() for n in names)}
    for node in (n for name in names for n in module.loads.get(name, ())):
        if program.dotted(module.scope_of(node), node) != _SCRIPT:
            continue
        around = module.parents.get(node)
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in around.decorator_list:
            yield program.function_of(module, around)
        elif isinstance(around, ast.ClassDef) and node in around.decorator_list:
            yield module.class_of[around]
        elif isinstance(around, ast.Call) and around.func is node and len(around.args) == 1:
            (given,) = around.args
            yield from program.definitions(module.scope_of(given), given, guess=False) or (None,)
        else:
            yield None


def _named_in(program: Program, definition: Class | Function) -> Iterator[Class | Function]:
    """The classes and functions that a definition names anywhere."""
    for node in syntax.walk(definition.node):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            yield from program.definitions(definition.module.scope_of(node), node)
