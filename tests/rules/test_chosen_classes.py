"""A class that a condition chooses is made by its call, and not run."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

MODELS = """
    import torch


    class Deep(torch.nn.Module):
        def __init__(self, size):
            super().__init__()
            self.layer = torch.nn.Linear(size, 2)

        def forward(self, x):
            return self.layer(x)


    class Flat(Deep):
        pass


    def decoder(size, deep, kinds=(Deep, Flat)):
        if size > 100:
            model = Deep(size)
            return model
        {choice}
        return model({given})

"""
TRAIN = """
    import torch
    from apex import amp
    from models import decoder


    def main(batches, fp16):
        model = decoder(4, True).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in batches:
            loss = torch.nn.functional.mse_loss(model(x), y)
            if fp16:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()
        print(decoder(4, False))


    main([(torch.ones(3, 4).cuda(), torch.ones(3, 2).cuda())], True)
"""


def regions(choice: str, given: str = "size") -> bool:
    """Whether a region is around the call of the function that chooses, or in it; nothing else is said of it."""
    results = rewrite_files({"models.py": MODELS.format(choice=choice, given=given), "train.py": TRAIN})
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    after = results["train.py"].after or ""
    assert "autocast" in after
    around = "    with torch" in after[: after.index("print(")].splitlines()[-2]
    assert not {f.code for f in results["models.py"].findings} & {"AMP502", "AMP531"}
    return around or results["models.py"].after is not None


@pytest.mark.parametrize(
    "choice",
    [
        "model = Deep if deep else Flat",
        "model: type = Deep if deep else Flat",
        "model = Deep if deep else torch.nn.Flatten",
        "model = {True: Deep, False: Flat}[deep]",
    ],
)
def test_a_class_that_is_chosen_is_made_and_not_run(choice: str) -> None:
    assert not regions(choice)


def test_a_network_that_is_chosen_is_run() -> None:
    assert regions("model = Deep(size) if deep else Flat(size)", "torch.ones(3, size).cuda()")
