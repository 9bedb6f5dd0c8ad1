"""`amp.initialize` and `with amp.scale_loss` as they are written: their arguments, targets and names."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import elements, is_none
from amp_migrate.reading.program.module import WITH_NODES
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.unit import Blocked, Init, Loss
from amp_migrate.reading.values.unpacked import Unpacked, unpacked


def read_init(project: Project, site: Site) -> Init | None:
    """The `initialize` call of a site; None where the name is not called.

    Raises Blocked where its arguments cannot be told apart.
    """
    call = site.call
    if call is None:
        return None
    arguments: dict[str, ast.expr] = {}
    open_: list[Unpacked] = []
    for name, value in zip(Init.NAMES, call.args, strict=False):
        if isinstance(value, ast.Starred):
            raise Blocked(site.module, call, "AMP111", site.construct, "the arguments of initialize come from *args")
        arguments[name] = value
    for keyword in call.keywords:
        if keyword.arg is not None:
            arguments[keyword.arg] = keyword.value
            continue
        spread = unpacked(site.module, keyword.value)
        if spread is None or (open_ and spread.mapping is not None):
            raise Blocked(
                site.module,
                call,
                "AMP111",
                site.construct,
                f"the arguments of initialize come from **{ast.unparse(keyword.value)}, whose contents are not in sight; "
                "write them out, or put them into one variable first, from which the settings can be read",
            )
        arguments.update(spread.known)
        open_ += [spread] if spread.mapping is not None else []
    for spread in open_:
        if not {"models", "optimizers"} <= arguments.keys():
            raise Blocked(
                site.module,
                call,
                "AMP111",
                site.construct,
                f"whether **{ast.unparse(call.keywords[-1])} holds the model or the optimizer cannot be told; write them out",
            )
        arguments.update(spread.reads(site.module, set(arguments)))
    models, optimizers = _targets(site, call, arguments)
    return Init(project, site, call, arguments, models, optimizers, open_[0] if open_ else None)


def _targets(site: Site, call: ast.Call, arguments: dict[str, ast.expr]) -> tuple[list[ast.expr], list[ast.expr]]:
    parent = site.module.parents.get(call)
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return [], []
    target = parent.targets[0]
    optimizers = arguments.get("optimizers")
    if optimizers is None or is_none(optimizers):
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
