"""A set-up that no run comes by with Apex on is told of: what the migration writes for it does nothing in any run.

`assert not args.fp16` above `if args.fp16: model = amp.initialize(model)`: compared over all flags, on every way to the call.
Cannot prove it of ways out of sight, nor of what a test asks that is no flag.
"""

from __future__ import annotations

from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP138",
        title="a set-up of Apex that no run comes by",
        construct="amp.initialize",
        apex="Was never reached with mixed precision on: a check above it ends such a run.",
        native="What takes its place is off in every run, too. Take it out with what asks for the switch, or take out the check.",
        why="A region, a scaler and a key of a checkpoint that can never be on are read by everybody who comes after.",
    ),
)


def check(review: Review) -> Iterable[Doubt]:
    for setup in mixed(review).never:
        message = (
            "a check above ends every run with mixed precision on before it comes here: what takes the place of this is off in "
            "every run, and may go with its switch"
        )
        yield Doubt(setup.module.path, setup.call.lineno, "AMP138", setup.name, message, "look")
