"""From FusedAdam's optimizer state to the one that torch's Adam and AdamW load, wherever it lies inside a checkpoint.

Apex's FusedAdam keeps one step count for each parameter group; torch's optimizers keep one for each parameter, and raise
KeyError: 'step' without it (https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from amp_migrate.checkpoint.states import items, join

_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class StepCounts:
    """One optimizer state that was converted: where it is, and the step count of each of its groups."""

    path: str
    steps: tuple[int, ...]


def is_fused_adam_state(value: object) -> bool:
    """Whether `value` is what `FusedAdam.state_dict()` returns after a step."""
    if not isinstance(value, MutableMapping) or not {"state", "param_groups"} <= set(value):
        return False
    groups, states = value["param_groups"], value["state"]
    if not isinstance(groups, list) or not isinstance(states, MutableMapping):
        return False
    return any(
        isinstance(g, MutableMapping) and "step" in g and "bias_correction" in g and _members(g, states) for g in groups
    )


def convert_optimizers(checkpoint: Any) -> list[StepCounts]:
    """Move the step counts of every FusedAdam state inside `checkpoint` to its parameters, in place.

    The count becomes a float32 tensor for each parameter, as torch's Adam keeps it. Moments and settings stay.
    """
    import torch

    done: list[StepCounts] = []
    stack: list[tuple[Any, str]] = [(checkpoint, "")]
    seen: set[int] = set()
    while stack:
        value, path = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if not is_fused_adam_state(value):
            stack.extend((inner, join(path, key)) for key, inner in items(value))
            continue
        steps: list[int] = []
        for group in value["param_groups"]:
            if not isinstance(group, MutableMapping) or "step" not in group or "bias_correction" not in group:
                continue
            step = int(group.pop("step"))
            for state in _members(group, value["state"]):
                state["step"] = torch.tensor(float(step), dtype=torch.float32)
            steps.append(step)
        done.append(StepCounts(path, tuple(steps)))
    return sorted(done, key=lambda d: d.path)


def _members(group: MutableMapping[str, Any], states: MutableMapping[Any, Any]) -> list[MutableMapping[str, Any]]:
    """The states of a group's parameters that hold moments and no count of their own."""
    found = [states[p] for p in group.get("params", ()) if p in states]
    return [s for s in found if isinstance(s, MutableMapping) and all(m in s for m in _MOMENTS) and "step" not in s]
