"""Methods of classes beside each other do not run on one object, and what one of them does is not laid to another: AMP231."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, told

BASE = """
    import torch

    class Trainer:
        def __init__(self, model, limit):
            self.model = model
            self.limit = limit
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def train(self, loader):
            for x in loader:
                self.one_step(x)

        def one_step(self, x):
            raise NotImplementedError
"""
NATIVE = """
    import torch
    from base import Trainer

    class NativeTrainer(Trainer):
        def __init__(self, model, limit):
            super().__init__(model, limit)
            self.scaler = torch.amp.GradScaler("cuda")

        def one_step(self, x):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = self.model(x).sum()
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)
            if norm > 1000:
                return
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()

    class PlainTrainer(Trainer):
        def one_step(self, x):
            self.model(x).sum().backward()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)
            if norm > 1000:
                return
            self.optimizer.step()
            self.optimizer.zero_grad()
"""
APEX = """
    import torch
    from apex import amp
    from base import Trainer

    class ApexTrainer(Trainer):
        def __init__(self, model, limit):
            super().__init__(model, limit)
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

        def one_step(self, x):
            with amp.scale_loss(self.model(x).sum(), self.optimizer) as scaled_loss:
                scaled_loss.backward()
            torch.nn.utils.clip_grad_norm_(amp.master_params(self.optimizer), self.limit)
            self.optimizer.step()
            self.optimizer.zero_grad()
"""
MIGRATED = """
    import torch
    from base import Trainer

    class ApexTrainer(Trainer):
        def __init__(self, model, limit):
            super().__init__(model, limit)
            self.grad_scaler = torch.amp.GradScaler("cuda")

        def one_step(self, x):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = self.model(x).sum()
            self.grad_scaler.scale(loss).backward()
            self.grad_scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)
            self.grad_scaler.step(self.optimizer)
            self.grad_scaler.update()
            self.optimizer.zero_grad()
"""
SCRIPT = """
    import sys
    from apart import ApexTrainer
    from native import NativeTrainer, PlainTrainer

    trainers = {"apex": ApexTrainer, "native": NativeTrainer, "plain": PlainTrainer}
    trainer = trainers[sys.argv[1]](net, 1.0)
    trainer.train(batches)
"""
FILES = {"base.py": BASE, "native.py": NATIVE, "apart.py": APEX}


@pytest.mark.parametrize("files", [FILES, {**FILES, "main.py": SCRIPT}])
def test_what_another_class_does_is_no_part_of_the_path(files: dict[str, str]) -> None:
    found = doubts_of(files, {"apart.py": MIGRATED})
    assert told(found, "AMP231") == []
    assert told(found, "AMP232") == []


@pytest.mark.parametrize("files", [FILES, {**FILES, "main.py": SCRIPT}])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("            self.grad_scaler.update()\n", "without update()"),
        ("            self.grad_scaler.unscale_(self.optimizer)\n", "still scaled"),
    ],
)
def test_what_a_class_does_itself_is(files: dict[str, str], wrong: str, message: str) -> None:
    found = doubts_of(files, {"apart.py": MIGRATED.replace(wrong, "")})
    assert any(message in d.message for d in found if d.code == "AMP231")
    assert {d.path for d in found if d.code == "AMP231"} == {"apart.py"}


STEP = """            self.{scaler}.step(self.optimizer)
            self.{scaler}.update()
            self.optimizer.zero_grad()
"""


def test_a_method_that_is_called_by_super_runs_on_the_same_object() -> None:
    """Each class below steps once: one where the base asks it to, one behind the call of the base's method."""
    step = "            self.optimizer.step()\n            self.optimizer.zero_grad()\n"
    new = STEP.format(scaler="grad_scaler")
    asked = "            self.finish()\n\n        def finish(self):\n"
    below = """
    from apart import ApexTrainer

    class Logged(ApexTrainer):
        def one_step(self, x):
            super().one_step(x)
{step}
        def finish(self):
            print(self.limit)
"""
    files = {**FILES, "apart.py": APEX.replace(step, asked + step), "below.py": below.replace("{step}", step)}
    after = {"apart.py": MIGRATED.replace(new, asked + new), "below.py": below.replace("{step}", new)}
    assert told(doubts_of(files, after), "AMP231") == []
    again = {**after, "below.py": after["below.py"].replace("print(self.limit)", "super().finish()")}
    assert told(doubts_of(files, again), "AMP231") != []
