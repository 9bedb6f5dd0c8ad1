"""`self.model, self.optimizer.optimizer = amp.initialize(...)`: an optimizer that an object of the program keeps and steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

OPTIM = """
    import torch

    class Optimizer:
        def __init__(self, model):
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            self.steps = 0

        def zero_grad(self):
            self.optimizer.zero_grad()

        def step(self):
            self.optimizer.step()
            self.steps += 1

    class WarmupOptimizer(Optimizer):
        def rate(self):
            return 0.1
    """
TRAIN = """
    import math
    import torch
    from apex import amp

    class Trainer:
        def __init__(self, model, optimizer):
            self.model = model
            self.optimizer = optimizer
            self.model, self.optimizer.optimizer = amp.initialize(
                self.model, self.optimizer.optimizer, opt_level="O1"
            )

        def train(self, loader):
            losses = []
            for x in loader:
                loss = torch.mean((self.model(x).float() - 1) ** 2)
                with amp.scale_loss(loss, self.optimizer.optimizer) as scaled_loss:
                    scaled_loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
                if math.isnan(norm):
                    print("no step")
                else:
                    self.optimizer.step()
                self.optimizer.zero_grad()
                losses.append(loss.item())
            return losses
    """
MAIN = """
    import json
    import torch
    from optim import WarmupOptimizer
    from train import Trainer

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = WarmupOptimizer(model)
    trainer = Trainer(model, optimizer)
    losses = trainer.train([torch.randn(16, 4) for _ in range(6)])
    print(json.dumps([optimizer.steps, losses]))
    """


def test_the_object_steps_it_through_the_scaler(tmp_path: Path) -> None:
    after = check_files({"optim.py": OPTIM, "train.py": TRAIN, "main.py": MAIN}, device="cpu")
    assert "scaler.step(self.optimizer)" in after["optim.py"]
    assert "self.scaler.unscale_(self.optimizer.optimizer)" in after["train.py"]
    assert "self.optimizer.step(scaler=self.scaler)" in after["train.py"]
    steps, losses = run_files(tmp_path, after, "main.py")
    assert steps == 6
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("base", ["(torch.optim.SGD)", "(wrapped)"])
def test_one_that_steps_out_of_sight_is_refused(base: str) -> None:
    """What the object does in its own step is not in sight: nothing says that it goes through the scaler."""
    optim = f"""
        import torch
        from outside import wrapped

        class WarmupOptimizer{base}:
            def __init__(self, model):
                super().__init__(model.parameters(), lr=0.1)
                self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """
    results = rewrite_files({"optim.py": optim, "train.py": TRAIN, "main.py": MAIN})
    assert "GradScaler" not in (results["train.py"].after or "")
    assert [f for f in results["train.py"].findings if f.status == "manual"]
