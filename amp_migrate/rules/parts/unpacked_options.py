"""Which options a mapping behind `**` gives an optimizer, as far as the function that builds it tells."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.reading.program.module import Scope
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site


@dataclass(frozen=True)
class Keys:
    """Keys that unpacked arguments hold; `all` tells whether there can be no others."""

    known: frozenset[str] = frozenset()
    all: bool = True

    def joined(self, other: Keys) -> Keys:
        return Keys(self.known | other.known, self.all and other.all)


def keys_of(site: Site, node: ast.expr) -> Keys:
    """The keys of a dict written out in sight: a display, `dict(...)`, or a local name given one."""
    if isinstance(node, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        known = frozenset(key for key in keys if isinstance(key, str))
        return Keys(known, len(known) == len(keys))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        known = frozenset(keyword.arg for keyword in node.keywords if keyword.arg is not None)
        return Keys(known, len(known) == len(node.keywords) and not node.args)
    if not isinstance(node, ast.Name):
        return Keys(all=False)
    values = _assigned(site.scope.lookup(node.id), site, node.id)
    if values is None or len(values) != 1 or isinstance(values[0], ast.Name):
        return Keys(all=False)
    return _changed(site, node.id, keys_of(site, values[0]))


def _changed(site: Site, name: str, keys: Keys) -> Keys:
    """The keys of a dict after what is done to it by name."""
    for node in _mentions(site, name):
        parent = site.module.parents.get(node)
        if isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load):
            key = parent.slice.value if isinstance(parent.slice, ast.Constant) else None
            if isinstance(parent.ctx, ast.Del):
                keys = Keys(keys.known - {key}, all=False)
            else:
                keys = keys.joined(
                    Keys(frozenset({key}) if isinstance(key, str) else frozenset(), isinstance(key, str))
                )
        elif isinstance(parent, ast.Attribute) and parent.attr in ("update", "setdefault", "pop", "popitem", "clear"):
            call = site.module.parents.get(parent)
            first = call.args[0] if isinstance(call, ast.Call) and call.args else None
            key = first.value if isinstance(first, ast.Constant) else None
            if parent.attr == "setdefault" and isinstance(key, str):
                keys = keys.joined(Keys(frozenset({key})))
            elif parent.attr != "pop" or not isinstance(key, str):
                keys = Keys(keys.known if parent.attr in ("update", "setdefault") else frozenset(), all=False)
            elif key in keys.known:  # here or on another path
                keys = Keys(keys.known - {key}, all=False)
    return keys


def _assigned(owner: Scope | None, site: Site, name: str) -> list[ast.expr] | None:
    """The values assigned to a name; None where it is bound in another way."""
    if owner is None:
        return None
    values: list[ast.expr] = []
    for binding in owner.bindings[name]:
        parent = site.module.parents.get(binding)
        if not isinstance(parent, ast.Assign) or binding not in parent.targets:
            return None
        values.append(parent.value)
    return values


def _mentions(site: Site, name: str) -> Iterator[ast.Name]:
    owner = site.scope.lookup(name)
    for node in walk(site.module.tree):
        if isinstance(node, ast.Name) and node.id == name and site.module.scope_of(node).lookup(name) is owner:
            yield node
