"""Functions that were told what to be cast to, and regions without casts.

`amp.float_function`, `half_function`, `promote_function`, their `register_` forms and `amp.disable_casts` become
explicit casts and regions without autocast.

Apex: https://nvidia.github.io/apex/amp.html#for-users-of-the-old-amp-api
Native: https://pytorch.org/docs/stable/notes/amp_examples.html#functions-with-multiple-inputs-or-autocastable-ops
"""

from __future__ import annotations

from amp_migrate.findings import Code, Example
from amp_migrate.reading.sites.casts import DECORATORS, REGISTRATIONS, in_op_lists, is_cast
from amp_migrate.rules.casts.edited_lists import convert_list_edit
from amp_migrate.rules.casts.functions import convert_function
from amp_migrate.rules.casts.no_casts import convert_region, keep_regions_out
from amp_migrate.rules.casts.registrations import convert_registration
from amp_migrate.rules.migration import Migration

APEX = "https://nvidia.github.io/apex/amp.html"
CUSTOM = "https://pytorch.org/docs/stable/notes/amp_examples.html#autocast-and-custom-autograd-functions"
OPS = "https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior"
AUTOCAST = "https://pytorch.org/docs/stable/amp.html#torch.autocast"

CODES = (
    Code(
        "AMP510",
        "float_function becomes a function without autocast on float32 inputs",
        "amp.float_function",
        apex="Casts every floating point tensor among the arguments to float32 while Amp is active.",
        native='@torch.autocast("cuda", enabled=False) and .float() on the inputs at the top of the function.',
        why="Without the casts the body would meet the caller's float16 tensors; without the decorator its matrix "
        "multiplications would run in float16 again, as they did in Apex: the function is more exact than before.",
        links=(APEX, AUTOCAST),
        examples=(
            Example(
                "@amp.float_function\ndef distance(a: torch.Tensor, b: torch.Tensor):\n"
                "    return a.norm() - b.norm()\n",
                '@torch.autocast("cuda", enabled=False)\ndef distance(a: torch.Tensor, b: torch.Tensor):\n'
                "    a, b = a.float(), b.float()\n    return a.norm() - b.norm()\n",
            ),
        ),
    ),
    Code(
        "AMP511",
        "half_function becomes explicit casts of the inputs",
        "amp.half_function",
        apex="Casts every floating point tensor among the arguments to float16 while Amp is active.",
        native=".half() on the inputs at the top of the function, under a test where autocast may be off.",
        why="Autocast only casts for the operations on its own list.",
        links=(APEX, OPS),
        examples=(
            Example(
                "@amp.half_function\ndef gate(x, weight):\n    return x @ weight.t()\n",
                'def gate(x, weight):\n    if torch.is_autocast_enabled("cuda"):\n'
                "        x, weight = x.half(), weight.half()\n    return x @ weight.t()\n",
            ),
        ),
    ),
    Code(
        "AMP512",
        "promote_function becomes a cast to the widest input",
        "amp.promote_function",
        apex="Casts the arguments to the widest floating point dtype among them.",
        native="torch.promote_types; torch's own operations promote by themselves.",
        why="Kernels that refuse mixed dtypes need it written out.",
        links=(APEX, "https://pytorch.org/docs/stable/generated/torch.promote_types.html"),
        examples=(
            Example(
                "@amp.promote_function\ndef mix(a: torch.Tensor, b: torch.Tensor):\n    return _C.mix(a, b)\n",
                "def mix(a: torch.Tensor, b: torch.Tensor):\n    dtype = torch.promote_types(a.dtype, b.dtype)\n"
                "    a, b = a.to(dtype), b.to(dtype)\n    return _C.mix(a, b)\n",
            ),
        ),
    ),
    Code(
        "AMP513",
        "register_half_function and its siblings go, or become casts at the calls",
        "amp.register_float_function",
        apex="Patches a function of another module for the whole process.",
        native="Nothing where autocast's own list says the same; else the inputs are cast at each call in sight, and autocast is "
        "off for a product of matrices that was to be float32.",
        why="einsum runs in float16 under autocast and softmax in float32 without being told; sigmoid is left in the "
        "dtype of its input.",
        links=(APEX, OPS),
        examples=(
            Example('amp.register_half_function(torch, "einsum")\n', ""),
            Example(
                'amp.register_float_function(torch, "sigmoid")\n\n\ndef predict(x):\n    return torch.sigmoid(x)\n',
                "def predict(x):\n    return torch.sigmoid(x.float())\n",
            ),
            Example(
                'amp.register_float_function(torch, "bmm")\n\n\ndef scores(a, b):\n    return torch.bmm(a, b)\n',
                'def scores(a, b):\n    return torch.autocast("cuda", enabled=False)(torch.bmm)(a.float(), b.float())\n',
            ),
        ),
    ),
    Code(
        "AMP514",
        "disable_casts becomes a region without autocast",
        "amp.disable_casts",
        apex="Nothing is cast inside; tensors keep the dtype they came with.",
        native='with torch.autocast("cuda", enabled=False), with .float() on the inputs that are known to be tensors.',
        why="Inputs made under autocast are float16, weights are float32: operations that mix them raise.",
        links=("https://github.com/NVIDIA/apex/issues/567", AUTOCAST),
        examples=(
            Example(
                "def loss(scores, weight):\n    with amp.disable_casts():\n        return scores.exp() @ weight\n",
                'def loss(scores, weight):\n    with torch.autocast("cuda", enabled=False):\n'
                "        scores, weight = scores.float(), weight.float()\n        return scores.exp() @ weight\n",
            ),
        ),
    ),
    Code(
        "AMP515",
        "Casts on an autograd function become custom_fwd and custom_bwd",
        "amp.half_function",
        apex="Decorates forward and backward like any other function.",
        native="torch.amp.custom_fwd(cast_inputs=..., device_type=...) and torch.amp.custom_bwd(device_type=...).",
        why="They cast only under autocast, and the backward runs as the forward did.",
        links=(CUSTOM,),
        examples=(
            Example(
                "class Dot(torch.autograd.Function):\n    @staticmethod\n    @amp.half_function\n"
                "    def forward(ctx, a, b):\n        return _C.dot(a, b)\n",
                "class Dot(torch.autograd.Function):\n    @staticmethod\n"
                '    @torch.amp.custom_fwd(cast_inputs=torch.float16, device_type="cuda")\n'
                "    def forward(ctx, a, b):\n        return _C.dot(a, b)\n",
            ),
        ),
    ),
    Code(
        "AMP516",
        "A cast whose function is not in sight",
        "amp.float_function",
        apex="Wraps or patches whatever it is given.",
        native="Cast the inputs where the function is called.",
        why="What is cast, and where it is called from, cannot be seen.",
        links=(APEX, AUTOCAST),
    ),
)


def apply(m: Migration) -> None:
    """Convert every cast site of the unit."""
    for site in m.unit.sites:
        if not is_cast(site) or not m.live(site.module, site.node):
            continue
        if site.short in DECORATORS:
            convert_function(m, site)
        elif in_op_lists(site):
            convert_list_edit(m, site)
        elif site.short in REGISTRATIONS:
            convert_registration(m, site)
        else:
            convert_region(m, site)


def regions(m: Migration) -> None:
    """Take the autocast regions out again that lie where casts are disabled."""
    keep_regions_out(m)
