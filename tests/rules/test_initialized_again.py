"""A second `initialize` of what the object was made with: Apex raises there, so the scaler of the first serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

TRAINER = """
    import argparse
    import json
    import torch
    from apex import amp


    class Trainer:
        def __init__(self, model, optimizer, opt_level=None):
            self.model = model
            self.optimizer = optimizer
            self._opt_level = opt_level
            if self._opt_level is not None:
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=self._opt_level)

        def train(self, batches):
            for x, y in batches:
                self.optimizer.zero_grad()
                loss = (self.model(x).float() - y).pow(2).mean() * 1e-4
                if self._opt_level is not None:
                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                self.optimizer.step()

        def states(self):
            states = {"optimizer": self.optimizer.state_dict(), "model": self.model.state_dict()}
            if self._opt_level is not None:
                states["amp"] = amp.state_dict()
            return states

        def restore(self, training_state):
            if self._opt_level is not None and "amp" in training_state:
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=self._opt_level)
                amp.load_state_dict(training_state["amp"])
            self.model.load_state_dict(training_state["model"])
            self.optimizer.load_state_dict(training_state["optimizer"])


    def make(level):
        model = torch.nn.Linear(4, 1)
        return Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), level)


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--level", default="O1")
        args = parser.parse_args()
        batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)]
        trainer = make(args.level)
        trainer.train(batches)
        other = make(args.level)
        other.restore(trainer.states())
        other.train(batches[:1])
        print(json.dumps(other.SCALER_STATE))


    if __name__ == "__main__":
        main()
"""


def test_the_scaler_that_the_object_was_made_with_serves_where_its_optimizer_comes_again(tmp_path: Path) -> None:
    texts = check_files({"train.py": TRAINER}, device="cpu")
    assert texts["train.py"].count("GradScaler(") == 1
    assert 'and training_state.get("scaler"):\n            self.scaler.load_state_dict(' in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py")["_growth_tracker"] == 4
    findings = rewrite_files({"train.py": TRAINER})["train.py"].findings
    assert any("Apex raised here" in f.message for f in findings if f.code == "AMP110")
    # Nothing is made anew: `self.model = model` is the model that the object was given.
    assert not [f for f in findings if f.code == "AMP531"]


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        # The first may not have been reached where the second is.
        ('if self._opt_level is not None and "amp" in training_state:', 'if "amp" in training_state:'),
        # Another optimizer, which it has not prepared.
        (
            "        def restore(self, training_state):\n",
            "        def restore(self, training_state):\n"
            "            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)\n",
        ),
    ],
)
def test_one_that_may_be_the_first_is_no_second(text: str, changed: str) -> None:
    assert text in TRAINER
    findings = rewrite_files({"train.py": TRAINER.replace(text, changed)})["train.py"].findings
    assert not any("Apex raised here" in f.message for f in findings)
