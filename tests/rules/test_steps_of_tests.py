"""Steps where a run begins that never scales a loss: a test of the schedule, a script beside the training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

LEARNER = """
    import torch
    from apex import amp


    class Learner:
        def prepare(self, model):
            self.model = model
            self.optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
            self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda epoch: 0.5**epoch)

        def learn(self, model, batches):
            self.prepare(model)
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
            for x, y in batches:
                loss = torch.nn.functional.mse_loss(self.model(x), y)
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
"""
STEPS = """
learner.prepare(torch.nn.Linear(2, 2))
learner.optimizer.step()
learner.schedule.step()
assert learner.optimizer.param_groups[0]["lr"] == 0.5
learner.optimizer.step()
learner.schedule.step()
assert learner.optimizer.param_groups[0]["lr"] == 0.25
"""


def _indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.strip().splitlines())


HEAD = "import torch\nfrom learner import Learner\n\n\n"
IN_A_FUNCTION = HEAD + "def test_schedule():\n    learner = Learner()\n" + _indented(STEPS, 4)
IN_A_CLASS = HEAD + "class TestSchedule:\n    def test_it(self):\n        learner = Learner()\n" + _indented(STEPS, 8)
IN_A_SCRIPT = HEAD + 'if __name__ == "__main__":\n    learner = Learner()\n' + _indented(STEPS, 4)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("test_schedule.py", IN_A_FUNCTION),
        ("tests/test_schedule.py", IN_A_CLASS),
        ("plot_schedule.py", IN_A_SCRIPT),
    ],
)
def test_a_run_that_scales_nothing_steps_as_before(path: str, text: str) -> None:
    texts = check_files({"learner.py": LEARNER, path: text})
    assert texts[path] == text
    assert "self.scaler.step(self.optimizer)" in texts["learner.py"]


def test_nothing_is_said_of_them() -> None:
    results = rewrite_files({"learner.py": LEARNER, "test_schedule.py": IN_A_FUNCTION})
    assert not results["test_schedule.py"].findings


def test_what_is_left_runs(tmp_path: Path) -> None:
    """The asserts of the schedule hold in the migrated program."""
    texts = check_files({"learner.py": LEARNER, "plot_schedule.py": IN_A_SCRIPT + "    print('true')\n"})
    assert run_files(tmp_path, texts, "plot_schedule.py") is True


@pytest.mark.parametrize(
    "text",
    [
        # a helper, called where something was trained
        HEAD
        + "def one_step(learner):\n    learner.optimizer.step()\n\n\n"
        + "def test_steps():\n    learner = Learner()\n    learner.learn(torch.nn.Linear(2, 2), [])\n    one_step(learner)\n",
        # a test that trains by what it cannot be told of
        HEAD
        + "def test_step(make):\n    learner = Learner()\n    make(learner).learn(None, [])\n    learner.optimizer.step()\n",
    ],
)
def test_a_step_that_may_come_after_a_scaled_loss_is_none_of_them(text: str) -> None:
    results = rewrite_files({"learner.py": LEARNER, "test_schedule.py": text})
    assert results["learner.py"].after is None
    assert [f for f in results["test_schedule.py"].findings if f.status == "manual"]
