"""Paths within messages are those that the report shows."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

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
    if args.fp16 and args.train:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    train(args, model, optimizer, loader)

if __name__ == "__main__":
    main(parse(), batches())
"""


@pytest.mark.parametrize("path", ["train.py", "train_1.0.py", "src/app/train_0.6.2.py"])
def test_a_caller_is_named_by_its_path_whatever_dots_that_has(path: str) -> None:
    result = rewrite_files({path: PROGRAM})[path]
    (told,) = [f.message for f in result.findings if "called from" in f.message]
    assert f"called from {path}:23," in told
