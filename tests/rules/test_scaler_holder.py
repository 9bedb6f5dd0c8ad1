"""An object of the program sets mixed precision up and keeps the scaler; functions that are handed it step through it."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files, run_files

ACCELERATOR = """
    import torch
    from apex import amp

    class Accelerator:
        def __init__(self, level):
            self.level = level

        def set_up(self, model, optimizer):
            model, optimizer = self.configure(model, optimizer)
            return model, optimizer

        def configure(self, model, optimizer):
            return amp.initialize(model, optimizer, opt_level=self.level)

        def backward_step(self, loss, optimizer):
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()

        def clip(self, optimizer, norm):
            return torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), norm)
    """
TRAIN = """
    import json
    import torch
    import torch.nn.functional as F
    from accelerator import Accelerator

    def train(model, loader, optimizer, accelerator):
        losses = []
        for number, (x, y) in enumerate(loader):
            if number % 2:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x * 2), y)
                accelerator.backward_step(loss, optimizer)
                optimizer.step()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            accelerator.backward_step(loss, optimizer)
            accelerator.clip(optimizer, 0.5)
            optimizer.step()
            losses.append(loss.item())
        return losses

    def main(args):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        accelerator = Accelerator(args["level"])
        model, optimizer = accelerator.set_up(model, optimizer)
        loader = [(torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])) for _ in range(5)]
        losses = train(model, loader, optimizer, accelerator)
        print(json.dumps(losses))

    if __name__ == "__main__":
        args = {"level": "O1"}
        main(args)
    """
FILES = {"accelerator.py": ACCELERATOR, "train.py": TRAIN}
BY_HAND = """
    import json
    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu")
    loader = [(torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])) for _ in range(5)]
    losses = []

    def step(x, y, norm):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if norm:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), norm)
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    for number, (x, y) in enumerate(loader):
        if number % 2:
            step(x * 2, y, 0)
        losses.append(step(x, y, 0.5))
    print(json.dumps(losses))
    """


def test_functions_reach_the_scaler_through_the_object() -> None:
    texts = check_files(FILES)
    assert "self.scaler = torch.amp.GradScaler(" in texts["accelerator.py"]
    assert "def train(model, loader, optimizer, accelerator):" in texts["train.py"]
    assert texts["train.py"].count("accelerator.scaler.step(optimizer)") == 2
    assert "accelerator.scaler.unscale_(optimizer)" in texts["train.py"]


def test_an_optimizer_stepped_twice_in_an_iteration_is_updated_after_each(tmp_path: Path) -> None:
    """GradScaler refuses a second step before an update; the losses are those of the program written by hand."""
    texts = check_files({**FILES, "hand.py": BY_HAND}, device="cpu")
    assert texts["train.py"].count("accelerator.scaler.update()") == 2
    assert run_files(tmp_path, texts, "train.py") == run_files(tmp_path, texts, "hand.py")


def test_a_list_of_such_objects_is_not_one_of_them() -> None:
    train = textwrap.dedent(TRAIN).replace("accelerator.backward_step", "accelerators[0].backward_step")
    train = train.replace("accelerator.clip", "accelerators[0].clip").replace(
        "optimizer, accelerator", "optimizer, accelerators"
    )
    made = 'accelerator = Accelerator(args["level"])'
    train = train.replace(made, f"one = {made.partition(' = ')[2]}\n    accelerators = [one]")
    train = train.replace("accelerator.set_up", "one.set_up")
    ast.parse(train)
    results = rewrite_files({**FILES, "train.py": train})
    assert "accelerators.scaler" not in (results["train.py"].after or "")


GUARDED = """
import torch
from apex import amp


def demand(found):
    if found is None:
        raise RuntimeError("not yet")


class Trainer:
    def __init__(self, model=None):
        self.model, self.optimizer = model, None
        self.mixed = False

    def switch(self, mixed):
        if mixed:
            GUARD
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
        self.mixed = mixed

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        if self.mixed:
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        self.optimizer.step()
"""


@pytest.mark.parametrize(
    ("guard", "after"),
    [
        ("assert self.optimizer is not None", True),
        ("demand(self.optimizer)", True),
        ("print(self.optimizer)", False),
    ],
)
def test_a_guard_that_fails_leaves_the_object_without_mixed_precision(guard: str, after: bool) -> None:
    """The caller may catch what it raises: the scaler is made where `initialize` was come to."""
    text = rewrite(GUARDED.replace("GUARD", guard)).after
    assert text is not None
    method = text.partition("def switch")[2].partition("def step")[0]
    made = method.index('self.scaler = torch.amp.GradScaler("cuda", enabled=bool(mixed))')
    assert (made > method.index("if mixed:")) is after
    assert method.index("self.mixed = mixed") > made
