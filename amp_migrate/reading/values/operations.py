"""What operations of torch give in an autocast region on CUDA devices, and what they gave under O1: measured, as data.

https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use

Names are last names: `softmax` of `F.softmax`, `torch.softmax` and `x.softmax`.
"""

from __future__ import annotations

import re

# Of torch and of tensors, which O1 ran in float32; and those of torch.nn.functional alone.
TORCH_IN_APEX = frozenset(
    "acos asin cosh erfinv exp expm1 log log10 log2 reciprocal rsqrt sinh tan cumsum cumprod sum prod norm pow dist renorm "
    "std var".split()
)
LOSSES_IN_APEX = frozenset(
    "mse_loss l1_loss smooth_l1_loss kl_div poisson_nll_loss binary_cross_entropy_with_logits soft_margin_loss ctc_loss "
    "hinge_embedding_loss cosine_embedding_loss cross_entropy nll_loss multi_margin_loss multilabel_margin_loss "
    "multilabel_soft_margin_loss triplet_margin_loss margin_ranking_loss".split()
)
FUNCTIONAL_IN_APEX = LOSSES_IN_APEX | frozenset(
    "softmax log_softmax softmin softplus layer_norm group_norm local_response_norm normalize cosine_similarity gelu "
    "interpolate grid_sample".split()
)
# Float32 in a region whatever comes in: to one number where no axis is named (of whole numbers, the first two are whole); to
# one unless asked otherwise; all others.
REDUCTIONS = frozenset("sum prod norm dist".split())
LOSSES = LOSSES_IN_APEX | {"huber_loss"}
FLOAT32 = (
    (TORCH_IN_APEX | FUNCTIONAL_IN_APEX) - LOSSES - REDUCTIONS - frozenset("std var gelu grid_sample".split())
) | frozenset("log1p logsumexp cdist upsample".split())
HALF = frozenset(
    "matmul mm mv bmm addmm addmv addr addbmm baddbmm linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "conv_transpose3d prelu chain_matmul einsum scaled_dot_product_attention".split()
)
# The dtype of what comes in first; one number where the last five name no axis.
KEEPING = frozenset(
    "sigmoid tanh relu sqrt detach clone squeeze unsqueeze view reshape flatten permute transpose t contiguous clamp expand "
    "expand_as repeat flip roll cpu cuda data gelu std var abs neg dropout leaky_relu elu silu mish hardswish logsigmoid narrow "
    "select chunk split masked_fill index_select view_as reshape_as requires_grad_ tril triu movedim swapaxes mean max min "
    "amax amin gather masked_select take_along_dim diagonal diag unfold affine_grid".split()
)
PAIRS = frozenset("max min topk sort kthvalue mode median cummax cummin".split())  # values, and where they stand
INTEGERS = frozenset(
    "argmax argmin argsort nonzero long int bool multinomial randint bincount arange unique randperm one_hot eq ne gt lt ge le "
    "isnan isinf isfinite isin logical_and logical_or logical_not logical_xor any all count_nonzero searchsorted "
    "bucketize".split()
)
MAKING = frozenset("zeros ones empty full rand randn linspace eye normal".split())  # float32, unless told otherwise
PROMOTING = frozenset("add sub mul div true_divide addcmul addcdiv atan2 maximum minimum where".split())
JOINING = frozenset("cat stack concat hstack vstack".split())
HOST = frozenset("item tolist numpy".split())  # what Python and NumPy compute with
# Methods of models that give token ids or class numbers.
GENERATORS = frozenset("generate beam_search greedy_search greedy_decode viterbi_decode predict_classes".split())

HALF_LAYERS = frozenset(
    "Linear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d PReLU LazyLinear LazyConv2d".split()
)
FLOAT32_LAYERS = frozenset(
    "LayerNorm GroupNorm LocalResponseNorm Softmax LogSoftmax Softmin Softplus CosineSimilarity Upsample UpsamplingNearest2d "
    "UpsamplingBilinear2d FusedLayerNorm MixedFusedLayerNorm".split()
)
LOSS_LAYERS = frozenset(
    "CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss KLDivLoss BCEWithLogitsLoss CosineEmbeddingLoss TripletMarginLoss "
    "MarginRankingLoss HingeEmbeddingLoss MultiMarginLoss MultiLabelSoftMarginLoss PoissonNLLLoss SoftMarginLoss HuberLoss "
    "CTCLoss".split()
)
KEEPING_LAYERS = frozenset(
    "Identity Dropout Dropout1d Dropout2d Dropout3d AlphaDropout ReLU ReLU6 LeakyReLU ELU SiLU GELU Mish Hardswish Tanh Sigmoid "
    "Flatten BatchNorm1d BatchNorm2d BatchNorm3d MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AdaptiveAvgPool1d "
    "AdaptiveAvgPool2d AdaptiveMaxPool1d AdaptiveMaxPool2d".split()
)

FLOAT_TYPES = frozenset({"torch.float32", "torch.float", "torch.float64", "torch.double"})
HALF_TYPES = frozenset({"torch.float16", "torch.half", "torch.bfloat16"})
INTEGER_TYPES = frozenset(f"torch.{n}" for n in "long int64 int int32 int16 int8 uint8 bool".split())

# What computes a loss, and what one is called.
LOSS_NAMES = re.compile(
    r"(loss|criteri|crit\b|crit_|cross_entropy|\bbce|_bce|(?<![a-z])nll|kl_div|objective)", re.IGNORECASE
)
