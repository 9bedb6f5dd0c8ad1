"""A class that a program asks for by its name: `getattr(import_module("losses.gan"), "Adversarial")(model, optimizer)`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, run_files

TRAIN = """
import json
from importlib import import_module

import torch
import losses.gan
from apex import amp


class Criterion(torch.nn.Module):
    def __init__(self, kind, critic, optimizer):
        super().__init__()
        if kind == "plain":
            self.function = torch.nn.L1Loss()
        elif kind == "gan":
            {made}
        else:
            found = import_module("losses." + kind)
            self.function = getattr(found, kind)()

    def forward(self, fake, real):
        return self.function(fake, real)


def main(kind):
    torch.manual_seed(0)
    model, critic = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD([*model.parameters(), *critic.parameters()], lr=0.1)
    [model, critic], optimizer = amp.initialize([model, critic], optimizer, opt_level="O1")
    criterion = Criterion(kind, critic, optimizer)
    for x in torch.ones(3, 2, 3):
        loss = criterion(model(x), x)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
    print(json.dumps(float(loss)))


main("gan")
"""
LOSS = """
import torch
from apex import amp


class Adversarial(torch.nn.Module):
    def __init__(self, critic, optimizer):
        super().__init__()
        self.critic, self.optimizer = critic, optimizer

    def forward(self, fake, real):
        self.optimizer.zero_grad()
        loss = self.critic(fake.detach()).mean() - self.critic(real).mean()
        with amp.scale_loss(loss, self.optimizer) as scaled:
            scaled.backward()
        self.optimizer.step()
        return -self.critic(fake).mean()
"""
HUBER = "import torch\n\n\nclass huber(torch.nn.SmoothL1Loss):\n    pass\n"


def files(made: str) -> dict[str, str]:
    made = made.replace("\n", "\n" + " " * 12)
    return {
        "train.py": TRAIN.replace("{made}", made),
        "losses/__init__.py": "",
        "losses/gan.py": LOSS,
        "losses/huber.py": HUBER,
    }


@pytest.mark.parametrize(
    "made",
    [
        'found = import_module("losses.gan")\nself.function = getattr(found, "Adversarial")(critic, optimizer)',
        'self.function = getattr(import_module("losses.gan"), "Adversarial")(critic, optimizer)',
        'self.function = getattr(losses.gan, "Adversarial")(critic, optimizer)',
        'make = getattr(losses.gan, "Adversarial")\nself.function = make(critic, optimizer)',
    ],
)
def test_it_is_handed_the_scaler_where_it_is_made(made: str, tmp_path: Path) -> None:
    texts = check_files(files(made))
    assert "(critic, optimizer, scaler)" in texts["train.py"].replace("critic, optimizer, scaler):", "")
    assert "getattr(found, kind)()" in texts["train.py"]  # another file's, by a name that is put together
    assert "amp.scale_loss" not in texts["losses/gan.py"]
    assert isinstance(run_files(tmp_path, texts, "train.py"), float)


def test_one_of_a_file_that_is_not_seen_is_not_taken_for_it() -> None:
    made = 'found = import_module("losses.wgan")\nself.function = getattr(found, "Adversarial")(critic, optimizer)'
    texts = check_files(files(made))
    assert 'getattr(found, "Adversarial")(critic, optimizer)' in texts["train.py"]
    assert "def __init__(self, critic, optimizer):" in texts["losses/gan.py"]
