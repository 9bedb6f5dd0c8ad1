"""Deprecated names in branches for a torch older than their successors: they are right there, and stay."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.torch_versions import TorchVersions


def for_old_torch(project: Project, module: Module, node: ast.AST) -> bool:
    """Whether only a torch older than any that runs what is written comes to a node."""
    if "version" not in module.text.lower():
        return False
    child = node
    for outer in module.ancestors(node):
        if isinstance(outer, (ast.If, ast.IfExp)) and child is not outer.test:
            versions, constants = project.once(_versions, module)
            value = versions.comes_to(outer.test, constants)
            body = outer.body if isinstance(outer.body, list) else [outer.body]
            if value is not None and value is not any(child is s for s in body):
                return True
        child = outer
    return False


def _versions(project: Project, module: Module) -> tuple[TorchVersions, dict[str, ast.expr]]:
    """What the file asks of torch's version; the constants it imports that hold that."""
    constants: dict[str, ast.expr] = {}
    for name, target in module.root.imports.items():
        if name.isupper() and target.rpartition(".")[2] == name:
            values = [
                stmt.value
                for other in project.modules
                for bound in other.root.bindings.get(name, ())
                if isinstance(stmt := other.parents.get(bound), ast.Assign)
            ]
            if values and all(ast.unparse(v) == "torch.__version__" for v in values):
                constants[name] = values[0]
    return TorchVersions(module.tree), constants
