"""What a call hands over as the switch, in a branch that is only come to by it: True, and not the condition once more."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import argparse

import torch
from apex import amp


def evaluate(model, features):
    for x in features:
        print(model(x).argmax(-1))


def train(model, features):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in features:
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        evaluate(model, features)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", default="")
    parser.add_argument("--half", action="store_true")
    args = parser.parse_args()
    model = torch.nn.Linear(4, 2).cuda()
    features = [torch.ones(4).cuda()]
    {branch}


if __name__ == "__main__":
    main()
"""
SET_UP = 'model = amp.initialize(model, opt_level="O1")'
OTHERWISE = """if args.load == "":
        train(model, features)
    else:
        SET_UP
        evaluate(model, features)"""
LEFT = """if args.load == "":
        train(model, features)
        return
    SET_UP
    evaluate(model, features)"""
HALF = """if args.load == "":
        train(model, features)
    else:
        if args.half:
            SET_UP
        evaluate(model, features)"""


@pytest.mark.parametrize(
    ("branch", "handed"),
    [(OTHERWISE, "use_amp=True"), (LEFT, "use_amp=True"), (HALF, "use_amp=args.half")],
)
def test_what_is_handed_over(branch: str, handed: str) -> None:
    after = rewrite(PROGRAM.format(branch=branch.replace("SET_UP", SET_UP))).after
    assert after is not None
    assert f"evaluate(model, features, {handed})\n\n\nif __name__" in after
