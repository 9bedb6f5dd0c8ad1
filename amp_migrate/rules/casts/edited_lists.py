"""Edits of Apex's op lists: `amp.lists.functional_overrides.FP32_FUNCS.append("grid_sample")`.

Apex patches torch by these lists when it is initialized under O1, so an edit before that registers or unregisters a
function for the whole process.

Apex: https://nvidia.github.io/apex/amp.html#opt-levels
Native: https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

from amp_migrate.findings import Code, Example
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.sites.casts import NATIVE, list_edit
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.casts.functions import Cast
from amp_migrate.rules.casts.registrations import Said, convert_torch, finish, literal_names
from amp_migrate.rules.migration import Migration

OPS = "https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior"

CODES = (
    Code(
        "AMP519",
        "Edits of Apex's op lists go, or become casts at the calls",
        "amp.lists",
        apex="Reads the lists when O1 is initialized: an edit before that decides in which dtype a function of torch runs.",
        native="The lists of autocast cannot be edited: nothing where they say the same, else casts at each call in sight.",
        why="softmax, which some programs moved to the half list for speed, runs in float32 under autocast: more exact, "
        "and its result takes twice the memory until the next matrix multiplication.",
        links=("https://nvidia.github.io/apex/amp.html", OPS),
        examples=(
            Example(
                'amp.lists.functional_overrides.FP32_FUNCS.append("sigmoid")\n\n\n'
                "def predict(x):\n    return torch.nn.functional.sigmoid(x)\n",
                "def predict(x):\n    return torch.nn.functional.sigmoid(x.float())\n",
            ),
        ),
    ),
)


def convert_list_edit(m: Migration, site: Site) -> None:
    """Take one edit of a list out, after casting what it would have cast.

    Raises Blocked where the functions are not literals, or autocast would run one in lower precision that Apex did not.
    """
    edit = list_edit(site)
    if edit is None:
        message = "O1 patches torch by these lists, and autocast has none to edit: cast the inputs where it is called"
        raise Blocked.at(site, "AMP516", message)
    base, to = edit
    cast = Cast(to, site)
    value = site.argument(0, "object")
    names = literal_names(site.module, value) if value is not None else []
    if not names or value is None or site.call is not getattr(site.stmt, "value", None):
        raise cast.refuse("which functions this edit of Apex's op lists names is only known at run time")
    convert = _removed if site.short == "remove" else convert_torch
    finish(m, site, value, "AMP519", [convert(m, cast, base, name) for name in names])


def _removed(m: Migration, cast: Cast, base: str, name: str) -> Said:
    """What autocast does with a function that Apex was told not to cast."""
    full = f"{base}.{name}"
    if name in NATIVE.floats:
        return Said(f"{full} runs in float32 under autocast, which is at least as exact as what the edit asked for")
    if name in NATIVE.halves:
        raise cast.refuse(
            f"autocast runs {full} in lower precision and cannot be told otherwise: call it on float32 inputs in a region "
            "without autocast"
        )
    return Said(f"autocast leaves {full} in the dtype of its inputs, as the edit asked for")
