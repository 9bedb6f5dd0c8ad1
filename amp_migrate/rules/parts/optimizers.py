"""`apex.optimizers` becomes `torch.optim` where torch computes the same.

Apex: https://nvidia.github.io/apex/optimizers.html
Native: https://pytorch.org/docs/stable/optim.html
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace

from amp_migrate.findings import STILL_SHIPPED, Code, Example, Review
from amp_migrate.reading.program.definitions import literal
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.parts.asked_class import with_class_asked
from amp_migrate.rules.parts.counterpart import (
    Manual,
    Native,
    is_base,
    is_type_test,
    named_arguments,
    value_of,
)
from amp_migrate.rules.parts.fused_layout import FUSED_ADAM, knows_layout
from amp_migrate.rules.parts.optimizer_values import as_base, bound, in_partial, kept_calls, kept_to_be_called
from amp_migrate.rules.parts.unpacked_options import Keys, _assigned, keys_of
from amp_migrate.writing.calls import Argument
from amp_migrate.writing.style import Style

APEX = "https://nvidia.github.io/apex/optimizers.html"
ADAMW = "https://pytorch.org/docs/stable/generated/torch.optim.AdamW.html"
ADAM = "https://pytorch.org/docs/stable/generated/torch.optim.Adam.html"
SGD = "https://pytorch.org/docs/stable/generated/torch.optim.SGD.html"
ADAGRAD = "https://pytorch.org/docs/stable/generated/torch.optim.Adagrad.html"

CODES = (
    Code(
        "AMP621",
        "FusedAdam becomes AdamW, or Adam without weight decay or with adam_w_mode=False",
        "optimizers.FusedAdam",
        apex="Adam with decoupled weight decay, 0.0 by default; adam_w_mode=False adds the decay to the gradient.",
        native="torch.optim.AdamW decays by 0.01 by default, torch.optim.Adam adds to the gradient: without weight decay they "
        "are the same. Both are fused or batched on CUDA.",
        why="Where nothing sets a weight decay torch.optim.Adam is written; where groups, options or a later line may, "
        "torch.optim.AdamW with weight_decay=0.0, in a functools.partial where the class is kept to be called later. torch "
        "has neither bias_correction=False, with which the optimizer stays Apex's, nor clipping inside the step, which goes "
        "before it where an FP16_Optimizer wraps the optimizer (AMP704), and is left to a person elsewhere. Where the "
        "program itself works with the layout of FusedAdam's state, its step count in the parameter group, it stays Apex's, "
        "too.",
        links=(APEX, ADAMW, ADAM),
        examples=(
            Example(
                "import torch\nfrom apex.optimizers import FusedAdam\n\n"
                "optimizer = FusedAdam(model.parameters(), lr=1e-4)\n",
                "import torch\n\noptimizer = torch.optim.Adam(model.parameters(), lr=1e-4)\n",
            ),
            Example(
                "import torch\nfrom apex.optimizers import FusedAdam\n\noptimizer = FusedAdam(groups, lr=1e-4)\n",
                "import torch\n\noptimizer = torch.optim.AdamW(groups, lr=1e-4, weight_decay=0.0)\n",
            ),
            Example(
                "import torch\nfrom apex.optimizers import FusedAdam\n\n"
                "optimizer = FusedAdam(model.parameters(), lr=1e-4, adam_w_mode=False)\n",
                "import torch\n\noptimizer = torch.optim.Adam(model.parameters(), lr=1e-4)\n",
            ),
        ),
    ),
    Code(
        "AMP622",
        "FusedSGD becomes torch.optim.SGD",
        "optimizers.FusedSGD",
        apex="SGD with momentum in one kernel; works on Apex's master weights.",
        native="torch.optim.SGD, same update and same argument order.",
        why="wd_after_momentum=True changes the update and has no counterpart: with it the optimizer stays Apex's.",
        links=(APEX, SGD),
        examples=(
            Example(
                "import torch\nfrom apex.optimizers import FusedSGD\n\n"
                "optimizer = FusedSGD(model.parameters(), lr=0.1, momentum=0.9, materialize_master_grads=False)\n",
                "import torch\n\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n",
            ),
        ),
    ),
    Code(
        "AMP623",
        "FusedAdagrad becomes torch.optim.Adagrad",
        "optimizers.FusedAdagrad",
        apex="Adagrad in one kernel; adagrad_w_mode=True decouples weight decay.",
        native="torch.optim.Adagrad, same defaults; weight decay is added to the gradient.",
        why="Decoupled weight decay has no counterpart there: with it the optimizer stays Apex's.",
        links=(APEX, ADAGRAD),
        examples=(
            Example(
                "import torch\nfrom apex.optimizers import FusedAdagrad\n\n"
                "optimizer = FusedAdagrad(model.parameters(), lr=0.01, set_grad_none=True)\n",
                "import torch\n\noptimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)\n",
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
    apex_only: frozenset[str]  # of the fixed, those that today's Apex takes with any value: the optimizer may stay
    undecayed: str = ""  # what is the same without weight decay, where the program sets none later


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
        frozenset({"set_grad_none", "use_mt", "amp_scale_adjustment"}),
        {
            "master_weights": (
                (False, 0, None),
                "torch's Adam keeps no float32 copies of half weights, and GradScaler does not unscale their gradients: keep "
                "the weights in float32 and drop master_weights, or keep apex.optimizers.FusedAdam",
            ),
            "bias_correction": (
                (True, 1),
                "to be rid of Apex, torch.optim.AdamW, which always corrects the bias: bias_correction=False has no counterpart "
                "there, and where the learning rate warms up the difference is small",
            ),
            "eps_inside_sqrt": ((False, 0), "torch adds eps outside the square root"),
            "max_grad_norm": (
                (0, None),
                "torch's optimizers do not clip: call clip_grad_norm_ after unscaling, and drop max_grad_norm",
            ),
        },
        frozenset({"bias_correction"}),
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
        frozenset({"wd_after_momentum"}),
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
        frozenset({"adagrad_w_mode"}),
    ),
}
# The optimizers that FP16_Optimizer was made for: with the arguments of their time.
CONTRIB = "apex.contrib.optimizers."
OPTIMIZERS[CONTRIB + "FusedAdam"] = replace(
    OPTIMIZERS[HOME + "FusedAdam"],
    positions=(
        *("params", "lr", "bias_correction", "betas", "eps", "eps_inside_sqrt", "weight_decay", "max_grad_norm"),
        *("amsgrad", "use_mt", "amp_scale_adjustment"),
    ),
    apex_only=frozenset({"bias_correction", "eps_inside_sqrt"}),
)
OPTIMIZERS[CONTRIB + "FusedSGD"] = OPTIMIZERS[HOME + "FusedSGD"]
NAMES = frozenset(OPTIMIZERS)
KEPT = f"{STILL_SHIPPED} and GradScaler steps it, so Apex stays installed for it"
ADAM_NAME = "torch.optim.Adam"
# A weight decay that groups may bring or something may set later, a test of the class: all tell AdamW from Adam.
ASKED_LATER = re.compile(
    r"""["']weight_decay["']|(?s:\bparam_groups\b.*(?:\.update\(|\.setdefault\(|\[[A-Za-z_]\w*\]\s*=[^=]))|\badd_param_group\b|\b(?:is|in|==)\W+(?:\w+\.)*FusedAdam\b|\(.*,.*\bFusedAdam\b\)"""
)


def convert(project: Project, site: Site, clipped: bool = False) -> Native | Manual:
    """What becomes of a use of one of Apex's optimizers that torch has too; `clipped`: a rule has put the clipping that it
    did inside of its step before the step."""
    decided = _convert(project, site, OPTIMIZERS[site.name], clipped)
    known = knows_layout(project, site.module) if site.name == FUSED_ADAM and isinstance(decided, Native) else None
    if known is not None:
        return Manual("AMP621", f"{KEPT}; {known}", works=True)
    return with_class_asked(project, site, decided) if isinstance(decided, Native) else decided


def _convert(project: Project, site: Site, fused: Fused, clipped: bool) -> Native | Manual:
    if site.call is not None:
        plain = fused.code == "AMP621" and not any(ASKED_LATER.search(m.text) for m in project.modules)
        return _call(site, site.call, replace(fused, undecayed=ADAM_NAME) if plain else fused, clipped)
    if is_type_test(site):
        return Native(fused.code, (fused.native,), fused.native, "look")
    own = ", ".join(sorted(fused.dropped | set(fused.fixed)))

    def called(there: Site, call: ast.Call, positions: tuple[str, ...]) -> Native | Manual:
        before = len(positions) - len(fused.positions)  # `partial(FusedAdam, ...)`, `FusedAdam.__init__(self, ...)`
        return _call(there, call, replace(fused, positions=positions, ordered=fused.ordered + before), clipped)

    if (call := bound(site)) is not None:
        return in_partial(site, call, called, fused.positions, own)
    if is_base(site):
        return as_base(project, site, called, fused.positions, fused.code)
    message = f"{fused.native}, kept as a value here: what calls it must not give it options of Apex's own ({own})"
    calls = None if _read_elsewhere(project, site) else kept_calls(site)
    decayed = fused.code != "AMP621" or all(any(k.arg == "weight_decay" for k in call.keywords) for call in calls or ())
    if decayed and calls is not None and all(_native_too(call, fused) for call in calls):
        return Native(
            fused.code, (fused.native,), f"{fused.native}, which takes all that the calls here give it", "as-is"
        )
    if fused.code != "AMP621":
        return Native(fused.code, (fused.native,), message, "review")
    if not kept_to_be_called(site):
        return Manual(
            fused.code,
            "kept as a value here that is more than called: torch.optim.AdamW decays by 0.01 unless weight_decay is given "
            "where it is called, and a partial with weight_decay=0.0 is no class",
        )
    message = f"{message}; a partial, which decays by nothing unless told where torch's class decays by 0.01"
    return Native(fused.code, (fused.native,), message, "review", binding="weight_decay=0.0")


def _read_elsewhere(project: Project, site: Site) -> bool:
    stmt = site.stmt
    names = [t.id for t in stmt.targets if isinstance(t, ast.Name)] if isinstance(stmt, ast.Assign) else []
    return site.scope.is_module and any(project.hands_on(site.module, name) for name in names)


def _native_too(call: ast.Call, fused: Fused) -> bool:
    """Whether torch's class takes all that a call gives as Apex's did."""
    own = fused.dropped | set(fused.fixed)
    written = not any(isinstance(a, ast.Starred) for a in call.args) and len(call.args) <= fused.ordered
    return written and all(k.arg is not None and k.arg not in own for k in call.keywords)


def _call(site: Site, call: ast.Call, fused: Fused, clipped: bool) -> Native | Manual:
    named = named_arguments(call, fused.positions)
    if clipped:
        named = [(name, a) for name, a in named if name != "max_grad_norm"]
    unpacked = _unpacked(site, named)
    arguments: list[Argument] = []
    names: tuple[str, ...] = (fused.native,)
    choose: ast.expr | None = None
    reasons: dict[str, str] = {}
    for index, (name, argument) in enumerate(named):
        value = literal(value_of(argument))
        if name in fused.fixed and value not in fused.fixed[name][0]:
            reasons[name] = fused.fixed[name][1]
        if name == "adam_w_mode":
            if value is ...:
                names, choose = (fused.native, ADAM_NAME), value_of(argument)
            else:
                names = (fused.native if value else ADAM_NAME,)
        elif name not in fused.dropped and name not in fused.fixed:
            moved = name is not None and index >= fused.ordered and not isinstance(argument, ast.keyword)
            arguments.append(Argument(argument, f"{name}=" if moved else ""))
    if reasons and reasons.keys() <= fused.apex_only:
        kept = tuple(Argument(argument) for _, argument in named) if clipped else None
        return Manual(fused.code, f"{KEPT}; {'; '.join(reasons.values())}", works=True, arguments=kept)
    if reasons:
        return Manual(fused.code, "; ".join(reasons.values()))
    for key in unpacked.known:
        if key in fused.fixed or key in fused.dropped or key == "adam_w_mode":
            return Manual(fused.code, f"the unpacked arguments hold {key}, which torch does not take")
    message = names[0] if choose is None else f"{names[0]} or {names[1]}, as adam_w_mode is"
    left = [name for name, _ in named if name in fused.dropped]
    message += f" without {', '.join(left)}" if left else ""
    given = {name for name, _ in named} | unpacked.known
    if (
        names != (ADAM_NAME,)
        and fused.code == "AMP621"
        and "weight_decay" not in given
        and not _groups_decay(site, call)
    ):
        if fused.undecayed and unpacked == Keys() and choose is None and _are_parameters(site, call):
            names = (fused.undecayed,)
            message = message.replace(fused.native, f"{fused.undecayed}, the same as AdamW without weight decay", 1)
            return Native(fused.code, names, message, "as-is", tuple(arguments))
        message += ", which would decay by 0.01 unless told"
        if not unpacked.all:
            arguments = [a if not _double_starred(a) else _with_decay(site, a) for a in arguments]
        else:
            arguments.append(Argument(None, "weight_decay=0.0"))
    if not unpacked.all:
        message += "; what is unpacked must not hold options of Apex's own"
    review: Review = "as-is" if unpacked.all and choose is None else "look"
    return Native(fused.code, names, message, review, tuple(arguments), choose)


def _double_starred(argument: Argument) -> bool:
    return isinstance(argument.node, ast.keyword) and argument.node.arg is None


def _with_decay(site: Site, argument: Argument) -> Argument:
    """`**kwargs` that keeps its own weight decay, and has Apex's default where it has none."""
    assert isinstance(argument.node, ast.keyword)
    quote = Style(site.module).quote
    return Argument(None, f"**{{{quote}weight_decay{quote}: 0.0, **{site.module.source(argument.node.value)}}}")


def _unpacked(site: Site, named: list[tuple[str | None, ast.expr | ast.keyword]]) -> Keys:
    """The keys that `*` and `**` arguments bring."""
    keys = Keys()
    for name, argument in named:
        if name is None:
            keys = keys.joined(keys_of(site, argument.value) if isinstance(argument, ast.keyword) else Keys(all=False))
    return keys


def _are_parameters(site: Site, call: ast.Call) -> bool:
    """Whether an optimizer is seen to get parameters, not groups of them that may say their weight decay."""
    params = _given(site, call)
    if isinstance(params, ast.ListComp | ast.GeneratorExp):
        params = params.generators[0].iter if isinstance(params.elt, ast.Name) else None
    if isinstance(params, ast.Call) and getattr(params.func, "id", "") in ("list", "filter") and params.args:
        params = params.args[-1]
    return isinstance(params, ast.Call) and isinstance(params.func, ast.Attribute) and params.func.attr == "parameters"


def _given(site: Site, call: ast.Call) -> ast.expr | None:
    """What an optimizer is given to optimize, as it is written in sight."""
    params = next((value_of(a) for name, a in named_arguments(call, ("params",)) if name == "params"), None)
    if isinstance(params, ast.Name):
        values = _assigned(site.scope.lookup(params.id), site, params.id)
        params = values[0] if values is not None and len(values) == 1 else None
    return params


def _groups_decay(site: Site, call: ast.Call) -> bool:
    """Whether the parameters come as groups, written out in sight, that each say their weight decay."""
    params = _given(site, call)
    if not isinstance(params, ast.List) or not params.elts:
        return False
    return all(isinstance(group, ast.Dict) and "weight_decay" in keys_of(site, group).known for group in params.elts)
