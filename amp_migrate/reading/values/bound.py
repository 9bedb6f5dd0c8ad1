"""Whether a name is given its value before a statement, and what stands for it where it is not."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.given_values import given_once
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.program.turns import of_one


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
    makers = {module.statement(binding) for binding in scope.bindings[name]}
    above = (s for stmt in around for block in [module.block(stmt)] for s in block[: block.index(stmt)])
    if any(makes(s, makers) for s in above):
        return True
    return bool(scope.imports.get(name)) or _read_above(module, scope, name, around)


def makes(stmt: ast.stmt, made: set[ast.stmt]) -> bool:
    """Whether a statement has given a name its value, whichever way it went: in each branch, or it left."""
    if isinstance(stmt, ast.If):
        return bool(stmt.orelse) and all(_made_in(block, made) for block in (stmt.body, stmt.orelse))
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return _made_in(stmt.body, made)
    if isinstance(stmt, ast.Try):
        whole = _made_in([*stmt.body, *stmt.orelse], made) and all(_made_in(h.body, made) for h in stmt.handlers)
        return whole or _made_in(stmt.finalbody, made)
    return stmt in made and not getattr(stmt, "body", None)


def _made_in(block: list[ast.stmt], made: set[ast.stmt]) -> bool:
    return any(makes(s, made) for s in block) or any(isinstance(s, (ast.Return, ast.Raise)) for s in block)


def _read_above(module: Module, scope: Scope, name: str, around: list[ast.stmt]) -> bool:
    """Whether every run that meets a statement has read a name already: one in which it had no value ended there."""
    reads = {
        module.statement(n) for n in module.loads.get(name, ()) if module.scope_of(n) is scope and _surely(module, n)
    }
    for stmt in around:
        block = module.block(stmt)
        if any(s in reads for s in block[: block.index(stmt)]):
            return True
    return False


def _surely(module: Module, node: ast.AST) -> bool:
    """Whether a statement evaluates an expression whenever it runs: no branch or comprehension keeps it from that."""
    for parent in module.ancestors(node):
        if isinstance(parent, ast.stmt):
            return not getattr(parent, "body", None) or isinstance(parent, (ast.With, ast.AsyncWith))
        if isinstance(parent, (ast.IfExp, ast.BoolOp, ast.Lambda, ast.comprehension, ast.GeneratorExp, ast.ListComp)):
            return False
    return False


def written_before(module: Module, source: str, at: ast.AST) -> str | None:
    """An expression as it can be written where another node stands, above itself: names that are only other names for
    something (`opt = optimizer`, `members = [optimizer]`) are replaced by it. None where that is not enough."""
    text = source
    scope = module.scope_of(at)
    for _ in range(3):
        names = [n for n in walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)]
        own = {n.id for n in names if isinstance(n.ctx, ast.Store)}  # those of a comprehension in it
        late = [n for n in names if n.id not in own and not bound_before(module, scope, n.id, at)]
        if not late:
            return text
        values = {n.id: _value(scope, n.id) for n in late}
        if None in values.values():
            return None
        text = ast.unparse(
            _Replace({name: value for name, value in values.items() if value}).visit(ast.parse(text, mode="eval"))
        )
    return None


def _value(scope: Scope, name: str) -> ast.expr | None:
    """What a name stands for, where it is given that once and it may be written again."""
    value = given_once(scope, name) or _in_one_turn(scope, name)
    allowed = (ast.Name, ast.Attribute, ast.List, ast.Tuple, ast.Constant, ast.expr_context)
    return value if value is not None and all(isinstance(n, allowed) for n in walk(value)) else None


def _in_one_turn(scope: Scope, name: str) -> ast.expr | None:
    """What a name stands for that only a loop over one thing gives: `for each in [optimizer]`."""
    bindings = scope.bindings.get(name, [])
    loop = scope.module.parents.get(bindings[0]) if len(bindings) == 1 else None
    if isinstance(loop, ast.For) and loop.target is bindings[0] and isinstance(loop.iter, (ast.List, ast.Tuple)):
        return loop.iter.elts[0] if of_one(loop.iter) else None
    return None


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
