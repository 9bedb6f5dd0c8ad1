"""Backwards in branches that exclude each other are not several of one step: AMP207."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

SOURCE = """
    import torch
    from apex import amp
    from project import boundary, loader, make, sync

    model, optimizer = make()
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


    def backward(loss):
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()


    for i, (x, y) in enumerate(loader):
        loss = model(x).sum()
        if sync(i):
            backward(loss)
        {other}
            backward(loss)
        if {boundary}:
            optimizer.step()
            optimizer.zero_grad()
    """


@pytest.mark.parametrize(
    ("other", "boundary", "wanted"),
    [
        ("else:", "i % 4 == 3", "several backwards per step"),
        ("else:", "True", None),
        ("if y is not None:", "i % 4 == 3", "several backwards per step (lines 17 and 19, those of them that run)"),
        ("if y is not None:", "True", "several backwards per update"),
    ],
)
def test_only_lines_that_one_turn_may_come_by_are_named(other: str, boundary: str, wanted: str | None) -> None:
    result = rewrite(SOURCE.format(other=other, boundary=boundary))
    told = [f.message.partition(":")[0] for f in result.findings if f.code == "AMP207"]
    assert told == ([wanted] if wanted is not None else [])
