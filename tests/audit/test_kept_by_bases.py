"""A model that a base class out of sight keeps, and that is handed to library code which runs it: told once for each call."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

BEFORE = """
    import torch
    from apex import amp
    from library.engine import Base, Hook, PreciseBN, PanopticEvaluator, TrainingPlan
    from library.evaluation import inference_on_dataset

    class Trainer(Base):
        def __init__(self, args):
            model = torch.nn.Linear(4, 1).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")
            super().__init__({kept}, optimizer)

        def hooks(self):
            def score():
                return self.score(self.model)

            return [Hook(score), {run}]

        @classmethod
        def score(cls, model):
            return {scored}

        def step(self, data):
            losses = self.model(data)
            with amp.scale_loss(losses, self.optimizer) as scaled:
                scaled.backward()
            self.optimizer.step()

    Trainer(parse()).train()
"""
AFTER = (
    BEFORE.replace("    from apex import amp\n", "")
    .replace(
        'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")',
        'self.scaler = torch.amp.GradScaler("cuda")',
    )
    .replace(
        """            losses = self.model(data)
            with amp.scale_loss(losses, self.optimizer) as scaled:
                scaled.backward()
            self.optimizer.step()
""",
        """            with torch.autocast("cuda", dtype=torch.float16):
                losses = self.model(data)
            self.scaler.scale(losses).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
""",
    )
)


def found(level: str = "O1", kept: str = "model", run: str = "None", scored: str = "None") -> list[tuple[int, str]]:
    parts = {"level": level, "kept": kept, "run": run, "scored": scored}
    return told(doubts(BEFORE.format(**parts), AFTER.format(**parts)), "AMP531")


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("run", ["PreciseBN(5, self.model, 10)", "PanopticEvaluator(self.model)"])
def test_what_runs_it_is_told(level: str, run: str) -> None:
    assert found(level, run=run) == [(17, "review")]


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_through_a_function_that_is_handed_over(level: str) -> None:
    assert found(level, scored="inference_on_dataset(model, 1)") == [(21, "review")]


def test_not_what_does_not_run_it() -> None:
    assert not found(run="TrainingPlan(self.model)")


def test_not_another_model_that_the_base_was_given() -> None:
    assert not found("O2", kept="args.model", run="PreciseBN(5, self.model, 10)")
