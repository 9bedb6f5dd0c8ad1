"""Whether a name is given its value before a statement, and what stands for it where it is not."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import single_assignment
from amp_migrate.reading.program.module import Module, Scope


def bound_before(module: Module, scope: Scope, name: str, node: ast.AST) -> bool:
    """Whether a name of a scope holds its value where a node stands: not yet in the statement that makes the value."""
    if module.scope_of(node) is not scope or name in scope.params or name not in scope.bindings:
        return True
    statement = module.statement(node)
    around = [statement, *(a for a in module.ancestors(statement) if isinstance(a, ast.stmt))]
    for binding in scope.bindings[name]:
        made = module.statement(binding)
        if made in around:
            if made is not statement and isinstance(made, (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)):
                return True  # a loop's variable, in the loop
            continue
        if any(module.parents.get(a) is module.parents[made] and a.lineno > made.lineno for a in around):
            return True
        if not any(isinstance(a, (ast.If, ast.Try)) for a in module.ancestors(made)) and made.lineno < statement.lineno:
            return True
    return bool(scope.imports.get(name))


def written_before(module: Module, source: str, at: ast.AST) -> str | None:
    """An expression as it can be written where another node stands, above itself: names that are only other names for
    something (`opt = optimizer`, `members = [optimizer]`) are replaced by it. None where that is not enough."""
    text = source
    scope = module.scope_of(at)
    for _ in range(3):
        late = [
            n
            for n in ast.walk(ast.parse(text, mode="eval"))
            if isinstance(n, ast.Name) and not bound_before(module, scope, n.id, at)
        ]
        if not late:
            return text
        values = {n.id: _value(module, scope, n.id) for n in late}
        if None in values.values():
            return None
        text = ast.unparse(
            _Replace({name: value for name, value in values.items() if value}).visit(ast.parse(text, mode="eval"))
        )
    return None


def _value(module: Module, scope: Scope, name: str) -> ast.expr | None:
    """What a name stands for, where it is given that once and it may be written again."""
    (first, *_) = scope.bindings[name]
    value = single_assignment(module, first) if isinstance(first, ast.Name) else None
    allowed = (ast.Name, ast.Attribute, ast.List, ast.Tuple, ast.Constant, ast.expr_context)
    return value if value is not None and all(isinstance(n, allowed) for n in ast.walk(value)) else None


class _Replace(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """`pair[1]` of a written tuple is its element."""
        new = self.generic_visit(node)
        assert isinstance(new, ast.Subscript)
        index = new.slice.value if isinstance(new.slice, ast.Constant) else None
        if isinstance(new.value, (ast.Tuple, ast.List)) and isinstance(index, int) and index < len(new.value.elts):
            return new.value.elts[index]
        return new
