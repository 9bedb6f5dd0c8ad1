"""What a check says: one place of the program that the migration gets wrong, changes, or that could not be followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["refuse", "review", "look"]


@dataclass(frozen=True, order=True)
class Doubt:
    """One thing that a check found.

    `line` counts from 1 in the file as it was before the migration. `verdict` says what becomes of it: "refuse" leaves
    the migration unit that wrote there with Apex; "review" and "look" are told beside the migration, which stands.
    `told_by` are codes of the rules that say the same: the doubt is dropped where one of them speaks in this file
    between the lines `near` (both ends included; the line itself where it is None). `remedy`: the file and the line of what
    a rule may write otherwise, for the doubt to go; of a half value, `given` is where a forward gives it as a whole, and `by`
    the code of the rule that casts it where it is used. `lost`: the line and the column of each forward that has no region
    now, in the file as it was. `alike`: what of the message is said of other places as well. `because`: what is seen, to be
    said of what the rule writes.
    """

    path: str
    line: int
    code: str
    construct: str
    message: str
    verdict: Verdict = "refuse"
    told_by: tuple[str, ...] = ()
    near: tuple[int, int] | None = None
    remedy: tuple[str, int] | None = None
    alike: str = ""
    given: tuple[str, int] | None = None
    by: str = ""
    lost: tuple[tuple[int, int], ...] = ()
    because: str = ""

    @property
    def refusal(self) -> str:
        """What is said where the doubt leaves something with Apex: the message tells of a migration that nobody sees."""
        if self.message.startswith("left with Apex"):
            return self.message
        return f"left with Apex, since its migration would be wrong: {self.message}"
