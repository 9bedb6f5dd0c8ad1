"""What is known to be wrong, by transformation and fixture (`*`: all), with the cause. The aim is that this is empty."""

from __future__ import annotations

from tests.metamorphic.judging import Outcome

_STARRED = (
    "what a model is given through `*args, **kwargs` that are handed on is not followed: evaluation loses its region, "
    "which AMP531 says"
)

_ONLY_OF_THE_SCRIPT = (
    "the opt level is known to a name that only a run of the script assigns: where another script evaluates too, evaluation "
    "has no region, which AMP502 says"
)

KNOWN_WRONG: dict[tuple[str, str], str] = {
    ("args and kwargs handed on", "run_glue"): _STARRED,
    ("kwargs handed on", "run_glue"): _STARRED,
    ("evaluation added", "imagenet"): _ONLY_OF_THE_SCRIPT,
}


def cause(outcome: Outcome) -> str:
    """Why an outcome is wrong, if that is known."""
    return KNOWN_WRONG.get((outcome.transform, outcome.fixture)) or KNOWN_WRONG.get((outcome.transform, "*"), "")
