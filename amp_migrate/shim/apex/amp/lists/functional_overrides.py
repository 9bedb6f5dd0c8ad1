"""O1 casts for `torch.nn.functional`."""

import torch.nn.functional

MODULE = torch.nn.functional

FP16_FUNCS = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_tbc",
    "linear",
]

FP32_FUNCS = [
    # resampling
    "interpolate",
    "grid_sample",
    # pointwise
    "softplus",
    "softmin",
    "log_softmax",
    "softmax",
    "gelu",
    # normalization; batch_norm and instance_norm accept fp16 data with fp32 weights as they are
    "layer_norm",
    "group_norm",
    "local_response_norm",
    "normalize",
    "cosine_similarity",
    # losses
    "poisson_nll_loss",
    "cosine_embedding_loss",
    "cross_entropy",
    "hinge_embedding_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "margin_ranking_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "multi_margin_loss",
    "nll_loss",
    "binary_cross_entropy_with_logits",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "ctc_loss",
]

# (function, what the NotImplementedError says when it meets fp16)
BANNED_FUNCS = [
    (
        "binary_cross_entropy",
        "amp does not support F.binary_cross_entropy or torch.nn.BCELoss on fp16 input: a probability that came "
        "out of a half precision sigmoid is too coarse for it. Use binary_cross_entropy_with_logits "
        "(torch.nn.BCEWithLogitsLoss) on the values before the sigmoid, or call "
        "amp.register_float_function(torch, 'sigmoid') before amp starts; amp.init(allow_banned=True) casts to "
        "fp32 instead of raising.",
    )
]
