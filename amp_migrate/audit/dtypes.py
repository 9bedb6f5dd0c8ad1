"""What operations do with half precision: under Apex O1, under autocast, and outside of both.

Data, read from Apex's lists and from torch 2.13 (CUDA rules). Names are last names: `softmax` of `F.softmax`.
"""

from __future__ import annotations

# On autocast's float32 list, and on O1's: the result is float32 whatever comes in.
FLOAT_BOTH = frozenset(
    "acos asin cosh erfinv exp expm1 log log10 log2 reciprocal rsqrt sinh tan cumsum cumprod sum prod norm pow dist renorm "
    "softplus softmin log_softmax layer_norm group_norm normalize cosine_similarity mse_loss l1_loss smooth_l1_loss "
    "kl_div poisson_nll_loss binary_cross_entropy_with_logits soft_margin_loss hinge_embedding_loss cross_entropy nll_loss "
    "multi_margin_loss multilabel_soft_margin_loss triplet_margin_loss cosine_embedding_loss margin_ranking_loss "
    "multilabel_margin_loss interpolate upsample local_response_norm log_prob entropy".split()
)
# On autocast's list only, respectively O1's only.
FLOAT_NATIVE = frozenset("huber_loss logsumexp log1p cdist pdist".split())
FLOAT_APEX = frozenset("std var gelu grid_sample".split())
# Autocast runs these, of what is on O1's list alone, in the wider dtype of the first two that they are given.
PROMOTED = frozenset({"grid_sample"})
# `F.softmax` was on O1's list; `torch.softmax` and `x.softmax` were not. Autocast has all of them.
SOFTMAX = frozenset({"softmax", "log_softmax"})
# Run in half in both.
HALF_BOTH = frozenset(
    "mm matmul mv bmm addmm addmv addr baddbmm addbmm linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "conv_transpose3d prelu chain_matmul".split()
)
# On autocast's half list, and not patched by O1, which left them to their arguments' dtype.
HALF_NATIVE = frozenset("einsum tensordot multi_dot vecdot scaled_dot_product_attention".split())
# Raise on half and float32 together, where nothing casts: outside of a region, the second in one as well.
ALIKE = HALF_BOTH | HALF_NATIVE | frozenset("dot vdot inner tensordot cdist cross bilinear grid_sample".split())
ALIKE_NATIVE = frozenset("lerp allclose isclose tensordot".split())
# With `out=`, these write into a float32 tensor what they compute in half.
INTO_ANY = frozenset(
    "add addcdiv addcmul bernoulli cat concat cumprod cumsum div exp hstack lerp log log10 log1p log2 logsumexp max maximum "
    "mean min minimum mul multiply outer pow prod reciprocal rsqrt sigmoid sin cos sqrt square stack std sub sum tanh true_divide "
    "vstack".split()
)
# O1 cast what these were given to one dtype.
ALIKE_APEX = HALF_BOTH | frozenset("dot cross bilinear".split())
# Packages whose functions are never given a half tensor: they take arrays, or run on a TPU, where Apex never did.
WITHOUT_HALF = frozenset({"cv2", "imageio", "PIL", "skimage", "torch_xla"})
# Those, and more, whose objects give no tensors.
WITHOUT_NETWORKS = WITHOUT_HALF | frozenset("faiss librosa numpy pycolmap scipy sklearn".split())
# Rows of what they are given, as they are; how often each.
PICKING = {"sklearn.utils.shuffle": 1, "sklearn.utils.resample": 1, "sklearn.model_selection.train_test_split": 2}
# What makes a float32 tensor, if nothing says otherwise.
MAKING = frozenset("zeros ones empty full rand randn linspace eye".split())
HALF_LAYERS = frozenset(
    "Linear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d PReLU LSTM GRU RNN LSTMCell "
    "GRUCell RNNCell MultiheadAttention LazyLinear LazyConv2d".split()
)
FLOAT_LAYERS = frozenset(
    "LayerNorm GroupNorm RMSNorm Softmax LogSoftmax Softmin Softplus CosineSimilarity CrossEntropyLoss NLLLoss MSELoss L1Loss "
    "SmoothL1Loss KLDivLoss BCEWithLogitsLoss CosineEmbeddingLoss TripletMarginLoss MarginRankingLoss HingeEmbeddingLoss "
    "MultiMarginLoss MultiLabelSoftMarginLoss PoissonNLLLoss SoftMarginLoss HuberLoss CTCLoss Embedding "
    "Upsample UpsamplingNearest2d UpsamplingBilinear2d".split()
)
# The dtype of what comes in, in a region and under Apex: a batch normalization, too.
KEEPING_LAYERS = frozenset(
    "ReLU ReLU6 LeakyReLU ELU SELU CELU SiLU Mish Hardswish Hardtanh Hardsigmoid Sigmoid Tanh Identity Flatten Unflatten "
    "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d Dropout Dropout1d "
    "Dropout2d Dropout3d AlphaDropout MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool1d "
    "AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d PixelShuffle PixelUnshuffle "
    "ReflectionPad1d ReflectionPad2d ReplicationPad1d ReplicationPad2d ZeroPad2d ConstantPad1d ConstantPad2d".split()
)
# Encoders of libraries, which end in a layer normalization; what they give beside comes out of a linear layer (the pooler).
ENCODING = ("transformers", "pytorch_transformers", "pytorch_pretrained_bert")
ENCODERS = frozenset(
    "BertModel RobertaModel XLMRobertaModel CamembertModel DistilBertModel ElectraModel AlbertModel MPNetModel LongformerModel "
    "DebertaModel DebertaV2Model".split()
)
HELD_AS = {"XLMRoberta": "roberta", "Camembert": "roberta"}  # in the networks made with them, else by their own name
WEIGHTED = frozenset("LayerNorm GroupNorm RMSNorm Embedding".split())  # half under O2, which made their weights so
LOSSES = frozenset(n for n in FLOAT_LAYERS if n.endswith("Loss"))
LOSS_FUNCTIONS = frozenset(n for n in FLOAT_BOTH if n.endswith("loss") or n in ("cross_entropy", "kl_div")) | {
    "binary_cross_entropy_with_logits"
}
# Compute in the wider dtype of the two that they are given, where nothing casts. The gradient of binary_cross_entropy_with_logits
# is half, where its logits are, before it is divided by how many there are: from a loss scale of 131072 on it is inf.
PROMOTING = frozenset("mse_loss l1_loss smooth_l1_loss kl_div".split())
# Autocast raises.
REFUSED = frozenset({"torch.nn.functional.binary_cross_entropy", "torch.nn.BCELoss"})

# The dtype of what comes in.
KEEPING = frozenset(
    "fliplr flipud rot90 std_mean var_mean "
    "view reshape squeeze unsqueeze transpose permute flatten contiguous detach clone expand expand_as repeat t flip roll "
    "narrow select gather index_select masked_select masked_fill chunk split unbind to cuda cpu data clamp relu tanh sigmoid "
    "abs neg mean max min median topk sort dropout leaky_relu elu silu sqrt square T requires_grad_ retain_grad view_as "
    "reshape_as pin_memory mish hardswish logit round floor ceil masked_fill_ numpy copy tril triu type_as movedim "
    "interpolate grid_sample gelu std var unfold stack cat concat concatenate hstack vstack diagonal diag amax amin item "
    "tolist affine_grid avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d pad pixel_shuffle "
    "pixel_unshuffle fold relu_ relu6 hardtanh hardsigmoid glu celu selu dropout1d dropout2d dropout3d alpha_dropout "
    "swapaxes swapdims moveaxis unflatten ravel repeat_interleave".split()
)
IN_PLACE = frozenset("addmm_ addmv_ addbmm_ baddbmm_ addr_".split())  # products that are written into a tensor
# Written with values of the same dtype alone: torch raises on float32 and half together, autocast or not, and Apex cast
# nothing there; which argument of the method they are, and how that is called. Autocast promotes `scatter_add` and `index_put`.
_BY_INDEX = "scatter scatter_ scatter_add_ scatter_reduce scatter_reduce_ index_add index_add_ index_copy index_copy_"
WRITES = {
    **dict.fromkeys([*_BY_INDEX.split(), "index_reduce", "index_reduce_"], 2),
    **dict.fromkeys("index_put_ masked_scatter masked_scatter_ put_".split(), 1),
    "lerp_": 0,
}
WRITTEN = frozenset("src source tensor values end".split())
INTEGERS = frozenset(
    "argmax argmin argsort nonzero long int short byte char eq ne gt lt ge le isnan isinf isfinite size dim numel bincount "
    "searchsorted randint arange logical_and logical_or logical_not bool any all count_nonzero multinomial".split()
)
# What makes such along a dimension, and what leaves them so.
INDICES = frozenset("nonzero argsort randperm arange".split())
RESHAPING = frozenset(
    "view reshape squeeze unsqueeze flatten ravel contiguous detach clone to cuda cpu expand t transpose permute repeat flip "
    "roll data requires_grad_ pin_memory".split()
)
# Methods that make a tensor of the dtype of the one they are called on.
NEW = frozenset("new_zeros new_ones new_empty new_full new_tensor new".split())
MASKS = frozenset("bool eq ne gt lt ge le isnan isinf isfinite logical_and logical_or logical_not".split())  # of these
PAIRS = frozenset("topk sort max min median kthvalue mode cummax cummin".split())  # values and indices
SHAPES = frozenset("shape ndim size broadcast_shapes allclose array_equal isclose iinfo finfo".split())  # no arithmetic
STACKING = frozenset("array asarray concatenate vstack hstack stack".split())
# What other libraries (Horovod) call what all ranks do.
COLLECTIVES = frozenset("allgather all_gather allreduce allreduce_ broadcast broadcast_ alltoall reducescatter".split())
# What writes into a tensor of whichever dtype: what is given is cast to that.
CONVERTING = frozenset("copy_ add_ sub_ mul_ div_ fill_ addcmul_ addcdiv_ normal_ uniform_ bernoulli_ zero_".split())
# What operators stand for.
ARITHMETIC = frozenset("add sub subtract mul multiply div divide true_divide".split())
FILES = frozenset({"torch.save", "pickle.dump", "pickle.dumps", "joblib.dump", "dill.dump"})
DOUBLE_TYPES = frozenset({"torch.float64", "torch.double"})
FLOAT_TYPES = frozenset({"torch.float32", "torch.float", "torch.float64", "torch.double", "torch.FloatTensor"})
INTEGER_TYPES = frozenset(
    f"torch.{name}"
    for name in "long int64 int int32 uint8 bool int16 short int8 LongTensor IntTensor ByteTensor BoolTensor".split()
)
HALF_TYPES = frozenset({"torch.float16", "torch.half", "torch.bfloat16"})

# What suffers in half: overflow above 65504, ties between near values, sums that stop growing.
SENSITIVE = (
    FLOAT_BOTH
    | FLOAT_APEX
    | SOFTMAX
    | frozenset("sigmoid logsigmoid logsumexp mean std_mean var_mean matmul mm bmm einsum cdist".split())
)
