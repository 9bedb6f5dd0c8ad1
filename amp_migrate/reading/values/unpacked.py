"""Arguments unpacked from a mapping: `initialize(model, optimizer, **options)`.

What a dict written out holds is read as if its entries stood in the call. What is only known at run time is read there:
the settings of `initialize` are a closed set, so `options.get("loss_scale")` is what Apex would have been given.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.spelled_out import only_looks, other_uses

# Arguments of `initialize` about float16 weights and messages: autocast over float32 weights asks for none of them.
ONLY_HALF_WEIGHTS = frozenset(
    "cast_model_type patch_torch_functions keep_batchnorm_fp32 master_weights verbosity".split()
)


def literal_dict(module: Module, node: ast.expr) -> dict[str, ast.expr] | None:
    """Keyword arguments out of a literal dict, also through a name assigned once, with what is put into it later."""
    if not isinstance(node, ast.Name):
        return _entries(node)
    value = single_assignment(module, node)
    found = _entries(value) if value is not None else None
    if value is None or found is None:
        return None
    for use in other_uses(module, node):
        if only_looks(module, use):
            continue
        more = _filled(module, use)
        if more is None:
            return None
        if not _in_line(module, module.statement(value), use, node) and not more.keys() <= ONLY_HALF_WEIGHTS:
            return None
        found = {**found, **more}
    return found


def fills(module: Module, name: ast.Name) -> list[ast.stmt]:
    """Statements that only put entries into a dict of arguments; none where it serves anything but this one call."""
    found: list[ast.stmt] = []
    for use in other_uses(module, name):
        if _filled(module, use) is None:
            return []
        found.append(module.statement(use))
    return found


def _entries(node: ast.expr) -> dict[str, ast.expr] | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        return {k.arg: k.value for k in node.keywords if k.arg} if all(k.arg for k in node.keywords) else None
    if not isinstance(node, ast.Dict):
        return None
    found: dict[str, ast.expr] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        found[key.value] = value
    return found


def _filled(module: Module, use: ast.Name) -> dict[str, ast.expr] | None:
    """What `options["key"] = value` or `options.update(...)` puts into a dict; None for anything else."""
    parent = module.parents.get(use)
    stmt = module.statement(use)
    if isinstance(parent, ast.Subscript) and isinstance(stmt, ast.Assign) and stmt.targets == [parent]:
        key = parent.slice
        return {key.value: stmt.value} if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
    call = module.parents.get(parent) if isinstance(parent, ast.Attribute) and parent.attr == "update" else None
    if not isinstance(call, ast.Call) or not (isinstance(stmt, ast.Expr) and stmt.value is call):
        return None
    found: dict[str, ast.expr] = {}
    for value in call.args:
        more = _entries(value)
        if more is None:
            return None
        found.update(more)
    if any(k.arg is None for k in call.keywords):
        return None
    return {**found, **{k.arg: k.value for k in call.keywords if k.arg}}


def _in_line(module: Module, first: ast.stmt, use: ast.Name, last: ast.Name) -> bool:
    """Whether a use stands between two statements and runs whenever the first does."""
    return module.block(module.statement(use)) is module.block(first) and first.lineno < use.lineno < last.lineno


# What a GradScaler and the regions ask of the settings, with what Apex takes where they are left out.
DEFAULTS = {"enabled": "True", "opt_level": '"O1"', "loss_scale": "None"}
BOUNDS = {"min_loss_scale": "None", "max_loss_scale": "2.0**24"}


@dataclass
class Unpacked:
    """What `**mapping` holds: entries that are known and, where there may be others, the mapping they stand in.

    `keys` are those others may have; None where any may be there.
    """

    known: dict[str, ast.expr]
    mapping: ast.expr | None = None
    keys: set[str] | None = field(default_factory=set)

    def reads(self, module: Module, given: set[str]) -> dict[str, ast.expr]:
        """Settings that are not given otherwise as code that reads them at run time."""
        if self.mapping is None:
            return {}
        text = module.source(self.mapping)
        quote = '"' if module.prefers_double else "'"
        found: dict[str, ast.expr] = {}
        for key, default in {**DEFAULTS, **(BOUNDS if self.keys is not None else {})}.items():
            if key not in given and (self.keys is None or key in self.keys):
                value = "" if default == "None" else ", " + default.replace('"', quote)
                found[key] = module.imagine(f"{text}.get({quote}{key}{quote}{value})", self.mapping)
        return found


def unpacked(module: Module, node: ast.expr) -> Unpacked | None:
    """What a mapping behind `**` holds; None where that can be told neither here nor at run time."""
    literal = literal_dict(module, node)
    if literal is not None:
        return Unpacked(literal)
    if isinstance(node, (ast.Dict, ast.Call)):
        return _around(node)
    if not _readable(node):
        return None
    if isinstance(node, ast.Name):
        return _partly(module, node) or Unpacked({}, node, None)
    return Unpacked({}, node, None)


def _readable(node: ast.expr) -> bool:
    """A name, attribute or entry that may be read several times."""
    if isinstance(node, ast.Attribute):
        return _readable(node.value)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and _readable(node.value)
    return isinstance(node, ast.Name)


def _around(node: ast.Dict | ast.Call) -> Unpacked | None:
    """`dict(opt_level="O1", **extra)` and `{**extra, "opt_level": "O1"}`: entries that win over a mapping."""
    if isinstance(node, ast.Call):
        if not (isinstance(node.func, ast.Name) and node.func.id == "dict") or node.args:
            return None
        rests = [k.value for k in node.keywords if k.arg is None]
        known = {k.arg: k.value for k in node.keywords if k.arg is not None}
    else:
        rests = [v for k, v in zip(node.keys, node.values, strict=True) if k is None]
        if not rests or node.keys[0] is not None:
            return None
        known = _entries(ast.Dict(node.keys[1:], node.values[1:])) or {}
        if len(known) != len(node.keys) - 1:
            return None
    if len(rests) != 1 or not _readable(rests[0]):
        return None
    return Unpacked(known, rests[0], None)


def _partly(module: Module, node: ast.Name) -> Unpacked | None:
    """A dict written out into which only named entries are put later, on some paths."""
    value = single_assignment(module, node)
    known = _entries(value) if value is not None else None
    if known is None:
        return None
    keys: set[str] = set()
    for use in other_uses(module, node):
        if only_looks(module, use):
            continue
        more = _filled(module, use)
        if more is None:
            return None
        keys |= more.keys()
    return Unpacked({k: v for k, v in known.items() if k not in keys}, node, keys)


def unpacked_otherwise(module: Module, binding: ast.AST, value: ast.expr) -> bool:
    """Whether a branch takes apart what the other branch of its test takes apart in another way: `x, y = batch`, beside
    `anchor, positive, negative = batch`."""
    stmt = module.statement(binding)
    around = next((a for a in module.ancestors(stmt) if isinstance(a, ast.If)), None)
    if around is None or not isinstance(stmt, ast.Assign):
        return False
    other = around.orelse if module.inside_of(stmt, around.body) else around.body
    unpacked = [s for s in other if isinstance(s, ast.Assign) and isinstance(s.targets[0], (ast.Tuple, ast.List))]
    return any(ast.dump(s.value) == ast.dump(value) for s in unpacked)
