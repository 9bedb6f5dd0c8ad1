"""A function that only asks whether mixed precision is on: a switch where its callers can tell, a scaler where they cannot."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import found

SOURCE = """
import argparse
import torch
from apex import amp
from project import Net, criterion, loader


def validate(model, loader):
    with torch.no_grad():
        return [model(x) for x, _ in loader]


def train(model, optimizer):
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    VALIDATED


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--level", default="O1", choices=["O0", "O1"])
    args = parser.parse_args()
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, OPTIONS)
    train(model, optimizer)
    CALLED


if __name__ == "__main__":
    main()
"""


def source(
    options: str = 'opt_level="O1", enabled=args.fp16', called: str = "validate(model, loader)", within: str = ""
) -> str:
    text = SOURCE.replace("OPTIONS", options).replace("CALLED", called)
    return text.replace("VALIDATED", within or "print(loss)")


def test_where_the_switch_is_at_hand_it_is_handed_over() -> None:
    result = rewrite(source())
    assert result.after is not None
    assert "def validate(model, loader, use_amp=False):\n" in result.after
    assert 'with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=use_amp):\n' in result.after
    assert "    validate(model, loader, use_amp=args.fp16)\n" in result.after
    assert "def train(model, optimizer, scaler):\n" in result.after  # which scales
    (finding,) = (f for f in found(result, "AMP220") if "use_amp" in f.message)
    assert "every call in sight" in finding.message


@pytest.mark.parametrize(
    ("options", "within"),
    [
        ('opt_level="O1", enabled=args.fp16', "validate(model, loader)"),  # called where only the scaler is
        ("opt_level=args.level, enabled=args.fp16", ""),  # a condition of two parts is not written again at each call
    ],
)
def test_elsewhere_the_scaler_is_asked(options: str, within: str) -> None:
    result = rewrite(source(options, within=within))
    assert result.after is not None
    assert "def validate(model, loader, scaler):\n" in result.after
    assert "enabled=scaler.is_enabled()" in result.after
    assert "use_amp" not in result.after


ENGINE = """
import torch

class Engine:
    def __init__(self, model, half=""):
        self.model, self.half = model, half
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if self.half:
            from apex import amp
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=self.half)

    def train(self, x, y):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        if self.half:
            from apex import amp
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        self.optimizer.step()
        return loss.item()
"""
MEASURES = """
import torch

def measure(model, batches):
    with torch.no_grad():
        return [model(x) for x, _ in batches]
"""
MAIN = """
import argparse
import torch
from engine import Engine
from measures import measure

def main(half, batches):
    MADE
    for x, y in batches:
        engine.train(x, y)
    return measure(engine.model, batches)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", default="")
    main(parser.parse_args().half, [(torch.randn(8, 4).cuda(), torch.randn(8, 2).cuda())])
"""


def beside(made: str, **others: str) -> dict[str, str]:
    """The files of a program whose optimizer an object has, and which evaluates by a function of another file."""
    files = {"engine.py": ENGINE, "measures.py": MEASURES, "train.py": MAIN.replace("MADE", made)}
    results = rewrite_files(files | {f"{name}.py": text for name, text in others.items()})
    return {path: result.after or result.before for path, result in results.items()}


SCORE = "import torch\nfrom measures import measure\n\nprint(measure(torch.nn.Linear(4, 2).cuda(), []))\n"
NET = "torch.nn.Linear(4, 2).cuda()"


def test_an_object_in_sight_that_keeps_the_scaler_hands_it_over() -> None:
    after = beside(f"engine = Engine({NET}, half)")
    assert "def measure(model, batches, scaler):\n" in after["measures.py"]
    assert "measure(engine.model, batches, engine.scaler)\n" in after["train.py"]


def test_beside_programs_without_such_an_object_it_is_asked_where_there_is_one() -> None:
    after = beside(f"engine = Engine({NET}, half)", score=SCORE)
    assert "def measure(model, batches, use_amp=False):\n" in after["measures.py"]
    assert 'torch.autocast("cuda", dtype=torch.float16, enabled=use_amp):\n' in after["measures.py"]
    assert "measure(engine.model, batches, use_amp=engine.scaler.is_enabled())\n" in after["train.py"]
    assert after["score.py"] == SCORE


OTHER = f"""other = Engine({NET})
    engine = Engine({NET}, half)
    other.train(torch.ones(1, 4).cuda(), torch.ones(1, 2).cuda())"""


@pytest.mark.parametrize("others", [{}, {"score": SCORE}])
def test_of_several_such_objects_the_one_is_asked_whose_model_is_given(others: dict[str, str]) -> None:
    after = beside(OTHER, **others)
    assert "engine.scaler" in after["train.py"]
    assert "other.scaler" not in after["train.py"]


def test_where_none_can_be_told_from_the_others_none_is_asked() -> None:
    main = MAIN.replace("measure(engine.model, batches)", "measure(net, batches)")
    made = f"net = {NET}\n    " + OTHER.replace(f"Engine({NET}", "Engine(net")
    results = rewrite_files(
        {"engine.py": ENGINE, "measures.py": MEASURES, "train.py": main.replace("MADE", made), "score.py": SCORE}
    )
    assert results["measures.py"].after is None
    assert results["train.py"].after is None
    assert found(results["measures.py"], "AMP502") or found(results["measures.py"], "AMP531")
