"""What AMP220 says of calls that leave a switch out: what is left with Apex runs there as it did."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import found

PROGRAM = """
import argparse

import torch
from apex import amp


def forward_step(model, batch):
    return model(batch)


def training(args, loader):
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.LBFGS(model.parameters())
    {setup}
    for batch in loader:
        loss = forward_step(model, batch).sum()
        {backward}
        optimizer.step(lambda: loss)


def inference(args, loader):
    model = torch.nn.Linear(4, 2).cuda()
    model = amp.initialize(model, enabled=args.fp16, opt_level="O2")
    for batch in loader:
        print(forward_step(model, batch).argmax(-1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--test", action="store_true")
    args = parser.parse_args()
    if args.test:
        inference(args, [])
    else:
        training(args, [])
"""
APEX = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O2")'
SCALED = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n            scaled_loss.backward()"


@pytest.mark.parametrize(
    ("setup", "backward", "said"),
    [
        (APEX, SCALED, ": left out, as in train.py:16, what is left with Apex there runs as it did"),
        (
            "pass",
            "loss.backward()",
            ": left out, as in train.py:16, where no run comes that sets Apex up, what it runs is",
        ),
    ],
)
def test_what_stays_with_apex_is_not_float32(setup: str, backward: str, said: str) -> None:
    result = rewrite(PROGRAM.format(setup=setup, backward=backward))
    (told,) = found(result, "AMP220")
    assert f"forward_step takes use_amp{said}" in told.message
    assert ("float32" in told.message) is (setup == "pass")


APART = """
import torch
from apex import amp


def _evaluate(model, loader):
    return [model(x) for x in loader]


def main(args, loader):
    model = torch.nn.Linear(4, 2).cuda()
    if args.train:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in loader:
            optimizer.zero_grad()
            loss = model(x).sum()
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
        _evaluate(model, loader)
    if args.test and not args.train:
        _evaluate(model, loader)


if __name__ == "__main__":
    main(parse(), [])
"""


def test_where_no_set_up_comes_before_nothing_is_to_be_handed_over() -> None:
    (finding,) = found(rewrite(APART), "AMP220")
    said = ": left out, as in train.py:26, where no run comes that sets Apex up, what it runs is float32, as it was"
    assert finding.message.endswith(said)
    assert finding.review == "as-is"


BY_NAME = {
    "kinds.py": """
        import torch
        from apex import amp

        class Silent:
            def score(self, loader):
                return len(loader)

        class Plain:
            def __init__(self, model):
                self.model = model

            def score(self, loader):
                with torch.no_grad():
                    return [self.model(x) for x in loader]

        def fit(model, loader, mixed=False):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if mixed:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x in loader:
                loss = model(x).sum()
                if mixed:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
            Plain(model).score(loader)
        """,
    "run.py": """
        import sys

        import kinds

        CHOSEN = vars(kinds)[sys.argv[1]]
        if len(sys.argv) > 2:
            CHOSEN(load()).score([])
        """,
}


@pytest.mark.parametrize("known", [True, False])
def test_a_call_of_an_object_that_is_not_known_is_in_sight(known: bool) -> None:
    run = BY_NAME["run.py"].replace("score", "count") if known else BY_NAME["run.py"]
    results = rewrite_files(BY_NAME | {"run.py": run})
    (told,) = found(results["kinds.py"], "AMP220")
    assert told.message.startswith("score takes use_amp, which every call in sight hands over")
    assert ("but for run.py:7, where the object is not known" in told.message) is not known
