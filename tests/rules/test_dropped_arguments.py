"""What only computed an argument that is dropped goes with it, and the arms around it become one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, run_files

PROGRAM = """
    import json

    import torch
    from apex import amp


    class Trainer:
        def __init__(self, use_apex):
            self.use_apex = use_apex
            self.model = torch.nn.Linear(3, 1)
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
            if use_apex:
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

        def step(self, batches):
            for i, x in enumerate(batches):
                loss = self.model(x).pow(2).mean() / len(batches)
                if self.use_apex:
                    HOW
                    with amp.scale_loss(loss, self.optimizer, delay_unscale=wait) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            return loss.item()


    def show(number):
        wait = number + 1
        return wait


    if __name__ == "__main__":
        trainer = Trainer(False)
        losses = [trainer.step([torch.ones(2, 3)] * 2) for _ in range(3)]
        print(json.dumps([losses[0] > losses[-1], show(1)]))
"""


@pytest.mark.parametrize(
    "how",
    [
        "wait = i < len(batches) - 1",
        "wait = (i + 1) % 2 != 0",
        "wait = bool(min(i, 1)) is False",
    ],
)
def test_a_statement_that_only_fed_a_dropped_argument_goes_and_the_arms_fold(how: str, tmp_path: Path) -> None:
    texts = check_files({"train.py": PROGRAM.replace("HOW", how)})
    assert how not in texts["train.py"]
    assert "            self.scaler.scale(loss).backward()\n        self.scaler.step" in texts["train.py"]
    assert "    wait = number + 1\n" in texts["train.py"]  # another function's
    assert run_files(tmp_path, texts, "train.py") == [True, 2]


def test_so_does_one_of_two_in_the_branches_of_a_test() -> None:
    how = "if i < len(batches) - 1:\n    wait = True\nelse:\n    wait = False".replace("\n", "\n" + 20 * " ")
    (text,) = check_files({"train.py": PROGRAM.replace("HOW", how)}).values()
    assert "wait = True" not in text
    assert "wait = False" not in text


@pytest.mark.parametrize(
    ("how", "after"),
    [
        ("wait = i < next(self.limits)", ""),  # a call that does something
        ("wait = i < len(batches) - 1", "            print(wait)\n"),
        ("wait = i < len(batches) - 1", "            self.shown = lambda: wait\n"),
    ],
)
def test_what_does_something_or_is_read_stays(how: str, after: str) -> None:
    program = PROGRAM.replace("HOW", how).replace(
        "            self.optimizer.zero_grad()\n", after + "            self.optimizer.zero_grad()\n"
    )
    (text,) = check_files({"train.py": program}).values()
    assert how in text
    assert text.index("if self.use_apex:") < text.index(how)
