"""`apex.optimizers` becomes `torch.optim` where torch computes the same.

Apex: https://nvidia.github.io/apex/optimizers.html
Native: https://pytorch.org/docs/stable/optim.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.findings import Code, Example
from amp_migrate.reading.apex import Site
from amp_migrate.reading.module import Scope
from amp_migrate.reading.project import Project
from amp_migrate.rules.counterpart import Manual, Native, is_type_test, literal, named_arguments, value_of
from amp_migrate.writing.calls import Argument

APEX = "https://nvidia.github.io/apex/optimizers.html"
ADAMW = "https://pytorch.org/docs/stable/generated/torch.optim.AdamW.html"
ADAM = "https://pytorch.org/docs/stable/generated/torch.optim.Adam.html"
SGD = "https://pytorch.org/docs/stable/generated/torch.optim.SGD.html"
ADAGRAD = "https://pytorch.org/docs/stable/generated/torch.optim.Adagrad.html"

CODES = (
    Code(
        "AMP621",
        "FusedAdam becomes AdamW, or Adam with adam_w_mode=False",
        "optimizers.FusedAdam",
        apex="Adam with decoupled weight decay, 0.0 by default; adam_w_mode=False adds the decay to the gradient.",
        native="torch.optim.AdamW decays by 0.01 by default, torch.optim.Adam adds to the gradient. Both are fused or "
        "batched on CUDA.",
        why="weight_decay=0.0 is written where nothing else sets it. torch has neither bias_correction=False nor clipping "
        "inside the step: those are left to a person.",
        links=(APEX, ADAMW, ADAM),
        examples=(
            Example(
                "from apex.optimizers import FusedAdam\n\noptimizer = FusedAdam(model.parameters(), lr=1e-4)\n",
                "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)\n",
            ),
            Example(
                "from apex.optimizers import FusedAdam\n\n"
                "optimizer = FusedAdam(model.parameters(), lr=1e-4, adam_w_mode=False)\n",
                "optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)\n",
            ),
        ),
    ),
    Code(
        "AMP622",
        "FusedSGD becomes torch.optim.SGD",
        "optimizers.FusedSGD",
        apex="SGD with momentum in one kernel; works on Apex's master weights.",
        native="torch.optim.SGD, same update and same argument order.",
        why="wd_after_momentum=True changes the update and has no counterpart.",
        links=(APEX, SGD),
        examples=(
            Example(
                "from apex.optimizers import FusedSGD\n\n"
                "optimizer = FusedSGD(model.parameters(), lr=0.1, momentum=0.9, materialize_master_grads=False)\n",
                "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n",
            ),
        ),
    ),
    Code(
        "AMP623",
        "FusedAdagrad becomes torch.optim.Adagrad",
        "optimizers.FusedAdagrad",
        apex="Adagrad in one kernel; adagrad_w_mode=True decouples weight decay.",
        native="torch.optim.Adagrad, same defaults; weight decay is added to the gradient.",
        why="Decoupled weight decay has no counterpart there.",
        links=(APEX, ADAGRAD),
        examples=(
            Example(
                "from apex.optimizers import FusedAdagrad\n\n"
                "optimizer = FusedAdagrad(model.parameters(), lr=0.01, set_grad_none=True)\n",
                "optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)\n",
            ),
        ),
    ),
)


@dataclass(frozen=True)
class Fused:
    """One optimizer of Apex: its parameters in order, which go unseen, which only with the value torch has built in."""

    code: str
    native: str
    positions: tuple[str, ...]
    ordered: int  # how many positions mean the same to torch
    dropped: frozenset[str]
    fixed: dict[str, tuple[tuple[object, ...], str]]


HOME = "apex.optimizers."
OPTIMIZERS = {
    HOME + "FusedAdam": Fused(
        "AMP621",
        "torch.optim.AdamW",
        (
            "params",
            "lr",
            "bias_correction",
            "betas",
            "eps",
            "adam_w_mode",
            "weight_decay",
            "amsgrad",
            "set_grad_none",
            "capturable",
            "master_weights",
        ),
        2,
        frozenset({"set_grad_none", "master_weights", "use_mt", "amp_scale_adjustment"}),
        {
            "bias_correction": (
                (True, 1),
                "torch's Adam always corrects the bias: drop bias_correction=False if the learning rate warms up, or "
                "keep apex.optimizers.FusedAdam, which Apex still has and GradScaler can step",
            ),
            "eps_inside_sqrt": ((False, 0), "torch adds eps outside the square root"),
            "max_grad_norm": (
                (0, None),
                "torch's optimizers do not clip: call clip_grad_norm_ after unscaling, and drop max_grad_norm",
            ),
        },
    ),
    HOME + "FusedSGD": Fused(
        "AMP622",
        "torch.optim.SGD",
        (
            "params",
            "lr",
            "momentum",
            "dampening",
            "weight_decay",
            "nesterov",
            "wd_after_momentum",
            "materialize_master_grads",
            "set_grad_none",
        ),
        6,
        frozenset({"materialize_master_grads", "set_grad_none"}),
        {
            "wd_after_momentum": (
                (False, 0),
                "torch adds weight decay before momentum: wd_after_momentum has no counterpart",
            )
        },
    ),
    HOME + "FusedAdagrad": Fused(
        "AMP623",
        "torch.optim.Adagrad",
        ("params", "lr", "eps", "weight_decay", "set_grad_none", "adagrad_w_mode"),
        2,
        frozenset({"set_grad_none"}),
        {
            "adagrad_w_mode": (
                (False, 0),
                "torch's Adagrad adds weight decay to the gradient: adagrad_w_mode has no counterpart",
            )
        },
    ),
}
NAMES = frozenset(OPTIMIZERS)
ADAM_NAME = "torch.optim.Adam"


def convert(project: Project, site: Site) -> Native | Manual:
    """What becomes of a use of one of Apex's optimizers that torch has too."""
    fused = OPTIMIZERS[site.name]
    if site.call is not None:
        return _call(site, site.call, fused)
    if is_type_test(site):
        return Native(fused.code, (fused.native,), fused.native, "look")
    if fused.code == "AMP621":
        return Manual(
            fused.code,
            "called out of sight: torch.optim.AdamW decays by 0.01 unless weight_decay is given there",
        )
    return Native(fused.code, (fused.native,), f"{fused.native}, called out of sight", "review")


def _call(site: Site, call: ast.Call, fused: Fused) -> Native | Manual:
    named = named_arguments(call, fused.positions)
    unpacked = _unpacked(site, named)
    arguments: list[Argument] = []
    names: tuple[str, ...] = (fused.native,)
    choose: ast.expr | None = None
    for index, (name, argument) in enumerate(named):
        value = literal(argument)
        if name in fused.fixed and value not in fused.fixed[name][0]:
            return Manual(fused.code, fused.fixed[name][1])
        if name == "adam_w_mode":
            if value is ...:
                names, choose = (fused.native, ADAM_NAME), value_of(argument)
            else:
                names = (fused.native if value else ADAM_NAME,)
        elif name not in fused.dropped and name not in fused.fixed:
            moved = name is not None and index >= fused.ordered and not isinstance(argument, ast.keyword)
            arguments.append(Argument(argument, f"{name}=" if moved else ""))
    for key in unpacked or ():
        if key in fused.fixed or key in fused.dropped or key == "adam_w_mode":
            return Manual(fused.code, f"the unpacked arguments hold {key}, which torch does not take")
    message, review = _message(names, choose), "as-is" if choose is None else "look"
    given = {name for name, _ in named} | (unpacked or set())
    if (
        names != (ADAM_NAME,)
        and fused.code == "AMP621"
        and "weight_decay" not in given
        and not _groups_decay(site, call)
    ):
        message += ", which would decay by 0.01 unless told"
        if unpacked is None:
            arguments = [a if not _double_starred(a) else _with_decay(site, a) for a in arguments]
        else:
            arguments.append(Argument(None, "weight_decay=0.0"))
    if unpacked is None:
        message += "; what is unpacked must not hold options of Apex's own"
        review = "look"
    return Native(fused.code, names, message, "look" if review == "look" else "as-is", tuple(arguments), choose)


def _message(names: tuple[str, ...], choose: ast.expr | None) -> str:
    return names[0] if choose is None else f"{names[0]} or {names[1]}, as adam_w_mode is"


def _double_starred(argument: Argument) -> bool:
    return isinstance(argument.node, ast.keyword) and argument.node.arg is None


def _with_decay(site: Site, argument: Argument) -> Argument:
    """`**kwargs` that keeps its own weight decay, and has Apex's default where it has none."""
    assert isinstance(argument.node, ast.keyword)
    return Argument(None, f'**{{"weight_decay": 0.0, **{site.module.source(argument.node.value)}}}')


def _unpacked(site: Site, named: list[tuple[str | None, ast.expr | ast.keyword]]) -> set[str] | None:
    """The keys that `*` and `**` arguments bring; None where that cannot be told."""
    keys: set[str] = set()
    for name, argument in named:
        if name is not None:
            continue
        found = _keys(site, argument.value) if isinstance(argument, ast.keyword) else None
        if found is None:
            return None
        keys |= found
    return keys


def _keys(site: Site, node: ast.expr) -> set[str] | None:
    """The keys of a dict written out in sight: a display, `dict(...)`, or a local name given one."""
    if isinstance(node, ast.Dict):
        keys = {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        return keys if len(keys) == len(node.keys) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        names = {keyword.arg for keyword in node.keywords}
        return {name for name in names if name is not None} if None not in names else None
    if not isinstance(node, ast.Name):
        return None
    values = _assigned(site.scope.lookup(node.id), site, node.id)
    if values is None or len(values) != 1 or isinstance(values[0], ast.Name):
        return None
    known = _keys(site, values[0])
    added = _later_keys(site, node.id)
    return known | added if known is not None and added is not None else None


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


def _later_keys(site: Site, name: str) -> set[str] | None:
    """Keys given to a dict after it was made: `name["key"] = ...`; None where they are not literal."""
    keys: set[str] = set()
    for node in _mentions(site, name):
        parent = site.module.parents.get(node)
        if isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store):
            if not isinstance(parent.slice, ast.Constant) or not isinstance(parent.slice.value, str):
                return None
            keys.add(parent.slice.value)
        elif isinstance(parent, ast.Attribute) and parent.attr in ("update", "setdefault"):
            return None
    return keys


def _mentions(site: Site, name: str) -> Iterator[ast.Name]:
    owner = site.scope.lookup(name)
    for node in ast.walk(site.module.tree):
        if isinstance(node, ast.Name) and node.id == name and site.module.scope_of(node).lookup(name) is owner:
            yield node


def _groups_decay(site: Site, call: ast.Call) -> bool:
    """Whether the parameters come as groups, written out in sight, that each say their weight decay."""
    params = next((value_of(a) for name, a in named_arguments(call, ("params",)) if name == "params"), None)
    if isinstance(params, ast.Name):
        values = _assigned(site.scope.lookup(params.id), site, params.id)
        params = values[0] if values is not None and len(values) == 1 else None
    if not isinstance(params, ast.List) or not params.elts:
        return False
    groups = [_keys(site, group) if isinstance(group, ast.Dict) else None for group in params.elts]
    return all(keys is not None and "weight_decay" in keys for keys in groups)
