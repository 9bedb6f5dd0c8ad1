"""Every number a verdict depends on, and how it was obtained. docs/verification.md repeats the measurements.

Where it can, a verdict does not compare with a constant but with the original itself under rounding noise: its own
step, from the same state and on the same batch, with noise of the size of fp16 rounding on weights and gradients (the
*rounding run*). Constants are floors, for programs in which that noise happens to cancel.
"""

from __future__ import annotations

# fp16 keeps 11 significant bits: rounding moves a number by at most 2**-11 of itself, bf16 (8 bits) by 2**-8. Noise
# uniform in ±2**-10 moves the median element by 2**-11 (4.9e-4): what right migrations of real repositories showed
# between real Apex and native AMP (median relative error of a gradient 4e-4 to 6e-4).
NOISE = {"float16": 2.0**-10, "bfloat16": 2.0**-7}

# Lockstep: a right migration may be this many times further from the original than rounding noise puts the original
# from itself. Noise is put on once, where rounding happens at every operation, so a factor is needed; see "Right runs"
# in docs/verification.md for the largest ratios seen. The floors are twice the largest values of right migrations of
# real repositories (error 6e-4, norm ratio 1.002, cosine 0.999998).
LOCKSTEP_FACTOR = 4.0
MEDIAN_ERROR_FLOOR = 1.2e-3
NORM_RATIO_FLOOR = 4e-3
COSINE_DEFECT_FLOOR = 4e-6  # 1 - cosine; grows with the square of the error, so its factor is squared as well
LOSS_ERROR_FLOOR = 2.0**-9  # a loss computed in fp16 is itself rounded by 2**-11; two roundings, twice
UPDATE_NORM_FLOOR = (
    0.02  # norm of the parameter update: Adam's first steps have the sign of noise where gradients are 0
)
UPDATE_COSINE_FLOOR = 0.05

# Scale: compared exactly; a scale is a power of two times its start.

# Precision: share of one kind of operation that computes in half. Exact in theory; a program that runs an operation
# a few times more on one side (a print, a metric) must not fail for it.
CENSUS_SHARE = 0.02

# Lockstep: where rounding noise alone changes the median element of a gradient by more than this share, nothing can be
# told from gradients. Right programs stay below 0.01, those that take the sign of a gradient come to 1.
BLIND = 0.25

# Overflow on one side only: the gradient of a step at two scales, both finite; what differs is what vanishes in half.
SAME_NORM = 0.02

# Loss curve: distance to the original's curve, in units of the band spanned by reruns under noise (see verdicts.curve).
# 3 with 3 reruns or more: no false alarm in the right runs of docs/verification.md.
CURVE_FACTOR = 3.0
CURVE_FLOOR = 2.0**-9  # relative to the loss
CURVE_OUTSIDE = 0.1  # share of steps that may lie outside

# Data: the mean magnitude of a batch, which the first forward of a step sees, may move by rounding only.
BATCH_TOLERANCE = 0.02

# The switch drill: two programs in fp32 run the same operations; what is left between them in a few steps is the order
# in which fused optimizers and norms round (1e-6). TF32, on a GPU, keeps 11 bits as fp16 does.
FULL_PRECISION = 2e-3
