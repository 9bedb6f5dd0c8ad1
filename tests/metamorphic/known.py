"""What is known to be wrong, by transformation and fixture (`*`: all), with the cause. The aim is that this is empty."""

from __future__ import annotations

from tests.metamorphic.judging import Outcome

KNOWN_WRONG: dict[tuple[str, str], str] = {}


def cause(outcome: Outcome) -> str:
    """Why an outcome is wrong, if that is known."""
    return KNOWN_WRONG.get((outcome.transform, outcome.fixture)) or KNOWN_WRONG.get((outcome.transform, "*"), "")
