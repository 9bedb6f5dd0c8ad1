"""A model that is made half before `initialize` is given it: O0 makes it float32 again, every other level refuses it."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import HALVED


@pytest.mark.parametrize(("where", "told"), [("args.fp16", False), ("args.fp16 and args.train", True)])
def test_only_a_run_that_does_not_come_by_initialize_ran_in_half(where: str, told: bool) -> None:
    result = rewrite(HALVED.replace("WHERE", where))
    assert result.after is not None
    assert ("AMP531" in {f.code for f in result.findings}) is told
