"""What is known to be wrong, by transformation and fixture (`*`: all), with the cause. The aim is that this is empty."""

from __future__ import annotations

from tests.metamorphic.judging import Outcome

_ENSEMBLE = "the scale is updated after the loop over the optimizers, not in the loop over batches inside it"
_NUMBER = "a name that is given 1 or 0 is taken for a bool, which autocast wants"
_COMPREHENSION = "unscale_ before a comprehension that steps names its variable, which does not exist there"
_VALUE = "a backward kept as a value is no scaled backward to the step after it, which is left as it is"
_HOLDER = "an object that takes the scaler in the statement that makes it is asked for its scaler"

KNOWN_WRONG: dict[tuple[str, str], str] = {
    ("ensemble around the loop", "*"): _ENSEMBLE,
    ("flag as a number", "*"): _NUMBER,
    ("comprehension", "accumulation_clip"): _COMPREHENSION,
    ("comprehension", "amp_argument"): _COMPREHENSION,
    ("backward as a value", "gan_one_scaler"): _VALUE,
    ("backward as a value", "trainer_class"): _VALUE,
    ("step in a method", "amp_argument"): _HOLDER,
}


def cause(outcome: Outcome) -> str:
    """Why an outcome is wrong, if that is known."""
    return KNOWN_WRONG.get((outcome.transform, outcome.fixture)) or KNOWN_WRONG.get((outcome.transform, "*"), "")
