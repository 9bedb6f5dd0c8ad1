"""How names say that Apex is there: by what they are called, and by the `try` around its import that gives them."""

from __future__ import annotations

import ast

from amp_migrate.audit.program.module import Module, Scope


def of_apex(name: str) -> bool:
    """Whether a name says that Apex is there: `HAS_APEX`, `is_apex_available`."""
    called = name.rpartition(".")[2].lower()
    return "apex" in called and ("has" in called or "avail" in called)


def beside_import(module: Module, node: ast.AST) -> bool:
    """Whether a binding stands in a `try` around an import of Apex: it says whether Apex is there."""
    return any(isinstance(at, ast.Try) and any(imports_apex(s) for s in at.body) for at in module.ancestors(node))


def import_or_none(scope: Scope, name: str) -> ast.AST | None:
    """The one import that gives a name its value, where all else gives it None: `if fp16: from apex import amp`; where nothing
    else does, one of Apex."""
    imports = [n for n in scope.bindings[name] if isinstance(n, (ast.Import, ast.ImportFrom))]
    others = [n.value for n in scope.bindings[name] if isinstance(n, ast.Assign)]
    none = all(isinstance(v, ast.Constant) and v.value is None for v in others)
    alone = len(imports) == 1 and none and 1 + len(others) == len(scope.bindings[name])
    return imports[0] if alone and (others or imports_apex(imports[0])) else None


def caught(module: Module, node: ast.AST) -> bool:
    return any(isinstance(at, ast.ExceptHandler) for at in module.ancestors(node))


def imports_apex(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(a.name.split(".")[0] == "apex" for a in node.names)
    return isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "apex"
