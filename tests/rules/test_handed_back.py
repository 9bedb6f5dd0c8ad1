"""Helpers that move models and data alike: what a call of one passes comes back to that call alone."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files

TRAIN = """
    import torch
    from torch import nn
    from apex import amp
    from moving import move
    from pictures import brightest, load

    class Runner:
        def __init__(self, runs, use):
            self.runs = runs
            self.model = move(nn.Linear(8, 2))
            optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.model, self.optimizer = amp.initialize(self.model, optimizer, opt_level="O1")
            runs(self)

        def train(self):
            for x, y in load(4):
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(x), y)
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()

    Runner(print, True).train()
    print(brightest(3))
    """
PICTURES = """
    import torch
    from moving import move

    def load(number):
        for _ in range(number):
            pictures = torch.rand(4, 8)
            yield move(pictures), move(torch.zeros(4, dtype=torch.long))

    def brightest(number):
        pictures = move(torch.rand(number, 8))
        return ASKED
    """
BODIES = [
    "if torch.cuda.is_available():\n            return things.cuda()\n        return things",
    "if isinstance(things, list):\n            return [t.to('cpu') for t in things]\n        return things.to('cpu')",
    "return things.to('cpu').float() if isinstance(things, torch.Tensor) else things.eval()",
    "moved = things.to('cpu')\n        return moved",
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("asked", ["pictures.max()", "pictures.mean(dim=1).tolist()", "pictures.scaled(2)"])
def test_data_that_a_helper_moves_is_no_model(body: str, asked: str) -> None:
    if body == BODIES[-1] and "scaled" in asked:
        return  # a variable between: what comes back cannot be told apart
    moving = f"""
    import torch

    def move(things):
        {body}
    """
    texts = check_files({"train.py": TRAIN, "pictures.py": PICTURES.replace("ASKED", asked), "moving.py": moving})
    assert "autocast" not in texts["pictures.py"]
    assert texts["train.py"].count("torch.autocast(") == 1


def test_a_model_that_a_helper_moves_is_the_model() -> None:
    moving = """
    def move(things):
        if isinstance(things, list):
            return [t.cuda() for t in things]
        return things.cuda()
    """
    train = """
    import torch
    from torch import nn
    from apex import amp
    from moving import move

    def main(loader):
        model, criterion = move([nn.Linear(8, 2), nn.CrossEntropyLoss()])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        net = move(model)
        for x, y in loader:
            loss = criterion(net(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()

    def measure(loader):
        for x in loader:
            print(x)
    """
    texts = check_files({"train.py": train, "moving.py": moving})
    assert (
        'with torch.autocast("cuda", dtype=torch.float16):\n            loss = criterion(net(x), y)'
        in texts["train.py"]
    )
