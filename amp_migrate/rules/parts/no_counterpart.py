"""Parts of Apex that torch has no counterpart for: reported, with what still works.

Apex: https://nvidia.github.io/apex/optimizers.html
Native: https://pytorch.org/docs/stable/optim.html
"""

from __future__ import annotations

from amp_migrate.findings import Code
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.parts.counterpart import Manual

APEX = "https://github.com/NVIDIA/apex"
OPTIM = "https://pytorch.org/docs/stable/optim.html"

CODES = (
    Code(
        "AMP641",
        "FusedLAMB and FusedNovoGrad stay with Apex",
        "optimizers.FusedLAMB",
        apex="Layer-wise scaled optimizers; FusedLAMB also clips the gradient norm inside its step.",
        native="torch.optim has neither. Apex still ships them, and GradScaler steps both: they stay, and Apex stays "
        "installed for them.",
        why="Another optimizer trains differently: which one is the owner's decision.",
        links=("https://nvidia.github.io/apex/optimizers.html", OPTIM),
    ),
    Code(
        "AMP643",
        "apex.RNN, apex.reparameterization: removed from Apex",
        "RNN",
        apex="Recurrent layers in Python that could run in half precision; weight normalization by reparameterization.",
        native="torch.nn.LSTM and its siblings run under autocast; torch.nn.utils.parametrizations.weight_norm.",
        why="Parameter names and layouts differ, so checkpoints do not fit without a conversion.",
        links=(APEX, "https://pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.weight_norm.html"),
    ),
    Code(
        "AMP644",
        "apex.contrib, apex.transformer, apex.mlp, apex.fused_dense: left to Apex",
        "contrib",
        apex="Kernels beside mixed precision training.",
        native="Most have a counterpart of another shape: scaled_dot_product_attention, torch.compile, GroupNorm.",
        why="Current Apex still ships most of them; they need no apex.amp and work under torch.autocast or beside it.",
        links=(APEX, "https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"),
    ),
)

_KEPT = "kept: Apex still ships it and GradScaler steps it, so Apex stays installed for it; torch has no"
# Optimizers that today's Apex still ships.
SHIPPED = {
    "FusedLAMB": f"{_KEPT} LAMB (it clips by max_grad_norm inside its step, after the scaler has unscaled)",
    "FusedMixedPrecisionLamb": f"{_KEPT} LAMB",
    "FusedNovoGrad": f"{_KEPT} NovoGrad",
}
# By the part of Apex a name lives in.
PARTS = {
    "multi_tensor_apply": (
        "AMP642",
        "torch._foreach functions do this for lists of tensors; torch.optim batches by itself",
    ),
    "RNN": ("AMP643", "use torch.nn's recurrent layers under autocast; checkpoints need their parameters renamed"),
    "reparameterization": (
        "AMP643",
        "use torch.nn.utils.parametrizations.weight_norm; checkpoints need their parameters renamed",
    ),
    "contrib": ("AMP644", "no one counterpart in torch; Apex may still ship it, and it needs no apex.amp"),
    "transformer": ("AMP644", "no one counterpart in torch; Megatron Core continues it"),
    "mlp": ("AMP644", "Apex still ships it; torch.nn.Sequential of Linear and ReLU computes the same under autocast"),
    "fused_dense": ("AMP644", "Apex still ships it; torch.nn.Linear computes the same under autocast"),
}


def convert(project: Project, site: Site) -> Manual | None:
    """The reason a use of Apex cannot be replaced; None for a name that this rule says nothing about."""
    if site.name.startswith("apex.optimizers.") and site.short in SHIPPED:
        return Manual("AMP641", SHIPPED[site.short], works=True)
    parts = site.name.split(".")
    found = PARTS.get(parts[1]) if len(parts) > 2 else None
    return Manual(*found) if found is not None else None
