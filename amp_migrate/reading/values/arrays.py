"""What NumPy and torch compute in where nothing says otherwise: in float64, of Python's floats and of integers of NumPy's.

Data and rules for two values at a time, measured with NumPy 2.4 and torch 2.13; `doubles.py` follows values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Literal, NamedTuple

from amp_migrate.reading.program.module import Module

# double, single, integer: an array or tensor of float64, of another floating dtype, of integers of NumPy's; floating: of one of
# the first two, which is not known; index: a tensor of integers, which torch makes float32 of; scalar: one number of NumPy's in
# float64, that may widen or not, by its version; real, whole: numbers of Python's; image: of PIL, of which an array of integers is
# made.
Dtype = Literal[
    "double", "single", "floating", "integer", "index", "scalar", "real", "whole", "image", "none", "unknown"
]
ARRAYS: tuple[Dtype, ...] = ("double", "single", "floating", "integer", "index")


class Kind(NamedTuple):
    """What a value may be, and, of float64, what made it so; of that and of what is floating, whether it is seen to be a
    tensor, no array."""

    dtype: Dtype
    module: Module | None = None
    node: ast.AST | None = None
    tensor: bool = False

    def among(self, *dtypes: Dtype) -> bool:
        return self.dtype in dtypes


Kinds = frozenset[Kind]


def only(dtype: Dtype, module: Module | None = None, node: ast.AST | None = None) -> Kinds:
    return frozenset((Kind(dtype, module, node),))


NOTHING: Kinds = frozenset()
UNKNOWN = only("unknown")

# Functions of NumPy's.
MAKING = frozenset(
    "zeros ones empty eye identity linspace logspace geomspace hanning hamming loadtxt genfromtxt".split()
)
SAMPLING = frozenset(
    "rand randn random random_sample uniform normal standard_normal beta gamma exponential laplace lognormal poisson_".split()
)
JOINING = frozenset(
    "array asarray asanyarray ascontiguousarray concatenate stack vstack hstack dstack column_stack".split()
)
ELEMENTWISE = frozenset(
    "exp expm1 log log2 log10 log1p sqrt cbrt sin cos tan tanh sinh cosh arctan arcsin arccos deg2rad rad2deg".split()
)
TWO = frozenset("add subtract multiply divide true_divide power maximum minimum fmax fmin clip".split())
AVERAGING = frozenset("mean std var median average percentile quantile nanmean nanstd nanmedian nanpercentile".split())
SUMMING = frozenset("sum prod max min amax amin nanmax nanmin nansum".split())
# What keeps the dtype of an array, and of a tensor: functions and methods.
KEEPING = frozenset(
    "squeeze expand_dims transpose reshape ravel flatten flip fliplr flipud rot90 pad tile repeat roll copy swapaxes moveaxis "
    "rollaxis broadcast_to take sort nan_to_num triu tril atleast_1d atleast_2d atleast_3d zeros_like ones_like empty_like "
    "full_like abs absolute negative round around asfortranarray require delete "
    "view permute contiguous unsqueeze expand expand_as cuda cpu detach clone pin_memory requires_grad_ narrow index_select "
    "masked_fill masked_fill_ clamp clamp_ view_as reshape_as movedim unfold neg relu sigmoid to_numpy "
    "mul_ div_ add_ sub_ div mul add sub".split()
)
WRITING = frozenset("div mul add sub".split())  # of a tensor and something else, which may widen it
IMAGES = frozenset(
    "convert resize crop rotate transpose copy filter expand fit pad mirror flip equalize autocontrast".split()
)
OF_CV2 = frozenset("cvtColor resize flip warpAffine GaussianBlur medianBlur blur copyMakeBorder rotate remap".split())
# Whose dtype is not to be seen where an image is read as it is stored.
STORED = frozenset("IMREAD_UNCHANGED IMREAD_ANYDEPTH".split())

DOUBLES = frozenset("float64 double float_ f8 <f8 d float".split())
SINGLES = frozenset("float32 single float16 half f4 <f4 f f2 bfloat16".split())
WHOLES = frozenset(
    "int int8 int16 int32 int64 uint8 uint16 uint32 uint64 long short bool bool_ int_ intp longlong u1 i4 i8".split()
)


def of_name(name: str) -> Dtype:
    """The dtype that a name or a text stands for: `numpy.float64`, `float` of Python's, `"float32"`; of torch's, where `float`
    is float32."""
    last = name.rpartition(".")[2]
    of_torch = name.startswith("torch.")
    if last.endswith("Tensor"):
        last = {"DoubleTensor": "double", "FloatTensor": "single", "HalfTensor": "half", "Tensor": "single"}.get(
            last, "int"
        )
    elif of_torch and last == "float":
        return "single"
    if last in DOUBLES:
        return "double"
    whole: Dtype = "index" if of_torch else "integer"
    return "single" if last in SINGLES else whole if last in WHOLES else "unknown"


def together(one: Kind, other: Kind, divides: bool, module: Module, node: ast.AST) -> Kind:
    """What an operation makes of two values that stands there."""
    for kind in (one, other):
        if kind.dtype == "double":
            return kind
    made = Kind("double", module, node)
    both = {one.dtype, other.dtype}
    if "floating" in both:
        return one if one.dtype == "floating" else other
    if divides and "unknown" in both:
        return Kind("floating")
    if both & {"unknown", "image"}:
        return Kind("unknown")
    if "scalar" in both:
        scalar = one if one.dtype == "scalar" else other
        return (
            scalar
            if both <= {"scalar", "real", "whole"}
            else made
            if both == {"scalar", "integer"}
            else Kind("unknown")
        )
    if "single" in both:
        return Kind("unknown" if "integer" in both else "single")
    if "integer" in both:
        if "index" in both:
            return Kind("unknown")
        return made if divides or "real" in both else Kind("integer")
    if "index" in both:
        return Kind("single" if divides or "real" in both else "index")
    real = "real" in both or divides
    return Kind("real", module, node) if real else Kind("whole")


def folded(found: Iterable[Kinds], divides: bool, module: Module, node: ast.AST) -> Kinds:
    """What an operation makes of several values, each of which may be of several kinds: but None, on which it raises."""
    made: Kinds | None = None
    for kinds in (frozenset(k for k in kinds if k.dtype != "none") for kinds in found):
        made = kinds if made is None else frozenset(together(a, b, divides, module, node) for a in made for b in kinds)
    return made if made is not None else UNKNOWN


def as_array(kind: Kind, module: Module, node: ast.AST) -> Kind:
    """What NumPy makes an array of, without a dtype being asked for."""
    if kind.among("real", "scalar"):
        return Kind("double", module, node)
    if kind.among("whole", "image"):
        return Kind("integer")
    return kind if kind.among("double", "single", "floating", "integer") else Kind("unknown")


def as_tensor(kind: Kind, module: Module, node: ast.AST) -> Kind:
    """What `torch.tensor` and the like make: of Python's floats float32, of all else what it is."""
    if kind.dtype == "scalar":
        return Kind("double", module, node, tensor=True)
    if kind.among("integer", "whole", "index"):
        return Kind("index")
    if kind.among("double", "floating"):
        return kind._replace(tensor=True)
    return Kind("single") if kind.among("real", "single") else Kind("unknown")


def collated(kind: Kind) -> Kind:
    """What torch's `default_collate` makes of several of a kind: of Python's floats float64."""
    if kind.among("real", "scalar", "double"):
        return kind._replace(dtype="double", tensor=True)
    if kind.dtype == "floating":
        return kind._replace(tensor=True)
    return Kind("index") if kind.among("integer", "whole", "index") else kind


def reduced(kind: Kind, averaged: bool, along: bool, module: Module, node: ast.AST) -> Kind:
    """What is left of an array that is averaged or summed, along an axis or as a whole."""
    if averaged and kind.among("integer", "whole", "real"):
        return Kind("double" if along else "scalar", module, node)
    if kind.among("double", "scalar"):
        return kind if along else kind._replace(dtype="scalar")
    return kind if kind.among("single", "floating", "integer") else Kind("unknown")
