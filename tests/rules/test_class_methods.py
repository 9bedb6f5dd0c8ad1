"""Objects that a class method makes (`cls(...)`), and what a subclass hands to the `__init__` of its base: no field is there yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, run_files

TRAINER = """
    import torch
    from apex import amp


    class Trainer:
        def __init__(self, model, optimizer, use_amp=None):
            self.model = model
            self.optimizer = optimizer
            self.use_amp = use_amp

        def train(self, batches):
            for x, y in batches:
                self.optimizer.zero_grad()
                loss = self.compute(x, y)
                if self.use_amp:
                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                self.optimizer.step()
            return loss.item()

        def compute(self, x, y):
            return (self.model(x) - y).pow(2).mean() / 1000

        @classmethod
        def create(cls, model, optimizer, resume=None, **kwargs):
            if resume:
                return cls.load(model, optimizer, resume)
            return cls(model=model, optimizer=optimizer, **kwargs)

        @classmethod
        def load(cls, model, optimizer, resume):
            return cls(model, optimizer, **resume)


    class Distilling(Trainer):
        def __init__(self, model, optimizer, use_amp=None, weight=0.5):
            super().__init__(model=model, optimizer=optimizer, use_amp=use_amp)
            self.weight = weight

        def compute(self, x, y):
            return super().compute(x, y) * self.weight
    """
RUN = """
    import argparse
    import json
    import torch
    from apex import amp
    from trainer import Distilling, Trainer


    def prepare(model, use_amp):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if use_amp:
            model, optimizer = amp.initialize(model, optimizer, opt_level=use_amp)
        return model, optimizer


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--use_amp", default="O1")
        use_amp = parser.parse_args().use_amp
        torch.manual_seed(0)
        batches = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(3)]
        model, optimizer = prepare(torch.nn.Linear(3, 1), use_amp)
        losses = []
        TRAINERS
            losses.append(trainer.train(batches))
        print(json.dumps(losses))


    if __name__ == "__main__":
        main()
    """
MADE = {
    "one": "for trainer in [Trainer.create(model, optimizer, use_amp=use_amp)]:",
    "a subclass": "for trainer in [Distilling.create(model, optimizer, use_amp=use_amp, weight=0.5)]:",
    "loaded": 'for trainer in [Trainer.create(model, optimizer, resume={"use_amp": use_amp})]:',
    "any": "for trainer in [c.create(model, optimizer, use_amp=use_amp) for c in (Trainer, Distilling)]:",
}


@pytest.mark.parametrize("made", MADE)
def test_what_a_class_method_makes_is_handed_the_scaler(tmp_path: Path, made: str) -> None:
    run = RUN.replace("TRAINERS", MADE[made])
    texts = check_files({"trainer.py": TRAINER, "run.py": run}, device="cpu")
    assert "cls.scaler" not in texts["trainer.py"]
    assert "self.scaler.step(self.optimizer)" in texts["trainer.py"] or "scaler.step(self.optimizer)" in texts["run.py"]
    losses = run_files(tmp_path, texts, "run.py")
    assert all(0 < loss < 1 for loss in losses)
