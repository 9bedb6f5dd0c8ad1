"""The disabled scaler that an object begins with: once, and never in place of one that is made already."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, run_files

TRAINER = """
    import json
    import sys
    import torch
    from apex import amp

    class Loss:
        def __init__(self, model):
            self.model = model

        def update(self, optimizer):
            self.optimizer = optimizer

        def step(self):
            self.optimizer.zero_grad()
            loss = self.model(torch.ones(2, 3)).mean() / 1000
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
            self.optimizer.step()

    class Trainer:
        def __init__(self, resume):
            self.model = torch.nn.Linear(3, 3)
            FIRST
            self.loss = Loss(self.model)
            if not self.load(resume):
                self.init_optimizers()
            self.stage = 0

        def init_average(self):
            self.average = torch.nn.Linear(3, 3)
            self.average = amp.initialize(self.average, None, opt_level="O1")

        def load(self, resume):
            if resume:
                self.average = amp.initialize(self.average, None, opt_level="O1")
                self.init_optimizers()
            return resume

        def extend(self):
            self.average = amp.initialize(self.average, None, opt_level="O1")
            self.init_optimizers()

        def init_optimizers(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.prepare()
            self.loss.update(self.optimizer)

        def prepare(self):
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

        def validate(self):
            return self.average(torch.ones(2, 3)).dtype

        def train(self):
            self.loss.step()
            for each in amp._amp_state.loss_scalers:
                print(each._loss_scale)

    if __name__ == "__main__":
        found = []
        for resume in (False, True):
            trainer = Trainer(resume)
            trainer.train()
            found.append([str(trainer.validate()), trainer.NAME is trainer.loss.NAME, trainer.NAME.is_enabled()])
        print(json.dumps(found))
    """


@pytest.mark.parametrize(
    ("first", "begins"),
    [
        ("self.init_average()", 0),
        ("self.average = None\n            if len(sys.argv) < 9:\n                self.init_average()", 1),
    ],
)
def test_what_a_constructor_runs_makes_the_scaler_and_hands_it_on(first: str, begins: int, tmp_path: Path) -> None:
    text = check_files({"train.py": TRAINER.replace("FIRST", first)}, device="cpu")["train.py"]
    text = text.replace("NAME", "scaler")
    assert text.count("enabled=False") == begins
    assert run_files(tmp_path, {"train.py": text}, "train.py") == [["torch.float16", True, True]] * 2


HANDED = """
    import json
    import torch
    from apex import amp

    class Stepper:
        def __init__(self, first, second):
            self.use(first, second)

        def use(self, first, second):
            self.first = first
            self.second = second

        def step(self, model):
            for name in ("a", "b"):
                loss = model(torch.ones(2, 3)).mean() / 1000
                optimizer = self.first if name == "a" else self.second
                optimizer.zero_grad()
            with amp.scale_loss(loss, [self.first, self.second]) as scaled:
                scaled.backward()
            self.first.step()
            self.second.step()

    def main():
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
        first = torch.optim.SGD(model[0].parameters(), lr=0.1)
        second = torch.optim.SGD(model[1].parameters(), lr=0.1)
        model, (first, second) = amp.initialize(model, [first, second], opt_level="O1")
        stepper = Stepper(first, second)
        stepper.step(model)
        stepper.step(model)
        stepper.use(first, second)
        stepper.step(model)
        print(json.dumps(stepper.NAME.state_dict()["_growth_tracker"]))

    if __name__ == "__main__":
        main()
    """


def test_a_constructor_that_gives_its_optimizers_to_a_method_that_keeps_them_hands_the_scaler_to_it(
    tmp_path: Path,
) -> None:
    text = check_files({"train.py": HANDED}, device="cpu")["train.py"].replace("NAME", "scaler")
    assert text.count("self.scaler = scaler") == 1
    assert run_files(tmp_path, {"train.py": text}, "train.py") == 3


BRANCHES = HANDED.replace(
    """            self.first = first
            self.second = second
""",
    """            if first is not second:
                self.first = first
                self.second = second
            else:
                self.second = second
                self.first = first
""",
)


def test_each_branch_that_keeps_an_optimizer_keeps_the_scaler(tmp_path: Path) -> None:
    text = check_files({"train.py": BRANCHES}, device="cpu")["train.py"].replace("NAME", "scaler")
    assert text.count("self.scaler = scaler") == 2
    assert run_files(tmp_path, {"train.py": text}, "train.py") == 3
