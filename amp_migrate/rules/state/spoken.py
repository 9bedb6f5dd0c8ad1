"""A key that a program speaks of apart from any mapping: `load(path, objects=["model", "amp"])`, whose names a loop asks for.

Where what is asked for it may be a mapping that has the scaler's state under another key now, or a file that is loaded, the
text is the new key, too. Reported as AMP401: see `save.py`. Where the loader is not in sight, it is told.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.scaler.amp_kept import AMP
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.state.keys import new_key, renamed, saved_keys
from amp_migrate.rules.state.mappings import Key, goes, held_by, holders_by, key_name, named, slots, used

# Calls that read a checkpoint.
_LOADERS = re.compile(r"(load|resume|restore)", re.IGNORECASE)
_DISPLAYS = (ast.List, ast.Tuple, ast.Set)
_HOLD_IT = (
    *(ast.Call, ast.keyword, ast.arguments, ast.Assign, ast.AnnAssign, ast.AugAssign),
    *(ast.IfExp, ast.BinOp, ast.BoolOp, ast.For, ast.comprehension),
)


def apply(m: Migration) -> None:
    """Runs after all rules that put the scaler's state, or the scaler for whoever asks it for one, under a key."""
    saved = (
        [(s.module, key) for s in m.unit.sites for key in _keys(s.module, s.name, s.call or s.node)] if m.scales else []
    )
    saved = [(module, key) for module, key in saved if key in m.edit(module).expressions]
    for name in sorted({key_name(key) for _, key in saved}):
        new, keys = new_key(m, name), [(module, key) for module, key in saved if key_name(key) == name]
        if new != name:
            _follow(m, name, new, keys)


def _keys(module: Module, name: str, node: ast.AST) -> list[Key]:
    """The keys under which a state is put, or the module itself."""
    if name not in (AMP, "apex.amp.state_dict") or not isinstance(node, ast.expr):
        return []
    parent = module.parents.get(node)
    return [parent] if isinstance(parent, ast.keyword) else [*saved_keys(module, node)]


def _follow(m: Migration, name: str, new: str, saved: list[tuple[Module, Key]]) -> None:
    project, own = m.project, {key for _, key in saved}
    texts = [(module, text) for module, text in named(project, name) if text not in own and _said(module, text)]
    held = held_by(project, saved) if texts else set()
    files = project.holding("torch.load", _loads) if texts else set()
    at = ", ".join(dict.fromkeys(f"{where.display}:{saving.lineno}" for where, saving in saved))
    for module, text in texts:
        edits = m.edit(module)
        if edits.gone(text) or any(a in edits.expressions for a in (text, *module.ancestors(text))):
            continue
        keyed = project.reaches(_given(project, module, text))
        # What a script beside the program loads is told of alone, see `stripped.py`.
        asked = held | files if module in m.unit.modules else held
        if any(slot in asked for where, holder in _asking(project, keyed) for slot in slots(project, where, holder)):
            edits.replace(text, renamed(m, module, text))
            message = (
                f"what {at} saves is under the key {new!r} now, and is asked for by that where this comes to: files saved "
                "before have none"
            )
            m.output.done(module, text, "AMP401", "amp.state_dict", message, "look")
        elif _loaded_by(project, module, text):
            message = (
                f"speaks of {name!r} to a loader out of sight, and what {at} saves has the scaler's state under {new!r}: if "
                "it asks a checkpoint for this, write that"
            )
            m.output.note(module, text, "AMP401", "amp.state_dict", message, "review")


def _said(module: Module, text: ast.Constant) -> bool:
    """Whether a text stands for itself: in a list, as an argument, a default or a value, not as a key or in a comparison."""
    return isinstance(module.parents.get(_whole(module, text)), _HOLD_IT)


def _whole(module: Module, text: ast.Constant) -> ast.expr:
    """The list that a text stands in, or itself."""
    parent = module.parents.get(text)
    return parent if isinstance(parent, _DISPLAYS) else text


def _given(project: Project, module: Module, text: ast.Constant) -> Iterator[Slot]:
    """Where a text comes to be, or the list that it stands in."""
    value = _whole(module, text)
    parent = module.parents.get(value)
    if isinstance(parent, ast.arguments):
        function = project.functions.get(module.parents[parent])
        yield from (Slot(function.scope, p) for p, d in function.defaults.items() if d is value) if function else ()
    elif isinstance(parent, (ast.AugAssign, ast.For, ast.comprehension)):
        yield from slots(project, module, parent.target)
    elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "append":
        yield from slots(project, module, parent.func.value)
    else:
        yield from goes(project, module, value)


def _asking(project: Project, keyed: set[Slot]) -> Iterator[tuple[Module, ast.expr]]:
    """The mappings that are asked for what comes to be in some variables."""
    for module, node in used(project, keyed):
        yield from ((module, holder) for holder in holders_by(module, node))


def _loaded_by(project: Project, module: Module, text: ast.Constant) -> bool:
    """Whether a text is given to a call that is not followed and reads a checkpoint."""
    for around in module.ancestors(text):
        if isinstance(around, ast.Call):
            return _LOADERS.search(ast.unparse(around.func)) is not None and not project.resolved.get(around)
        if isinstance(around, ast.stmt):
            break
    return False


def _loads(module: Module, stmt: ast.Assign) -> bool:
    return isinstance(stmt.value, ast.Call) and module.qualify(stmt.value.func) == "torch.load"
