"""What is known to be wrong, by transformation and fixture (`*`: all), with the cause. The aim is that this is empty."""

from __future__ import annotations

from tests.metamorphic.judging import Outcome

_ENSEMBLE = "the scale is updated after the loop over the optimizers, not in the loop over batches inside it"
_STARRED = "models, optimizers and the scaler are not followed through `*args, **kwargs` that are handed on"
_BETWEEN = (
    "a helper that steps updates too: with one scaler for two optimizers the scale changes between their backwards"
)

KNOWN_WRONG: dict[tuple[str, str], str] = {
    ("ensemble around the loop", "*"): _ENSEMBLE,
    ("args and kwargs handed on", "*"): _STARRED,
    ("kwargs handed on", "*"): _STARRED,
    ("step in a helper", "gan_one_scaler"): _BETWEEN,
    ("step in a module", "gan_one_scaler"): _BETWEEN,
    ("step in a callable object", "gan_one_scaler"): _BETWEEN,
    ("step of a static method", "gan_one_scaler"): _BETWEEN,
    ("loop over a literal", "gan_one_scaler"): _BETWEEN,
}


def cause(outcome: Outcome) -> str:
    """Why an outcome is wrong, if that is known."""
    return KNOWN_WRONG.get((outcome.transform, outcome.fixture)) or KNOWN_WRONG.get((outcome.transform, "*"), "")
