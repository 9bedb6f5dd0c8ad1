"""A method that steps, called or not once the gradients were read: the scale is updated either way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, run_files

PROGRAM = """
    import json
    import math

    import torch
    from apex import amp


    class Scheduled:
        def __init__(self, optimizer):
            self.optimizer = optimizer
            self.count = 0

        def step(self):
            if self.count > 100:
                return
            self.count += 1
            self.optimizer.step()

        def zero_grad(self):
            self.optimizer.zero_grad()


    class Trainer:
        def __init__(self, model, scheduled):
            self.model = model
            self.scheduled = scheduled
            self.model, self.scheduled.optimizer = amp.initialize(self.model, self.scheduled.optimizer, opt_level="O1")

        def train(self, loader):
            for step, x in enumerate(loader):
                loss = self.model(x).mean()
                with amp.scale_loss(loss, self.scheduled.optimizer) as scaled_loss:
                    scaled_loss.backward()
                if step % 2 == 0:
                    norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
    {ask}
                    self.scheduled.zero_grad()


    model = torch.nn.Linear(2, 1)
    trainer = Trainer(model, Scheduled(torch.optim.SGD(model.parameters(), lr=0.1)))
    trainer.train([torch.full((1, 2), v) for v in (1.0, 1.0, math.nan, 1.0, 1.0)])
    print(json.dumps([trainer.scheduled.count, SCALE]))
"""
ASKED = {
    "if math.isnan(norm):\n    print('no update')\nelse:\n    self.scheduled.step()": 2,
    "if not math.isnan(norm):\n    self.scheduled.step()": 2,
    "if norm > 0:\n    if not math.isnan(norm):\n        self.scheduled.step()": 2,
    "self.scheduled.step()": 3,
}


@pytest.mark.parametrize("ask", ASKED)
def test_the_scale_is_updated_where_a_step_is_left_out(ask: str, tmp_path: Path) -> None:
    lines = "\n".join(" " * 20 + line for line in ask.splitlines())
    program = PROGRAM.replace("    {ask}", lines).replace("SCALE", "1")
    texts = check_files({"train.py": program})
    assert texts["train.py"].count(".update()") >= 1
    enabled = (
        texts["train.py"]
        .replace('GradScaler("cuda")', 'GradScaler("cpu", init_scale=1024.0)')
        .replace('"cuda"', '"cpu"')
    )
    count, _ = run_files(tmp_path, {"train.py": enabled}, "train.py")
    assert count == ASKED[ask]
