"""Attributes that a class computes: what `@property` reads, and what `@name.setter` is given by an assignment."""

from __future__ import annotations

import ast

from amp_migrate.audit.program.module import Function


def is_getter(function: Function) -> bool:
    """Whether a method is what an attribute of its name is read by."""
    return any(isinstance(d, ast.Name) and d.id == "property" for d in function.node.decorator_list)


def set_by(function: Function) -> str | None:
    """The attribute whose assignments run a method."""
    for decorator in function.node.decorator_list:
        if isinstance(decorator, ast.Attribute) and isinstance(decorator.value, ast.Name):
            if decorator.attr in ("setter", "deleter"):
                return decorator.value.id
    return None
