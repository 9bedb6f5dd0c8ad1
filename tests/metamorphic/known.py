"""What is known to be wrong, by transformation and fixture (`*`: all), with the cause. The aim is that this is empty."""

from __future__ import annotations

from tests.metamorphic.judging import Outcome

_UNNAMED = (
    "what a call gives whose function is the result of another one (`partial(train, model)(criterion)`) or an entry of a "
    "literal table is not followed: BCELoss stays in a region that refuses it, and AMP535 only says that it is out of sight"
)

KNOWN_WRONG: dict[tuple[str, str], str] = {
    ("function in a table", "bce_island"): _UNNAMED,
    ("partial", "bce_island"): _UNNAMED,
}


def cause(outcome: Outcome) -> str:
    """Why an outcome is wrong, if that is known."""
    return KNOWN_WRONG.get((outcome.transform, outcome.fixture)) or KNOWN_WRONG.get((outcome.transform, "*"), "")
