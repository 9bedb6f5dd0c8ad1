"""CUDA's autocast rules, as data (docs.pytorch.org/docs/stable/amp.html, "CUDA Op-Specific Behavior").

Names are overloads of the `aten` operators the dispatcher knows; one that a version of torch lacks is passed over.
"""

from __future__ import annotations

from amp_migrate.shim.redirect.patching import words

# Run in the autocast dtype. The matrix products and convolutions that CPU autocast treats alike are not repeated here.
LOWER_PRECISION = words(
    """
addmv addr chain_matmul einsum linalg_multi_dot mv gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell gru.input gru.data
lstm.input lstm.data rnn_relu.input rnn_relu.data rnn_tanh.input rnn_tanh.data convolution _convolution
"""
)

# Run in float32, float64 stays.
FLOAT32 = words(
    """
__rpow__ _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d
_upsample_nearest_exact3d acos asin cosh cosine_similarity dist erfinv exp expm1 frobenius_norm.dim group_norm
layer_norm log log10 log1p log2 logsumexp native_layer_norm norm.Scalar norm.ScalarOpt_dim nuclear_norm
nuclear_norm.dim pdist pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor reciprocal renorm rms_norm rsqrt sinh softplus
tan upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
upsample_nearest3d upsample_trilinear3d
"""
)

# Run with dtype=float32, unless the program names a dtype.
FLOAT32_UNLESS_TOLD = words(
    """
cumprod cumsum linalg_matrix_norm linalg_matrix_norm.str_ord linalg_vector_norm log_softmax.int prod prod.dim_int
softmax.int sum sum.dim_IntList
"""
)

# Run in the widest of the floating dtypes among the arguments.
PROMOTE = words(
    """
addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot
"""
)

# Refused.
BANNED = ["binary_cross_entropy"]

# CPU autocast has rules for these, CUDA's has none: they run in the dtype of their arguments.
WITHOUT_RULE = words(
    """
_grid_sampler_2d_cpu_fallback _lu_with_info adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d cat cholesky
cholesky_inverse cholesky_solve ctc_loss.IntList ctc_loss.Tensor fake_quantize_per_tensor_affine fft_fft fft_fft2
fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2
fft_rfftn fractional_max_pool2d fractional_max_pool3d geqrf grid_sampler_2d grid_sampler_3d index_copy inverse
linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cond.p_str linalg_eig linalg_eigh linalg_eigvals
linalg_eigvalsh linalg_householder_product linalg_inv linalg_inv_ex linalg_lstsq linalg_matrix_rank
linalg_matrix_rank.atol_rtol_float linalg_matrix_rank.atol_rtol_tensor linalg_matrix_rank.tol_tensor linalg_qr
linalg_solve linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve lu_solve max_pool3d max_unpool2d
max_unpool3d multilabel_margin_loss_forward nanquantile nanquantile.scalar orgqr ormqr pinverse polar qr quantile
quantile.scalar reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d replication_pad3d stack stft
stft.center svd trace triangular_solve view_as_complex
"""
)
