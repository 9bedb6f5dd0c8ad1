"""Parts of Apex that torch has no counterpart for: reported, with what still works.

Apex: https://nvidia.github.io/apex/optimizers.html
Native: https://pytorch.org/docs/stable/optim.html
"""

from __future__ import annotations

from amp_migrate.findings import STILL_SHIPPED, Code
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
        "apex.contrib, apex.mlp, apex.fused_dense: left to Apex",
        "contrib",
        apex="Kernels beside mixed precision training. Apex still ships most; apex.transformer left it in January 2026, "
        "contrib.multihead_attn, contrib.fmha and contrib.gpu_direct_storage in July 2026.",
        native="What Apex ships needs no apex.amp and works beside autocast: it stays, and Apex stays installed for it. "
        "What it dropped has a counterpart of another shape: scaled_dot_product_attention, Megatron Core.",
        why="None is the same operation in torch: whether to replace one is the owner's decision.",
        links=(APEX, "https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"),
    ),
)

_KEPT = f"{STILL_SHIPPED} and GradScaler steps it, so Apex stays installed for it; torch has no"
# Optimizers that today's Apex still ships.
SHIPPED = {
    "FusedLAMB": f"{_KEPT} LAMB (it clips by max_grad_norm inside its step, after the scaler has unscaled)",
    "FusedMixedPrecisionLamb": f"{_KEPT} LAMB",
    "FusedNovoGrad": f"{_KEPT} NovoGrad",
}
# Parts that today's Apex still ships, with the option of its setup that builds each, where it has one.
_BUILT = f"{STILL_SHIPPED} and it needs no apex.amp, so Apex stays installed for it"
CONTRIB = {
    "bottleneck": "--fast_bottleneck",
    "clip_grad": "",
    "conv_bias_relu": "--fused_conv_bias_relu",
    "cudnn_gbn": "--cudnn_gbn",
    "focal_loss": "--focal_loss",
    "group_norm": "--group_norm",
    "groupbn": "--bnp",
    "index_mul_2d": "--index_mul_2d",
    "layer_norm": "--fast_layer_norm",
    "optimizers": "--distributed_adam or --distributed_lamb, as it is",
    "peer_memory": "--peer_memory",
    "sparsity": "",
    "transducer": "--transducer",
    "xentropy": "--xentropy",
}
# Attention whose fused kernels check that they are given half tensors, and take no part in autocast.
HALF_ONLY = frozenset(("fmha", "multihead_attn"))
KEPT_PARTS = {"mlp": "torch.nn.Sequential of Linear and ReLU", "fused_dense": "torch.nn.Linear"}
# By the part of Apex a name lives in.
PARTS = {
    "RNN": ("AMP643", "use torch.nn's recurrent layers under autocast; checkpoints need their parameters renamed"),
    "reparameterization": (
        "AMP643",
        "use torch.nn.utils.parametrizations.weight_norm; checkpoints need their parameters renamed",
    ),
    "contrib": ("AMP644", "no one counterpart in torch, and not among what Apex is known to ship still"),
    "transformer": ("AMP644", "Apex has dropped it, and torch has no one counterpart; Megatron Core continues it"),
}


def convert(project: Project, site: Site) -> Manual | None:
    """The reason a use of Apex cannot be replaced; None for a name that this rule says nothing about."""
    if site.name.startswith(("apex.optimizers.", "apex.contrib.optimizers.")) and site.short in SHIPPED:
        return Manual("AMP641", SHIPPED[site.short], works=True)
    parts = site.name.split(".")
    if len(parts) < 3 or site.short == "FP16_Optimizer":
        return None
    if parts[1] == "contrib" and parts[2] in CONTRIB:
        option = CONTRIB[parts[2]]
        return Manual("AMP644", f"{_BUILT}, built with {option}" if option else _BUILT, works=True)
    if parts[1] == "contrib" and parts[2] in HALF_ONLY:
        code, reason = PARTS["contrib"]
        raises = (
            "its fused kernels take half tensors alone, weights too: what O2 made half is float32 now, and they raise"
        )
        return Manual(code, f"{reason}; {raises} until torch.nn.MultiheadAttention takes its place")
    if parts[1] in KEPT_PARTS:
        return Manual("AMP644", f"{_BUILT}; {KEPT_PARTS[parts[1]]} computes the same under autocast", works=True)
    if parts[1] == "multi_tensor_apply":
        message = f"{_BUILT}, built with --cuda_ext; torch._foreach functions do this for lists of tensors"
        return Manual("AMP642", message, works=True)
    found = PARTS.get(parts[1])
    return Manual(*found) if found is not None else None
