"""A method that sets mixed precision up, called under a condition: the runs without it stay in float32."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
import torch

from tests.rules.helpers import check_files, rewrite

PROGRAM = """
    import torch


    class Trainer:
        def __init__(self, model, params):
            self.model = model
            self.params = params
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if {condition}:
                self.init_amp()

        def init_amp(self):
            from apex import amp

            params = self.params
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level={level})

        def optimize(self, loss):
            params = self.params
            self.optimizer.zero_grad()
            if {condition}:
                from apex import amp

                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()

        def step(self, x, y):
            params = self.params
            output = self.model(x)
            self.dtype = output.dtype
            loss = torch.nn.functional.mse_loss(output, y)
            self.optimize(loss)


    def train(params):
        trainer = Trainer(torch.nn.Linear(2, 2), params)
        for _ in range(3):
            trainer.step(torch.ones(4, 2), torch.ones(4, 2))
        return trainer.dtype
"""


@pytest.mark.parametrize("level", ['"O%i" % params.amp', '"O1"'])
@pytest.mark.parametrize("condition", ["params.amp >= 0 and params.apex", "params.apex"])
def test_runs_that_never_set_up_train_in_float32(condition: str, level: str) -> None:
    result = rewrite(PROGRAM.format(condition=condition, level=level), device="cpu")
    assert not [f for f in result.findings if f.status == "manual"]
    assert result.after is not None
    space: dict[str, Any] = {}
    exec(compile(result.after, "train.py", "exec"), space)
    for amp, apex in ((-1, False), (1, False), (1, True)):
        dtype = space["train"](argparse.Namespace(amp=amp, apex=apex))
        assert dtype == (torch.float16 if apex else torch.float32)


def test_a_set_up_further_away_is_followed() -> None:
    """The constructor calls a method that calls the one that sets up; nothing but a later statement stores the optimizer."""
    program = PROGRAM.format(condition="params.apex", level='"O1"')
    program = program.replace("self.init_amp()\n", "self.prepare()\n", 1)
    program = program.replace(
        "        def init_amp", "        def prepare(self):\n            self.init_amp()\n\n        def init_amp"
    )
    after = check_files({"train.py": program}, device="cpu")["train.py"]
    space: dict[str, Any] = {}
    exec(compile(after, "train.py", "exec"), space)
    assert space["train"](argparse.Namespace(amp=1, apex=False)) == torch.float32
    assert space["train"](argparse.Namespace(amp=1, apex=True)) == torch.float16


def test_a_set_up_that_every_run_comes_by_needs_no_switch() -> None:
    program = PROGRAM.format(condition="params.apex", level='"O1"')
    program = program.replace(
        "            if params.apex:\n                self.init_amp()", "            self.init_amp()"
    )
    result = rewrite(program)
    assert result.after is not None
    assert 'torch.autocast("cuda", dtype=torch.float16):' in result.after
    assert "enabled=False" not in result.after


NO_CONSTRUCTOR = {
    "learner.py": """
        import torch
        from apex import amp

        class Learner:
            \"\"\"Trains and evaluates.\"\"\"

            def train(self, args, model, optimizer, loader):
                if args.fp16:
                    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
                for x in loader:
                    loss = model(x).pow(2).mean()
                    if args.fp16:
                        with amp.scale_loss(loss, optimizer) as scaled_loss:
                            scaled_loss.backward()
                    else:
                        loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                return self.evaluate(model, loader)

            def evaluate(self, model, loader):
                return [model(x).dtype == torch.float32 for x in loader]
        """,
    "main.py": """
        from learner import Learner

        def run(args, model, optimizer, loader):
            if args.train:
                return Learner().train(args, model, optimizer, loader)
            return Learner().evaluate(model, loader)
        """,
}


def test_an_object_without_a_constructor_has_the_switch_from_its_class() -> None:
    """`Learner().evaluate(model)` never came by the training: it was float32, and there was no attribute to ask for."""
    texts = check_files(NO_CONSTRUCTOR)
    assert '    """Trains and evaluates."""\n\n    use_amp = False\n\n    def train(' in texts["learner.py"]
    assert "enabled=self.use_amp" in texts["learner.py"]
    assert "use_amp" not in texts["main.py"]
