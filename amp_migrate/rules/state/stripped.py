"""Scripts that take the loss scale's state out of checkpoints by its key: what is saved from now on has it under another.

`for key in ["optimizer", "amp"]: del checkpoint[key]`, `checkpoint.pop("amp")`. Reported as AMP401: see `save.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.migration import Migration


def announce(m: Migration, module: Module, old: str, new: str) -> None:
    """Name where a file beside the one that saves takes the old key out, and not the new one."""
    here = module.path.parent
    for other in m.project.modules:
        beside = here.is_relative_to(other.path.parent) or other.path.parent.is_relative_to(here)
        if other in m.unit.modules or not beside or "torch.load" not in other.text:
            continue
        keys = sorted((n for n in other.nodes if isinstance(n, ast.Constant)), key=lambda k: k.lineno)
        if any(k.value == new for k in keys):
            continue
        for key in (k for k in keys if k.value == old and any(_taken_out(other, k))):
            message = (
                f"takes {old!r} out of checkpoints; those written from now on keep the scale under {new!r}, which stays"
            )
            m.output.note(other, key, "AMP401", "amp.state_dict", message, "look")
            break


def _taken_out(module: Module, key: ast.Constant) -> Iterator[bool]:
    """Whether an entry of this key is deleted: by itself, or as one of several that a loop goes through."""
    parent = module.parents.get(key)
    if isinstance(parent, ast.Subscript):
        yield isinstance(parent.ctx, ast.Del)
    elif isinstance(parent, ast.Call):
        yield isinstance(parent.func, ast.Attribute) and parent.func.attr == "pop" and parent.args[:1] == [key]
    elif isinstance(parent, (ast.List, ast.Tuple, ast.Set)):
        loop = module.parents.get(parent)
        if isinstance(loop, ast.For) and loop.iter is parent and isinstance(loop.target, ast.Name):
            for node in (n for s in loop.body for n in walk(s) if isinstance(n, ast.Name) and n.id == loop.target.id):
                outer = module.parents.get(node)
                yield isinstance(outer, ast.Subscript) and isinstance(outer.ctx, ast.Del)
                yield isinstance(outer, ast.Call) and ast.unparse(outer.func).endswith(".pop")
