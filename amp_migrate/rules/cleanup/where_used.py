"""An import of what is kept of Apex goes to the branch that alone uses it: other runs need no Apex any more."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, Module
from amp_migrate.reading.sites.apex import imports_apex
from amp_migrate.rules.migration import Output


def move(module: Module, output: Output, elsewhere: Callable[[str], bool] | None) -> None:
    """Move what is left of imports, not of those that are guarded or marked; `elsewhere`: whether another file reads a name,
    None where the imports of this one stay as they are."""
    edits = output.edit(module)
    for node in module.of(ast.ImportFrom) if elsewhere is not None and edits else ():
        around = list(module.ancestors(node))
        gone = edits.deleted(node) or any(edits.gone(a) for a in around if isinstance(a, ast.stmt))
        marked = output.wishes.marked(module.display, node.lineno, "AMP101")
        if not imports_apex(node) or gone or marked or any(isinstance(a, ast.Try) for a in around):
            continue
        uses = {a: [n for n in module.loads.get(a.asname or a.name, ()) if not edits.gone(n)] for a in node.names}
        names = [a for a in node.names if uses[a]]
        bound = [a.asname or a.name for a in names]
        if any(n in (module.listed or ()) or not _once(module, n) or (elsewhere and elsewhere(n)) for n in bound):
            continue
        place = _place(module, node, [use for a in names for use in uses[a]])
        if place is None or any(a in edits.statements for a in (place, *module.ancestors(place))):
            continue
        was = edits.statements.pop(node, None)
        if edits.emitted_names() & {*bound}:  # by more than the import itself
            if was is not None:
                edits.statements[node] = was
            continue
        edits.delete(node)
        edits.insert_before(place, ast.unparse(ast.ImportFrom(node.module, names, node.level)))
        message = (
            f"{' and '.join(bound)} imported where it is used, in line {place.lineno}: no other run needs Apex for it"
        )
        output.note(module, node, "AMP101", "import apex", message, "as-is")


def _once(module: Module, name: str) -> bool:
    """Whether a name is bound in one place, and no function binds it for another."""
    scopes = module.scopes.values()
    bound = [b for scope in scopes for b in scope.bindings.get(name, ())]
    return len(bound) == 1 and not any(name in scope.outer for scope in scopes)


def _place(module: Module, node: ast.ImportFrom, uses: Sequence[ast.Name]) -> ast.stmt | None:
    """The first statement that uses an import, in a branch which all of them stand in, and that asks for more than was asked
    for the import."""
    asked = {(ast.unparse(b.test.test), b.holds) for b in branches_around(module, node) if isinstance(b.test, ast.If)}
    around = [[(b.test, b.holds) for b in branches_around(module, use) if isinstance(b.test, ast.If)] for use in uses]
    shared = [b for b in (around[0] if around else ()) if all(b in other for other in around[1:])]
    for at, holds in shared:
        if at in module.ancestors(node):
            return None
        if any(isinstance(a, LOOP_NODES) for a in _within(module, at)):
            continue
        if (ast.unparse(at.test), holds) in asked:
            return None
        block = at.body if holds else at.orelse
        return next(s for s in block if any(s is a for use in uses for a in module.ancestors(use)))
    return None


def _within(module: Module, node: ast.AST) -> list[ast.AST]:
    """What stands around a node within its function."""
    found: list[ast.AST] = []
    for around in module.ancestors(node):
        if isinstance(around, FUNCTION_NODES):
            break
        found.append(around)
    return found
