"""What is known to be wrong, by transformation and fixture (`*`: all), with the cause. The aim is that this is empty."""

from __future__ import annotations

from tests.metamorphic.judging import Outcome

_ENSEMBLE = "the scale is updated after the loop over the optimizers, not in the loop over batches inside it"
_STARRED = "models, optimizers and the scaler are not followed through `*args, **kwargs` that are handed on"

KNOWN_WRONG: dict[tuple[str, str], str] = {
    ("ensemble around the loop", "*"): _ENSEMBLE,
    ("args and kwargs handed on", "*"): _STARRED,
    ("kwargs handed on", "*"): _STARRED,
}


def cause(outcome: Outcome) -> str:
    """Why an outcome is wrong, if that is known."""
    return KNOWN_WRONG.get((outcome.transform, outcome.fixture)) or KNOWN_WRONG.get((outcome.transform, "*"), "")
