"""Which Apex sites say how functions are cast."""

from __future__ import annotations

from dataclasses import dataclass

from amp_migrate.reading.program.module import FUNCTION_NODES, FunctionNode
from amp_migrate.reading.sites.apex import Site

# What each casts to; promote casts to the widest dtype among the inputs.
DECORATORS = {"float_function": "float", "half_function": "half", "promote_function": "promote"}
REGISTRATIONS = {f"register_{name}": to for name, to in DECORATORS.items()}
CAST_NAMES = frozenset((*DECORATORS, *REGISTRATIONS, "disable_casts"))


# Apex's op lists, by the module that holds them and the name of each; what they say of a function of that namespace.
LIST_MODULES = {
    "torch_overrides": "torch",
    "functional_overrides": "torch.nn.functional",
    "tensor_overrides": "torch.Tensor",
}
LISTS = {"FP16_FUNCS": "half", "FP32_FUNCS": "float", "CASTS": "promote", "SEQUENCE_CASTS": "promote"}
LIST_EDITS = frozenset({"append", "extend", "remove"})


def is_cast(site: Site) -> bool:
    """Whether a site casts functions or disables casts: it needs no scaler and no `initialize` in sight."""
    return site.name.startswith("apex.amp.") and (site.short in CAST_NAMES or in_op_lists(site))


def in_op_lists(site: Site) -> bool:
    """Whether a site is about Apex's op lists, in whatever way."""
    return site.name.startswith("apex.amp.lists.")


def list_edit(site: Site) -> tuple[str, str] | None:
    """The namespace of torch and the cast that `amp.lists.functional_overrides.FP32_FUNCS.append` is about."""
    parts = site.name.removeprefix("apex.amp.lists.").split(".")
    if not in_op_lists(site) or len(parts) != 3 or site.short not in LIST_EDITS:
        return None
    module, name, _ = parts
    if module not in LIST_MODULES or name not in LISTS:
        return None
    return LIST_MODULES[module], LISTS[name]


@dataclass(frozen=True)
class Native:
    """What CUDA autocast does by itself, by the last name of a function of torch or torch.nn.functional."""

    floats: frozenset[str]
    halves: frozenset[str]
    promotes: frozenset[str]


NATIVE = Native(
    floats=frozenset(
        "acos asin cosh cosine_embedding_loss cdist cosine_similarity cross_entropy cumprod cumsum dist "
        "erfinv exp expm1 group_norm hinge_embedding_loss huber_loss kl_div l1_loss layer_norm log log10 "
        "log1p log2 log_softmax margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss "
        "nll_loss norm normalize pdist poisson_nll_loss pow prod reciprocal renorm rsqrt sinh smooth_l1_loss "
        "soft_margin_loss softmax softmin softplus sum tan triplet_margin_loss "
        "binary_cross_entropy_with_logits interpolate".split()
    ),
    halves=frozenset(
        "addbmm addmm addmv addr baddbmm bmm chain_matmul multi_dot conv1d conv2d conv3d conv_transpose1d "
        "conv_transpose2d conv_transpose3d conv_tbc linear matmul mm mv prelu einsum "
        "scaled_dot_product_attention GRUCell LSTMCell RNNCell gru lstm rnn_tanh rnn_relu".split()
    ),
    promotes=frozenset(
        "addcdiv addcmul atan2 bilinear cross dot grid_sample index_put scatter_add tensordot cat stack add "
        "sub mul div eq ne lt gt le ge where maximum minimum".split()
    ),
)


def decorated(site: Site) -> FunctionNode | None:
    """The function a site decorates."""
    parent = site.module.parents.get(site.node)
    if isinstance(parent, FUNCTION_NODES) and any(d is site.node for d in parent.decorator_list):
        return parent
    return None
