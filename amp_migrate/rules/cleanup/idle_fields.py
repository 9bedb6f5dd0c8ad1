"""A field of an object that only told whether to scale a loss, or to set Apex up: it stays, and that nothing reads it any more is
said, also where the setting it was given of is read under the same name: `self.use_apex = options["use_apex"]`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.rules.output import Output

WHOLE = ("vars", "asdict", "__dict__", "__getattr__", "__getattribute__", "__getstate__", "save_hyperparameters")
BY_NAME = ("getattr", "hasattr", "attrgetter")


def tell(project: Project, asked: Iterable[tuple[Module, ast.expr]], output: Output) -> None:
    """`asked`: what tests around what went read, of which some may be fields."""
    seen: set[tuple[ClassInfo, str]] = set()
    for module, node in asked:
        owner = project.class_of(module.scope_of(node)) if isinstance(node, ast.Attribute) else None
        if not isinstance(node, ast.Attribute) or owner is None or (owner, node.attr) in seen:
            continue
        seen.add((owner, node.attr))
        if isinstance(module.parents.get(node), (ast.Attribute, ast.Subscript)):
            continue  # what holds settings is no flag
        if isinstance(node.value, ast.Name) and node.value.id == "self" and not _is_read(project, node.attr, output):
            for stmt in _given(owner, node.attr, module.source(node)):
                edits = output.edit(module)
                known = any(
                    module.source(node) in f.message for f in output.findings.get(module, ()) if f.code == "AMP119"
                )
                if owner.module is module and not known and not edits.gone(stmt) and not _goes_whole(module):
                    shown = module.source(node)
                    message = f"{shown} is kept, but nothing reads it any more: no effect"
                    output.note(module, stmt, "AMP119", shown, message)


def _given(owner: ClassInfo, name: str, text: str) -> Iterator[ast.Assign]:
    """Where a class gives its field a value, the first time."""
    found = [n for n in ast.walk(owner.node) if isinstance(n, ast.Assign) and text in map(ast.unparse, n.targets)]
    yield from sorted(found, key=lambda n: n.lineno)[:1]


def _is_read(project: Project, name: str, output: Output) -> bool:
    """Whether an attribute of this name is read anywhere, of whatever object, also by its name in quotes."""
    for module in (m for m in project.modules if name in m.text):
        edits = output.edits.get(module)
        for node in module.named.get(name, ()):
            read = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
            call = module.parents.get(node)
            asked = isinstance(node, ast.Constant) and isinstance(call, ast.Call) and _by_name(call)
            if (read or asked) and not (edits is not None and edits.gone(node)):
                return True
        emitted = edits.emitted_text() if edits is not None else ()
        if any(re.search(rf"\.{re.escape(name)}\b", text) for text in emitted):
            return True
    return False


def _by_name(call: ast.Call) -> bool:
    func = call.func
    return (func.id if isinstance(func, ast.Name) else getattr(func, "attr", "")) in BY_NAME


def _goes_whole(module: Module) -> bool:
    """Whether a file asks objects for all that they have."""
    return any(word in module.text for word in WHOLE)
