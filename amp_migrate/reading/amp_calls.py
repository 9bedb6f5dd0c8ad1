"""`amp.initialize` and `with amp.scale_loss` as they are written: their arguments, targets and names."""

from __future__ import annotations

import ast

from amp_migrate.reading.apex import Site
from amp_migrate.reading.module import WITH_NODES, Module
from amp_migrate.reading.project import Project
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


# Arguments of `initialize` about float16 weights and messages: autocast over float32 weights asks for none of them.
ONLY_HALF_WEIGHTS = frozenset(
    "cast_model_type patch_torch_functions keep_batchnorm_fp32 master_weights verbosity".split()
)


def literal_dict(module: Module, node: ast.expr) -> dict[str, ast.expr] | None:
    """Keyword arguments out of a literal dict, also through a name assigned once, with what is put into it later."""
    if not isinstance(node, ast.Name):
        return _entries(node)
    owner = module.scope_of(node).lookup(node.id)
    bindings = owner.bindings[node.id] if owner is not None else []
    if len(bindings) != 1:
        return None
    stmt = module.parents.get(bindings[0])
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return None
    found = _entries(stmt.value)
    for use in module.loads.get(node.id, ()):
        if found is None:
            return None
        if use is node or module.scope_of(use).lookup(node.id) is not owner or _only_looks(module, use):
            continue
        more = _filled(module, use)
        if more is None or not (_in_line(module, stmt, use, node) or more.keys() <= ONLY_HALF_WEIGHTS):
            return None
        found = {**found, **more}
    return found


def fills(module: Module, name: ast.Name) -> list[ast.stmt]:
    """Statements that only put entries into a dict of arguments; none where it serves anything but this one call."""
    owner = module.scope_of(name).lookup(name.id)
    found: list[ast.stmt] = []
    for use in module.loads.get(name.id, ()):
        if use is name or module.scope_of(use).lookup(name.id) is not owner:
            continue
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


def _only_looks(module: Module, use: ast.Name) -> bool:
    """Whether a use of a dict leaves it as it is: an entry read, a message printed, arguments passed with `**`."""
    parent = module.parents.get(use)
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("get", "items", "keys", "values", "copy")
    if isinstance(parent, ast.Call):
        return ast.unparse(parent.func).split(".")[0] in ("print", "len", "logging", "logger", "log", "str", "repr")
    return isinstance(parent, (ast.FormattedValue, ast.Compare)) or (isinstance(parent, ast.keyword) and not parent.arg)


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


def settle_scale(project: Project, init: Init) -> None:
    """A loss scale out of a parameter that every call in sight leaves at its dynamic default is dynamic."""
    scale = init.arguments.get("loss_scale")
    function = project.functions.get(init.site.scope.node)
    if not isinstance(scale, ast.Name) or function is None or function.parameter(scale.id) is None:
        return
    args = function.node.args
    named = [*args.posonlyargs, *args.args]
    defaults = {a.arg: d for a, d in zip(reversed(named), reversed(args.defaults), strict=False)}
    defaults |= {a.arg: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None}
    default = defaults.get(scale.id)
    calls = project.calls.get(function, [])
    if not isinstance(default, ast.Constant) or default.value not in (None, "dynamic") or not calls:
        return
    given = [name for _, call in calls for name, _ in project.arguments(function, call)]
    spread = any(isinstance(a, ast.Starred) for _, c in calls for a in c.args) or any(
        k.arg is None for _, c in calls for k in c.keywords
    )
    if scale.id not in given and not spread and len(init.site.scope.bindings[scale.id]) == 1:
        init.arguments["loss_scale"] = default
        init.left_out["loss_scale"] = scale.id
