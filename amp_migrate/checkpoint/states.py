"""From Apex's loss scaler state to GradScaler's, wherever it lies inside a checkpoint.

Apex: `amp.state_dict()` is `{"loss_scaler0": {"loss_scale": float, "unskipped": int}, ...}`
(https://nvidia.github.io/apex/amp.html#checkpointing).
Native: https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.state_dict
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

GROWTH_FACTOR = 2.0
BACKOFF_FACTOR = 0.5
GROWTH_INTERVAL = 2000  # Apex's `scale_window`, which its state does not hold
DEFAULT_TO_KEY = "scaler"

_SCALER_NAME = re.compile(r"loss_scaler(\d+)")
_NATIVE_KEYS = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}


class CheckpointError(Exception):
    """The checkpoint cannot be converted; the message says why and what to do."""


class NothingFound(CheckpointError):
    """There is no Apex state in the checkpoint, or none under the key."""


@dataclass(frozen=True)
class Conversion:
    """One Apex loss scaler that was converted: where it was, where it is, and the two states."""

    source: str
    target: str
    apex: dict[str, Any]
    native: dict[str, Any]
    static: bool


def is_apex_state(value: object) -> bool:
    """Whether `value` is what `amp.state_dict()` returns: nothing but numbered loss scalers."""
    return (
        isinstance(value, MutableMapping)
        and bool(value)
        and all(isinstance(key, str) and _SCALER_NAME.fullmatch(key) for key in value)
        and all(isinstance(state, MutableMapping) and "loss_scale" in state for state in value.values())
    )


def is_native_state(value: object) -> bool:
    """Whether `value` is what an enabled `GradScaler.state_dict()` returns."""
    return isinstance(value, MutableMapping) and set(value) >= _NATIVE_KEYS


def native_state(
    apex: MutableMapping[str, Any], name: str, *, growth_interval: int = GROWTH_INTERVAL, static: bool = False
) -> tuple[dict[str, Any], bool]:
    """The GradScaler state that continues one Apex loss scaler, and whether its scale is static.

    Apex's state does not say whether the scale was static, but a dynamic scaler never counts `growth_interval`
    clean passes without starting again from zero: a larger count proves a static scale. Static scales get
    factors of 1.0, which `GradScaler.load_state_dict` accepts and which hold the scale where it is.

    Raises CheckpointError for a scale that is no positive finite number or a count that is no whole number.
    """
    scale, unskipped = _number(apex.get("loss_scale")), _number(apex.get("unskipped", 0))
    if scale is None or not math.isfinite(scale) or scale <= 0:
        raise CheckpointError(f"{name}: loss_scale is {apex.get('loss_scale')!r}; a positive number was expected.")
    if unskipped is None or not math.isfinite(unskipped) or unskipped < 0 or unskipped != int(unskipped):
        raise CheckpointError(f"{name}: unskipped is {apex.get('unskipped')!r}; a whole number was expected.")
    static = static or unskipped >= growth_interval
    return {
        "scale": scale,
        "growth_factor": 1.0 if static else GROWTH_FACTOR,
        "backoff_factor": 1.0 if static else BACKOFF_FACTOR,
        "growth_interval": growth_interval,
        "_growth_tracker": 0 if static else int(unskipped),
    }, static


def convert(
    checkpoint: Any,
    *,
    key: str | None = None,
    to_key: str = DEFAULT_TO_KEY,
    growth_interval: int = GROWTH_INTERVAL,
    static: bool = False,
    as_list: bool = False,
) -> tuple[Any, list[Conversion]]:
    """Replace every Apex state inside `checkpoint` (containers are edited in place, nothing else is touched).

    `loss_scaler0` moves to `to_key`, which takes the place of the Apex key; `loss_scaler1` to `to_key + "1"`, and so
    on, so that code with one scaler for all losses finds it under the plain name; `as_list`, `to_key` holds a list of all
    instead, for code with a scaler for each loss. With `key`, only states under that
    key are converted. A file that is nothing but an Apex state becomes a bare GradScaler state.

    Raises CheckpointError when there is nothing to convert, or `to_key` is taken.
    """
    done: list[Conversion] = []

    def scalers(state: MutableMapping[str, Any], path: str, base: str, name: str) -> dict[str, dict[str, Any]]:
        converted = {}
        for scaler in sorted(state, key=lambda n: int(n.removeprefix("loss_scaler"))):
            index = int(scaler.removeprefix("loss_scaler"))
            target = f"{name}[{index}]" if as_list else name if index == 0 else f"{name}{index}"
            native, held = native_state(
                state[scaler], join(path, scaler), growth_interval=growth_interval, static=static
            )
            converted[target] = native
            done.append(Conversion(join(path, scaler), join(base, target), dict(state[scaler]), native, held))
        return converted

    if is_apex_state(checkpoint) and key is None:
        states = scalers(checkpoint, "", "", to_key)
        if as_list:
            return list(states.values()), done
        return (states[to_key] if list(states) == [to_key] else states), done

    places = [p for p in _places(checkpoint) if key is None or p.key == key]
    if not places:
        raise NothingFound(_nothing_found(checkpoint, key))
    for place in places:
        replacement = scalers(place.state, place.path, place.parent_path, to_key)
        if isinstance(place.parent, MutableMapping):
            _replace_key(place, {to_key: list(replacement.values())} if as_list else replacement)
        elif as_list:
            raise CheckpointError(f"{place.path} is no entry of a mapping, so no list can take its place.")
        else:  # an element of a list or tuple, an attribute: the state itself changes its content
            native = replacement[to_key] if list(replacement) == [to_key] else replacement
            place.state.clear()
            place.state.update(native)
    return checkpoint, done


def scaler_states(content: Any) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The Apex states and the GradScaler states inside a checkpoint, by path. Reads only."""
    apex = {place.path: {k: dict(v) for k, v in place.state.items()} for place in _places(content)}
    native: dict[str, dict[str, Any]] = {}
    stack: list[tuple[Any, str]] = [(content, "")]
    seen: set[int] = set()
    while stack:
        value, path = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if is_native_state(value):
            native[path] = dict(value)
        else:
            stack.extend((inner, join(path, key)) for key, inner in items(value))
    if is_apex_state(content):
        apex[""] = {k: dict(v) for k, v in content.items()}
    return apex, native


@dataclass(frozen=True)
class _Place:
    parent: Any
    key: Any
    parent_path: str
    path: str
    state: MutableMapping[str, Any]


def _places(root: Any) -> list[_Place]:
    found: list[_Place] = []
    seen: set[int] = set()
    stack: list[tuple[Any, str]] = [(root, "")]
    while stack:  # no recursion: a checkpoint may be nested as deep as its author likes
        parent, path = stack.pop()
        if id(parent) in seen:
            continue
        seen.add(id(parent))
        for key, value in items(parent):
            here = join(path, key)
            if is_apex_state(value):
                found.append(_Place(parent, key, path, here, value))
            else:
                stack.append((value, here))
    return sorted(found, key=lambda place: place.path)


def items(container: Any) -> Iterator[tuple[Any, Any]]:
    """What a container of a checkpoint holds, by key."""
    if isinstance(container, MutableMapping):
        yield from list(container.items())
    elif isinstance(container, (list, tuple)):
        yield from enumerate(container)
    elif getattr(container, "__dict__", None) and not hasattr(container, "untyped_storage"):
        yield from list(vars(container).items())  # a namespace or a trainer's own state object


def _replace_key(place: _Place, replacement: dict[str, Any]) -> None:
    """Put the new keys where the old one stood, keeping the mapping object and the order of the others."""
    assert isinstance(place.parent, MutableMapping)
    taken = [name for name in replacement if name in place.parent and name != place.key]
    if taken:
        raise CheckpointError(
            f"{join(place.parent_path, taken[0])} is taken, so the converted state of {place.path} has no place; "
            "name another with --to-key."
        )
    items = list(place.parent.items())
    place.parent.clear()
    for key, value in items:
        if key == place.key:
            place.parent.update(replacement)
        else:
            place.parent[key] = value


def _nothing_found(checkpoint: Any, key: str | None) -> str:
    keys = ", ".join(repr(k) for k in list(checkpoint)[:12]) if isinstance(checkpoint, MutableMapping) else ""
    described = f"its keys are {keys}" if keys else f"it holds a {type(checkpoint).__name__}"
    others = _places(checkpoint)
    if key is not None and others:
        return f"no Apex state under the key {key!r}; there is one at {others[0].path}."
    if is_native_state(checkpoint) or any(is_native_state(value) for _, value in items(checkpoint)):
        return f"no Apex state in this checkpoint: it holds a GradScaler state already ({described})."
    under = f" under the key {key!r}" if key is not None else ""
    return f"no Apex state in this checkpoint{under} ({described}): amp.state_dict() was not saved in it."


def _number(value: Any) -> float | None:
    if isinstance(value, (bool, str)) or value is None:
        return None
    try:
        return float(value)  # also a zero-dimensional tensor
    except (TypeError, ValueError, RuntimeError):
        return None


def join(path: str, key: object) -> str:
    """The path of an entry."""
    return f"{path}.{key}" if path else str(key)
