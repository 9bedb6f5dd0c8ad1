"""What becomes the same once Apex's classes are torch's: types asked for twice, branches that differ no more."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Mapping

from amp_migrate.reading.program.definitions import called_name, dotted
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site, imports_apex
from amp_migrate.rules.parts.counterpart import Manual, Native
from amp_migrate.writing.edits import Edits, joined


def merge_types(site: Site, native: str, edits: Edits) -> None:
    """`isinstance(model, (DDP, ApexDDP))` asks for one class now."""
    types = site.module.parents.get(site.node)
    call = site.module.parents.get(types) if types is not None else None
    if not isinstance(types, ast.Tuple) or not isinstance(call, ast.Call) or edits.gone(types):
        return
    if not isinstance(call.func, ast.Name) or call.func.id != "isinstance":
        return
    others = [e for e in types.elts if e is not site.node]
    if any(_public(site.module.qualify(e) or "") == native for e in others):
        edits.replace(types, ("(", *joined(others, ", "), ")") if len(others) > 1 else (others[0],))


def drop_repeated(site: Site, native: str, edits: Edits) -> None:
    """`TYPES += (SyncBatchNorm,)` adds nothing to a tuple that was made with it."""
    stmt, types = site.stmt, site.module.parents.get(site.node)
    if not isinstance(types, ast.Tuple) or len(types.elts) != 1:
        return
    if isinstance(stmt, ast.AugAssign) and stmt.value is types:
        name: ast.expr | None = stmt.target
    elif isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.BinOp) and stmt.value.right is types:
        name = stmt.targets[0] if ast.unparse(stmt.targets[0]) == ast.unparse(stmt.value.left) else None
    else:
        return
    owner = site.scope.lookup(name.id) if isinstance(name, ast.Name) else None
    for binding in owner.bindings[name.id] if owner is not None and isinstance(name, ast.Name) else ():
        made = site.module.parents.get(binding)
        if not isinstance(made, ast.Assign) or not isinstance(made.value, ast.Tuple) or made.lineno > stmt.lineno:
            continue
        if any(_public(site.module.qualify(e) or "") == native for e in made.value.elts):
            edits.delete(stmt)


def fold_equal(live: Mapping[Site, Native | Manual], folded: set[ast.AST], edits: Edits) -> None:
    """Branches that have become the same are written once."""
    native = {ast.unparse(s.node): d.names[0] for s, d in live.items() if isinstance(d, Native) and len(d.names) == 1}
    for site in live:
        for parent in site.module.ancestors(site.node):
            if parent in site.module.scopes:
                break
            if isinstance(parent, ast.If) and parent.orelse and parent not in edits.statements:
                kept = [[s for s in b if not edits.deleted(s)] for b in (parent.body, parent.orelse)]
                body, orelse = ([s for s in b if not _idle_import(site, s, edits)] for b in kept)
                if _untouched(parent, edits) and _equal(site, body, orelse, edits, native):
                    edits.splice(parent, "body" if len(body) == len(kept[0]) else "orelse")
            elif isinstance(parent, ast.IfExp) and parent not in folded and parent not in edits.expressions:
                if _same(edits.text(parent.body), edits.text(parent.orelse)):
                    edits.replace(parent, (parent.body,))
            elif isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.Or):
                merge_operands(parent, edits)


def drop_shortcuts(live: Iterable[Site], edits: Edits) -> None:
    """`if on_gpu: return FusedLayerNorm(n)` before `return LayerNorm(n)` returns the same now: the test goes."""
    for site in live:
        module, stmt = site.module, site.stmt
        if not isinstance(stmt, ast.Return):
            continue
        child: ast.stmt = stmt
        for parent in module.ancestors(stmt):
            if isinstance(parent, ast.Try) and _leaves_only(parent.body, child) and parent in edits.statements:
                child = parent
            elif isinstance(parent, ast.If) and not parent.orelse and _leaves_only(parent.body, child):
                if parent in edits.statements or any(map(_does_something, walk(parent.test))):
                    break
                child = parent
            else:
                break
        if child is stmt:
            continue
        block = module.block(child)
        after = block[block.index(child) + 1 :][:1]
        if after and isinstance(after[0], ast.Return) and _same(*(_full(edits, s) for s in (stmt, after[0]))):
            edits.delete(child)


def _idle_import(site: Site, stmt: ast.stmt, edits: Edits) -> bool:
    """Whether a statement imports of Apex what nothing reads any more."""
    if not isinstance(stmt, (ast.Import, ast.ImportFrom)) or not imports_apex(stmt):
        return False
    names = [(a.asname or a.name).partition(".")[0] for a in stmt.names]
    return all(edits.gone(n) for name in names for n in site.module.loads.get(name, ()))


def _leaves_only(block: list[ast.stmt], stmt: ast.stmt) -> bool:
    """Whether a block holds nothing but a statement and imports of Apex."""
    return all(s is stmt or imports_apex(s) for s in block)


def _does_something(node: ast.AST) -> bool:
    """Whether a part of a test is more than a question."""
    if isinstance(node, ast.Call):
        return called_name(node) not in ("is_available", "is_initialized", "hasattr", "isinstance", "len")
    return isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom))


def _full(edits: Edits, stmt: ast.stmt) -> str:
    """What a statement comes to, with torch's names written out."""
    return re.sub(r"(?<![\w.])nn\.", "torch.nn.", edits.text(stmt))


def merge_operands(node: ast.BoolOp, edits: Edits) -> None:
    """`isinstance(m, DDP) or isinstance(m, ApexDDP)`."""
    kept: list[ast.expr] = []
    for value in node.values:
        if not any(_same(edits.text(value), edits.text(k)) for k in kept):
            kept.append(value)
    if len(kept) < len(node.values) and node not in edits.expressions:
        edits.replace(node, joined(kept, " or "))


def _untouched(parent: ast.If, edits: Edits) -> bool:
    """Whether nothing is written beside the statements of an `if`, and none of them changes as a whole but those that go."""
    stmts = {n for s in (*parent.body, *parent.orelse) for n in walk(s) if isinstance(n, ast.stmt)}
    return not any(
        (s in edits.statements and not edits.deleted(s)) or s in edits.before or s in edits.after for s in stmts
    )


def _equal(site: Site, body: list[ast.stmt], orelse: list[ast.stmt], edits: Edits, native: Mapping[str, str]) -> bool:
    """Whether two lists of statements come to the same, whatever torch's names are imported as."""
    if len(body) != len(orelse):
        return False
    texts = [[_spelled_out(site, edits.text(s), native) for s in stmts] for stmts in (body, orelse)]
    return None not in texts[0] and texts[0] == texts[1]


def _spelled_out(site: Site, text: str, native: Mapping[str, str]) -> str | None:
    """A statement as it is written, with full names; `native`: what those of Apex's stand for now."""
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        for field, child in ast.iter_fields(node):
            full = _full_name(site, child, native) if isinstance(child, (ast.Name, ast.Attribute)) else None
            if full is not None:
                setattr(node, field, ast.Name(full, ast.Load()))
    return ast.dump(tree)


def _full_name(site: Site, node: ast.expr, native: Mapping[str, str]) -> str | None:
    name = dotted(node)
    if name is None:
        return None
    root, dot, rest = name.partition(".")
    meant = site.module.qualify_name(root, site.scope)
    return native.get(name) or (_public(f"{meant}{dot}{rest}") if meant is not None else None)


def _public(name: str) -> str:
    """The documented home of a torch class: `torch.nn.SyncBatchNorm` of `torch.nn.modules.batchnorm.SyncBatchNorm`."""
    name = re.sub(r"^torch\.nn\.modules(\.\w+)?\.", "torch.nn.", name)
    return name.replace("torch.nn.parallel.distributed.", "torch.nn.parallel.")


def _same(first: str, second: str) -> bool:
    try:
        return ast.dump(ast.parse(textwrap.dedent(first))) == ast.dump(ast.parse(textwrap.dedent(second)))
    except SyntaxError:
        return False
