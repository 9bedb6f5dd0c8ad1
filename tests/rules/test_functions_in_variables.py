"""A function that a variable holds and that is handed the model has its region inside, or around each of its calls: not both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files

MAIN = """
    import json

    import torch
    import torch.nn as nn
    from apex import amp

    SEEN = []


    def make(criterion):
        def model_fn(model, batch, evaluating=False):
            model.train(not evaluating)
            x, y = [item.clone() for item in batch]
            out = model(x)
            SEEN.append([str(out.dtype), torch.is_autocast_enabled("cpu")])
            loss = LOSS
            SEEN.append(str(loss.dtype))
            return out, loss

        return model_fn


    class Runner:
        def __init__(self, model, model_fn, optimizer):
            self.model = model
            self.model_fn = model_fn
            self.steps = {"usual": model_fn}
            self.optimizer = optimizer

        def evaluate(self, batches, kind="usual"):
            total = 0.0
            for batch in batches:
                _, loss = CALLED(self.model, batch, evaluating=True)
                total += loss.item()
            return total

        def train(self, batches, kind="usual"):
            for batch in batches:
                self.optimizer.zero_grad()
                _, loss = CALLED(self.model, batch)
                SEEN.append(torch.is_autocast_enabled("cpu"))
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
                self.optimizer.step()


    def main():
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        runner = Runner(model, GIVEN, optimizer)
        batches = [(torch.ones(3, 4), torch.zeros(3, 2))]
        runner.train(batches)
        runner.evaluate(batches)


    if __name__ == "__main__":
        main()
        print(json.dumps(SEEN))
    """
LOSSES = {"a criterion": "criterion(out, y)", "arithmetic": "(out - y).pow(2).mean()"}
CALLED = {"an attribute": "self.model_fn", "an item": "self.steps[kind]"}


def program(called: str, loss: str = "criterion(out, y)", given: str = "make(nn.MSELoss())") -> str:
    return MAIN.replace("CALLED", called).replace("LOSS", loss).replace("GIVEN", given)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("called", CALLED.values(), ids=CALLED)
def test_the_region_is_inside_alone(called: str, loss: str, tmp_path: Path) -> None:
    (after,) = check_files({"main.py": program(called, loss)}, device="cpu").values()
    assert after.count("torch.autocast(") == 1
    inside = [["torch.float16", True], "torch.float32"]
    seen = run_files(tmp_path, {"main.py": after}, "main.py")
    assert seen == [*inside, False, *inside]


@pytest.mark.parametrize("given", ["library.STEP", "library.make()", "pick(library.STEP, make(nn.MSELoss()))"])
def test_what_may_be_out_of_sight_has_its_region_around(given: str) -> None:
    text = program("self.model_fn", given=given).replace("import json\n", "import json\n\n    import library\n", 1)
    after = rewrite(text).after
    assert after is not None
    assert "16):\n                _, loss = self.model_fn(self.model, batch)" in after


def test_where_all_calls_have_one_around_none_is_inside(tmp_path: Path) -> None:
    text = program("self.model_fn").replace("total = 0.0", "total = 0.0\n            self.model.eval()")
    (after,) = check_files({"main.py": text}, device="cpu").values()
    assert after.count("torch.autocast(") == after.count("_, loss = self.model_fn(") == 2
    inside = [["torch.float16", True], "torch.float32"]
    assert run_files(tmp_path, {"main.py": after}, "main.py") == [*inside, False, *inside]
