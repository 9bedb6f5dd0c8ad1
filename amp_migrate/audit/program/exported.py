"""What a file gives to those that import from it."""

from __future__ import annotations

import ast

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module


def starred(module: Module, name: str) -> bool:
    """Whether `from module import *` brings a name that the file has: by `__all__`, as far as that can be read."""
    listed: set[str] = set()
    for node in module.top.bindings.get("__all__", ()):
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) else None
        if not isinstance(value, (ast.List, ast.Tuple)) or not all(isinstance(e, ast.Constant) for e in value.elts):
            return True
        listed.update(e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str))
    if "__all__" not in module.top.bindings:
        return not name.startswith("_")
    return name in listed or "__all__" in module.loads  # `__all__ += other.__all__`, `__all__.append(...)`


def standing(module: Module, name: str) -> list[ast.AST]:
    """What binds a name of a file once it has run: the last statement that surely does, and those that may follow it."""
    nodes = module.top.bindings.get(name, [])
    sure = [i for i, n in enumerate(nodes) if module.parents.get(n) is module.tree]
    last = sure[-1] if sure else 0
    return [n for i, n in enumerate(nodes) if i >= last or module.scope_of(n) is not module.top]


def alias(node: ast.AST, name: str) -> ast.Name | ast.Attribute | ast.Call | None:
    """What an assignment calls by another name: `F = torch.nn.functional`, `amp = import_module("apex.amp")`."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        return None
    value = node.value
    imports = isinstance(value, ast.Call) and syntax.text(value.func).endswith(("import_module", "__import__"))
    if not isinstance(value, (ast.Name, ast.Attribute, ast.Call)) or (isinstance(value, ast.Call) and not imports):
        return None
    if not any(isinstance(t, ast.Name) and t.id == name for t in targets):
        return None
    return None if any(isinstance(n, ast.Name) and n.id == name for n in syntax.walk(value)) else value


def is_none(node: ast.AST) -> bool:
    """Whether a statement gives a name None, or only says of which type it is."""
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else node
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
