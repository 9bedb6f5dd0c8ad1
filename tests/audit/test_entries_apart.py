"""What one entry of a program comes by says nothing of another's: its optimizers have no gradients there."""

from __future__ import annotations

import pytest

from amp_migrate.audit.doubts import Doubt
from tests.audit.helpers import doubts_of, program

TRAINER = """
import torch
{imports}

class Trainer:
    def __init__(self, model, estimator, args):
        self.model, self.estimator, self.args = model, estimator, args

    def train(self, loader=None):
        model = self.model
        optimizer = torch.optim.AdamW([{{"params": [p for n, p in self.model.named_parameters()]}}], lr=self.args.lr)
        {setup}
        for x, y in loader:
            self._training_step(model, x, y, optimizer)
            {clip}
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.args.norm)
            {step}
            model.zero_grad()

    def _training_step(self, model, x, y, optimizer):
        model.train()
        outputs = model(x)
        loss = outputs[0]
        {backward}
        {extra}
"""
BEFORE = {
    "imports": "from apex import amp",
    "setup": 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")',
    "clip": "pass",
    "step": "optimizer.step()",
    "backward": "with amp.scale_loss(loss, optimizer) as scaled_loss:\n            scaled_loss.backward()",
}
AFTER = {
    "imports": "",
    "setup": 'self.scaler = torch.amp.GradScaler("cuda")',
    "clip": "self.scaler.unscale_(optimizer)",
    "step": "self.scaler.step(optimizer)\n            self.scaler.update()",
    "backward": "self.scaler.scale(loss).backward()",
}
MAIN = """
import torch
from trainer import Trainer
from transformers import AutoModel

class Estimator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=0.1)

    def fit(self, features):
        loss = self.body(features.detach()).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

def main(args, loader):
    model = AutoModel.from_pretrained(args.name)
    trainer = Trainer(model, Estimator(), args)
    trainer.train(loader)

if __name__ == "__main__":
    main(parse(), batches())
"""
MIXED = "unscale_ would divide by the scale what a backward without scale gave"


def said(extra: str, beside: dict[str, str] | None = None) -> list[Doubt]:
    """What is said of the order of the step; `beside` are other files of the project, which do not change."""
    before = program(TRAINER.format(**BEFORE, extra=extra))
    after = program(TRAINER.format(**AFTER, extra=extra))
    files = {"trainer.py": before, "main.py": MAIN, **(beside or {})}
    return [d for d in doubts_of(files, {"trainer.py": after}) if d.code in ("AMP231", "AMP232")]


# Another trainer, with another optimizer, which main never comes by.
OTHER = {"other.py": TRAINER.format(**AFTER, extra="pass").replace("class Trainer", "class Other")}


@pytest.mark.parametrize("beside", [{}, OTHER])
@pytest.mark.parametrize("first", ["pass", "self.estimator.fit(outputs[1])"])
def test_a_plain_backward_through_the_model_is_found_beside_other_optimizers(
    beside: dict[str, str], first: str
) -> None:
    lower = f"{first}\n        lower = self.estimator(outputs[2])\n        lower.backward()"
    assert [(d.verdict, d.message) for d in said(lower, beside)] == [("refuse", MIXED)]


ALONE = """
from trainer import Trainer
from transformers import AutoModel
from losses import regularize

def main(args, loader):
    Trainer(AutoModel.from_pretrained(args.name), regularize, args).train(loader)

if __name__ == "__main__":
    main(parse(), batches())
"""


@pytest.mark.parametrize("beside", [{}, OTHER])
def test_a_run_that_comes_by_one_optimizer_has_but_one(beside: dict[str, str]) -> None:
    lower = "lower = self.estimator(x)\n        lower.backward()"
    assert [(d.verdict, d.message) for d in said(lower, {**beside, "main.py": ALONE})] == [("refuse", MIXED)]


@pytest.mark.parametrize("beside", [{}, OTHER])
@pytest.mark.parametrize(
    "extra",
    [
        "pass",
        "self.estimator.fit(outputs[1])",
        "features = outputs[1].detach()\n        self.estimator.fit(features)\n        self.estimator(features).backward()",
        "with torch.no_grad():\n            features = model(x)[1]\n        self.estimator.fit(features)\n"
        "        self.estimator(features).backward()",
    ],
)
def test_what_does_not_reach_the_model_is_left_alone(beside: dict[str, str], extra: str) -> None:
    assert not said(extra, beside)


def test_a_network_that_is_set_to_training_runs_no_trainer() -> None:
    """`model.train()` in a class that scales losses: the only `train` that needs no argument is another trainer's loop."""
    twice = "for _ in range(2):\n            model.train()"
    assert not said(twice, {"other.py": OTHER["other.py"].replace("self.scaler.update()", "pass")})
