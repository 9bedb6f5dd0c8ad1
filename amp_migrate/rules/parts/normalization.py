"""`apex.normalization` becomes `torch.nn.LayerNorm`, `torch.nn.RMSNorm` and their functional forms.

Apex: https://nvidia.github.io/apex/layernorm.html
Native: https://pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html
"""

from __future__ import annotations

import ast
import re

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import tied
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.parts.counterpart import Manual, Native, is_base, is_type_test, named_arguments
from amp_migrate.writing.calls import Argument

APEX = "https://nvidia.github.io/apex/layernorm.html"
LAYER_NORM = "https://pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html"
RMS_NORM = "https://pytorch.org/docs/stable/generated/torch.nn.RMSNorm.html"

CODES = (
    Code(
        "AMP631",
        "FusedLayerNorm becomes torch.nn.LayerNorm",
        "normalization.FusedLayerNorm",
        apex="Layer normalization in one kernel; MixedFusedLayerNorm keeps its weights' dtype apart from the input's.",
        native="torch.nn.LayerNorm: the same parameters and defaults, a fused kernel; autocast runs it in float32.",
        why="A fallback for machines without Apex goes with it: what ran with Apex is what LayerNorm computes.",
        links=(APEX, LAYER_NORM),
        examples=(
            Example(
                "import torch\nfrom apex.normalization import FusedLayerNorm\n\n"
                "norm = FusedLayerNorm(768, eps=1e-12)\n",
                "import torch\n\nnorm = torch.nn.LayerNorm(768, eps=1e-12)\n",
            ),
        ),
    ),
    Code(
        "AMP632",
        "FusedRMSNorm becomes torch.nn.RMSNorm",
        "normalization.FusedRMSNorm",
        apex="Root mean square normalization in one kernel, eps=1e-5 by default.",
        native="torch.nn.RMSNorm, since torch 2.4; its default eps is the smallest step of the input's dtype.",
        why="Apex's default for eps is written out, so that the numbers stay.",
        links=(APEX, RMS_NORM),
        examples=(
            Example(
                "import torch\nfrom apex.normalization import FusedRMSNorm\n\nnorm = FusedRMSNorm(768)\n",
                "import torch\n\nnorm = torch.nn.RMSNorm(768, eps=1e-5)\n",
            ),
        ),
    ),
    Code(
        "AMP633",
        "Functional forms become torch.nn.functional.layer_norm and rms_norm",
        "normalization.fused_layer_norm_affine",
        apex="fused_layer_norm_affine(input, weight, bias, shape, eps=1e-6) and its siblings.",
        native="layer_norm(input, shape, weight, bias, eps) and rms_norm(input, shape, weight, eps).",
        why="The arguments stand in another order, and the default for eps is Apex's 1e-6.",
        links=(APEX, "https://pytorch.org/docs/stable/generated/torch.nn.functional.layer_norm.html"),
        examples=(
            Example(
                "import torch\nfrom apex.normalization.fused_layer_norm import fused_layer_norm_affine\n\n"
                "y = fused_layer_norm_affine(x, weight, bias, shape, eps)\n",
                "import torch\n\ny = torch.nn.functional.layer_norm(x, shape, weight, bias, eps)\n",
            ),
        ),
    ),
)

AMP = re.compile(r"\bamp\.(initialize|init|autocast|GradScaler)\b|\bautocast\(|import autocast\b")
HOME = "apex.normalization."
LAYERS = {
    HOME + "FusedLayerNorm": ("AMP631", "torch.nn.LayerNorm"),
    HOME + "MixedFusedLayerNorm": ("AMP631", "torch.nn.LayerNorm"),
    HOME + "FusedRMSNorm": ("AMP632", "torch.nn.RMSNorm"),
    HOME + "MixedFusedRMSNorm": ("AMP632", "torch.nn.RMSNorm"),
}
# Parameters in Apex's order; then the native function, its parameters in torch's order.
FUNCTIONS = {
    "fused_layer_norm": (("input", "normalized_shape", "eps"), "layer_norm"),
    "fused_layer_norm_affine": (("input", "weight", "bias", "normalized_shape", "eps"), "layer_norm"),
    "mixed_dtype_fused_layer_norm_affine": (("input", "weight", "bias", "normalized_shape", "eps"), "layer_norm"),
    "fused_rms_norm": (("input", "normalized_shape", "eps"), "rms_norm"),
    "fused_rms_norm_affine": (("input", "weight", "normalized_shape", "eps"), "rms_norm"),
    "mixed_dtype_fused_rms_norm_affine": (("input", "weight", "normalized_shape", "eps"), "rms_norm"),
}
# The autograd functions behind them: `.apply` takes the same arguments, all of them by position.
APPLIED = {
    f"{name}.apply": function
    for name, function in (
        ("FusedLayerNormFunction", "fused_layer_norm"),
        ("FusedLayerNormAffineFunction", "fused_layer_norm_affine"),
        ("FusedLayerNormAffineMixedDtypesFunction", "mixed_dtype_fused_layer_norm_affine"),
        ("FusedRMSNormFunction", "fused_rms_norm"),
        ("FusedRMSNormAffineFunction", "fused_rms_norm_affine"),
        ("FusedRMSNormAffineMixedDtypesFunction", "mixed_dtype_fused_rms_norm_affine"),
    )
}
NATIVE_ORDER = {
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
}
NAMES = frozenset([*LAYERS, *(HOME + name for name in (*FUNCTIONS, *APPLIED))])


def convert(project: Project, site: Site) -> Native | Manual:
    """What becomes of a use of `apex.normalization`."""
    if site.name in LAYERS:
        return _layer(project, site, *LAYERS[site.name])
    return _function(site)


def _mixed(project: Project) -> frozenset[Module]:
    """The files that imports tie to one that sets mixed precision up, Apex's or torch's; see `Project.once`."""
    return tied(project, [m for m in project.modules if AMP.search(m.text) is not None])


def _layer(project: Project, site: Site, code: str, name: str) -> Native | Manual:
    rms = code == "AMP632"
    plain = rms or is_type_test(site) or site.module not in project.once(_mixed)
    message = name if plain else f"{name}, which computes in float32 where autocast is on"
    if site.call is None:
        if is_base(site):
            return Native(code, (name,), f"derives from {name}", "look")
        if rms and not is_type_test(site):
            return Native(code, (name,), f"{name}: pass eps=1e-5 where it is called without", "review")
        return Native(code, (name,), message)
    named = named_arguments(site.call, ("normalized_shape", "eps", "elementwise_affine", "memory_efficient"))
    known = {given for given, _ in named}
    taken = {"normalized_shape", "eps", None} | (set() if site.short.startswith("Mixed") else {"elementwise_affine"})
    ignored = sorted(known - taken - {"memory_efficient"}, key=str)
    if ignored and not site.short.startswith("Mixed"):
        return Manual(code, f"neither Apex's {site.short} nor {name} takes {', '.join(map(str, ignored))}")
    if ignored:  # the mixed layers take any keyword and look at none
        message += f"; {', '.join(map(str, ignored))} went, which Apex took and ignored"
    arguments = [Argument(argument) for given, argument in named if given in taken]
    if rms and "eps" not in known:
        if None in known:
            return Native(code, (name,), f"{name}: Apex's default for eps is 1e-5", "review", tuple(arguments))
        arguments.append(Argument(None, "eps=1e-5"))
    return Native(code, (name,), message, arguments=tuple(arguments))


def _function(site: Site) -> Native | Manual:
    called = site.name.removeprefix(HOME)
    positions, native = FUNCTIONS[APPLIED.get(called, called)]
    name = f"torch.nn.functional.{native}"
    by_hand = Manual("AMP633", f"{name} takes its arguments in another order: {', '.join(NATIVE_ORDER[native])}")
    if site.call is None:
        return by_hand
    named = named_arguments(site.call, (*positions, "memory_efficient"))
    given = {key: argument for key, argument in named if key != "memory_efficient"}
    if None in given:
        return by_hand
    arguments: list[Argument] = []
    by_keyword = False
    for parameter in NATIVE_ORDER[native]:
        argument = given.get(parameter)
        if argument is None:
            by_keyword = True
            if parameter == "eps":
                arguments.append(Argument(None, "eps=1e-6"))
        elif isinstance(argument, ast.keyword):
            by_keyword = True
            arguments.append(Argument(argument))
        else:
            arguments.append(Argument(argument, f"{parameter}=" if by_keyword else ""))
    return Native("AMP633", (name,), name, arguments=tuple(arguments))
