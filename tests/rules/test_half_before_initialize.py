"""A model that is made half before `initialize` is given it: O0 makes it float32 again, every other level refuses it."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import torch
from apex import amp

def train(args, model, optimizer, loader):
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

def main(args, loader):
    model = torch.nn.Linear(2, 2)
    if args.fp16:
        model.half()
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if WHERE:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    train(args, model, optimizer, loader)

if __name__ == "__main__":
    main(parse(), batches())
"""


@pytest.mark.parametrize(("where", "told"), [("args.fp16", False), ("args.fp16 and args.train", True)])
def test_only_a_run_that_does_not_come_by_initialize_ran_in_half(where: str, told: bool) -> None:
    result = rewrite(PROGRAM.replace("WHERE", where))
    assert result.after is not None
    assert ("AMP531" in {f.code for f in result.findings}) is told
