"""What is known to be wrong, by transformation and fixture (`*`: all), with the cause. The aim is that this is empty."""

from __future__ import annotations

from tests.metamorphic.judging import Outcome

_STARRED = (
    "what a model is given through `*args, **kwargs` that are handed on is not followed: evaluation loses its region, "
    "which AMP531 says"
)

_GLOBAL = (
    "the script initializes in its guarded main, at module level, where a switch would be a global that an importer lacks: "
    "the region stays on for the other script, which AMP531 says"
)

KNOWN_WRONG: dict[tuple[str, str], str] = {
    ("args and kwargs handed on", "run_glue"): _STARRED,
    ("kwargs handed on", "run_glue"): _STARRED,
    ("evaluation added", "o2_float_outputs"): _GLOBAL,
}


def cause(outcome: Outcome) -> str:
    """Why an outcome is wrong, if that is known."""
    return KNOWN_WRONG.get((outcome.transform, outcome.fixture)) or KNOWN_WRONG.get((outcome.transform, "*"), "")
