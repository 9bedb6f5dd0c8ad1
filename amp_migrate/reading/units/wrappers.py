"""Code that scales losses natively: a block that does, and classes such as a `NativeScaler`."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk


def scales_natively(block: Iterable[ast.AST]) -> bool:
    """Whether `scaler.scale(loss).backward()` stands somewhere in a block."""
    for node in (n for s in block for n in walk(s)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            value = node.func.value
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "scale":
                return True
    return False


def makes_native(project: Project, module: Module, block: Iterable[ast.AST]) -> bool:
    """Whether a block makes an instance of a class of the program that scales natively."""
    for node in (n for s in block for n in walk(s)):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            cls = project.find_class(module, node.func)
            if cls is not None and scales_natively(cls.node.body):
                return True
    return False
