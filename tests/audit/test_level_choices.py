"""The opt levels that a command line lets through, however the choices are written: the others are asked for by no run."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
import argparse
import torch
from apex import amp

LEVELS = ("O1", "O2")


def main(args, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    for x in loader:
        print(model(x))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--level", default="O2"CHOICES)
    main(parser.parse_args(), torch.nn.Linear(2, 2), [])
"""
AFTER = (
    BEFORE.replace("from apex import amp\n", "")
    .replace("    model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)\n", "")
    .replace(
        "        print(model(x))",
        '        with torch.autocast("cuda", dtype=torch.float16):\n            print(model(x))',
    )
)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ("", True),
        (', choices=["O0", "O1"]', True),
        (', choices={"O0", "O1"}', True),
        (", choices=levels()", True),
        (', choices=["O1", "O2"]', False),
        (', choices={"O1", "O2"}', False),
        (", choices=LEVELS", False),
        (", choices=list(LEVELS)", False),
        (', choices="O1 O2".split()', False),
        (', choices={"O1": 1, "O2": 2}', False),
        (', choices={"O1": 1, "O2": 2}.keys()', False),
    ],
)
def test_a_level_that_cannot_be_given(choices: str, said: bool) -> None:
    found = doubts(BEFORE.replace("CHOICES", choices), AFTER.replace("CHOICES", choices))
    assert any(d.code == "AMP531" and "'O0'" in d.message for d in found) is said
