"""Distributions of torch: what they are made with, and what their methods compute from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_migrate.audit.halves.tensors import UNKNOWN, Value, keyed

# What they take first; the first of it is the mean as well.
PARAMETERS = {
    "Normal": ("loc", "scale"),
    "Laplace": ("loc", "scale"),
    "Cauchy": ("loc", "scale"),
    "Gumbel": ("loc", "scale"),
}
WRAPPING = frozenset({"Independent"})  # what has the parameters of another
# What O1 computed in float32: by powers, logarithms and sums.
FLOATS = frozenset({"log_prob", "entropy"})
DRAWING = frozenset({"sample", "rsample"})


def made(last: str, given: Sequence[Value], named: Mapping[str | None, Value]) -> Value | None:
    """A distribution with its parameters; None for what is none of these."""
    if last in WRAPPING:
        return given[0] if given and given[0].keys else None
    names = PARAMETERS.get(last)
    if names is None:
        return None
    found = dict(zip(names, given, strict=False)) | {n: named[n] for n in names if n in named}
    if not any(v.followed for v in found.values()):
        return None
    return keyed({**{n: found.get(n, UNKNOWN) for n in names}, "mean": found.get("loc", UNKNOWN)})


def is_one(value: Value) -> bool:
    """Whether a value is a distribution."""
    return value.keys == ("loc", "scale", "mean")
