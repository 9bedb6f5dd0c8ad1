"""The generator that takes the place of `amp.master_params` gives its variables no name that the statement has already."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import APEX_LOOP, apex


@pytest.mark.parametrize(
    ("limit", "each", "group"),
    [
        ("1.0", "p", "group"),
        ('p["clip"]', "param", "group"),
        ("p.clip or param", "parameter", "group"),
        ("group.clip", "p", "param_group"),
    ],
)
def test_no_name_of_the_statement_is_taken(limit: str, each: str, group: str) -> None:
    loop = APEX_LOOP.replace(
        "optimizer.step()", f"torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), {limit})\noptimizer.step()"
    )
    result = rewrite(apex(loop, model="model = build()\noptimizer = torch.optim.SGD(parts(model), lr=0.1)"))
    assert result.after is not None
    assert (
        f'clip_grad_norm_(({each} for {group} in optimizer.param_groups for {each} in {group}["params"]), {limit})'
        in result.after
    )
