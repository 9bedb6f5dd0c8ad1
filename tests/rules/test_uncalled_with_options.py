"""A function that nothing calls and that takes the options asks these for the switch: it needs no parameter for it (AMP220)."""

from __future__ import annotations

import re

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found

PROGRAM = """
import argparse

import torch
from apex import amp
from data import batches


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--phrase")
    return parser


def save_sample(model, PARAMETER):
    with torch.no_grad():
        READ
        print(model(torch.ones(1, 4).cuda()).shape)


def main():
    args = parse().parse_args()
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in batches(args.folder):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
    # save_sample(model, args)


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("parameter", "read", "switch"),
    [
        ("args", "print(args.phrase)", "args.fp16"),  # an option
        ("args", "print(args.folder)", "args.fp16"),  # what `main` reads of it as well
        ("args", "print(args.other)", "use_amp"),  # of which nothing says that it is the same
        ("args", "print(args)", "use_amp"),
        ("options", "print(options.phrase)", "use_amp"),
    ],
)
def test_the_options_that_it_takes_are_asked(parameter: str, read: str, switch: str) -> None:
    result = rewrite(PROGRAM.replace("PARAMETER", parameter).replace("READ", read))
    assert result.after is not None
    assert re.findall(r"enabled=([\w.]+)\)[:,]", result.after)[0] == switch
    assert bool(found(result, "AMP220")) is (switch == "use_amp")
