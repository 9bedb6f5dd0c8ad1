"""`amp.initialize` and `with amp.scale_loss` as they are written: their arguments, targets and names."""

from __future__ import annotations

import ast

from amp_migrate.reading.apex import Site
from amp_migrate.reading.module import WITH_NODES, Module
from amp_migrate.reading.unit import Blocked, Init, Loss, elements


def read_init(site: Site) -> Init | None:
    """The `initialize` call of a site; None where the name is not called.

    Raises Blocked where its arguments cannot be told apart.
    """
    call = site.call
    if call is None:
        return None
    arguments: dict[str, ast.expr] = {}
    for name, value in zip(Init.NAMES, call.args, strict=False):
        if isinstance(value, ast.Starred):
            raise Blocked(site.module, call, "AMP111", site.construct, "the arguments of initialize come from *args")
        arguments[name] = value
    for keyword in call.keywords:
        if keyword.arg is not None:
            arguments[keyword.arg] = keyword.value
            continue
        literal = literal_dict(site.module, keyword.value)
        if literal is None:
            raise Blocked(
                site.module,
                call,
                "AMP111",
                site.construct,
                f"the arguments of initialize come from **{ast.unparse(keyword.value)}, whose contents are not in sight; "
                "write them out",
            )
        arguments.update(literal)
    models, optimizers = _targets(site, call, arguments)
    return Init(site, call, arguments, models, optimizers)


def literal_dict(module: Module, node: ast.expr) -> dict[str, ast.expr] | None:
    """Keyword arguments out of a literal dict, also through a name assigned once."""
    if isinstance(node, ast.Name):
        owner = module.scope_of(node).lookup(node.id)
        bindings = owner.bindings[node.id] if owner is not None else []
        if len(bindings) != 1:
            return None
        stmt = module.parents.get(bindings[0])
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            return None
        node = stmt.value
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


def _targets(site: Site, call: ast.Call, arguments: dict[str, ast.expr]) -> tuple[list[ast.expr], list[ast.expr]]:
    parent = site.module.parents.get(call)
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return [], []
    target = parent.targets[0]
    optimizers = arguments.get("optimizers")
    if optimizers is None or (isinstance(optimizers, ast.Constant) and optimizers.value is None):
        return elements(target), []
    if isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == 2:
        return elements(target.elts[0]), elements(target.elts[1])
    return [], []


def read_loss(site: Site) -> Loss | None:
    """The `with` statement of a scale_loss site; None where it is used in another way."""
    call = site.call
    if call is None:
        return None
    item = site.module.parents.get(call)
    if not isinstance(item, ast.withitem):
        return None
    with_stmt = site.module.parents[item]
    assert isinstance(with_stmt, WITH_NODES)
    loss = site.argument(0, "loss")
    if loss is None:
        return None
    alias = item.optional_vars.id if isinstance(item.optional_vars, ast.Name) else None
    return Loss(site, call, with_stmt, item, loss, elements(site.argument(1, "optimizers")), alias)
