"""Classes of a program that scale losses, such as an `ApexScaler` beside a `NativeScaler`: who makes their instances."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project


def class_around(project: Project, module: Module, node: ast.AST) -> ClassInfo | None:
    """The class in one of whose methods a node stands."""
    owner = module.scope_of(node).owner_class
    return project.classes[owner.node] if owner is not None else None


def makers(project: Project, cls: ClassInfo) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that make an instance of a class."""
    for module in project.modules:
        if cls.name in module.text:
            for call, _ in module.calls:
                if isinstance(call.func, (ast.Name, ast.Attribute)) and project.find_class(module, call.func) is cls:
                    yield module, call


def scales_natively(block: Iterable[ast.AST]) -> bool:
    """Whether `scaler.scale(loss).backward()` stands somewhere in a block."""
    for node in (n for s in block for n in ast.walk(s)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            value = node.func.value
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "scale":
                return True
    return False


def makes_native(project: Project, module: Module, block: Iterable[ast.AST]) -> bool:
    """Whether a block makes an instance of a class of the program that scales natively."""
    for node in (n for s in block for n in ast.walk(s)):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            cls = project.find_class(module, node.func)
            if cls is not None and scales_natively(cls.node.body):
                return True
    return False
