"""An object whose model and optimizer are set up anew, head first and then the whole, keeps the scaler that it was made with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files

PROGRAM = """\
import argparse
import torch

rates = []
try:
    from apex import amp
    HAS_APEX = True
except ImportError:
    HAS_APEX = False


class Runner:
    def __init__(self, model, optimizer, use_amp):
        self.model = model
        self.optimizer = optimizer
        self.use_amp = use_amp

    def train(self, batches):
        for x, y in batches:
            self.optimizer.zero_grad()
            loss = (self.model(x).float() - y).pow(2).mean()
            if self.use_amp:
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            self.optimizer.step()
            rates.append(self.optimizer.param_groups[0]["lr"])


def main(args):
    batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(2)]
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    FIRST
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.amp)
    runner = Runner(model, optimizer, use_amp)
    runner.train(batches)
    if use_amp:
        model = torch.nn.Linear(4, 1)
        model.load_state_dict(runner.model.state_dict())
    runner.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if use_amp:
        runner.model, runner.optimizer = amp.initialize(model, runner.optimizer, opt_level=args.amp)
    runner.train(batches)


parser = argparse.ArgumentParser()
parser.add_argument("--amp", default="LEVEL")
main(parser.parse_args())
print(rates)
"""
NOTED = """use_amp = False
    if args.amp and HAS_APEX:
        use_amp = True"""
ASKED = """use_amp = bool(args.amp)
    if use_amp:"""


def made(first: str, level: str = "O1") -> str:
    return PROGRAM.replace("FIRST", first).replace("LEVEL", level)


@pytest.mark.parametrize("first", [NOTED, ASKED])
def test_the_scaler_that_it_was_made_with_serves(first: str) -> None:
    after = rewrite(made(first)).after or ""
    assert after.count("GradScaler(") == 1
    assert "Runner(model, optimizer, scaler, use_amp)" in after
    assert "        runner.model = model\n" in after


@pytest.mark.parametrize("first", [NOTED, ASKED])
@pytest.mark.parametrize("level", ["", "O0", "O1"])
def test_it_runs_to_the_end(tmp_path: Path, first: str, level: str) -> None:
    assert run_files(tmp_path, check_files({"train.py": made(first, level)}), "train.py") == [0.1, 0.1, 0.01, 0.01]


@pytest.mark.parametrize(
    "first",
    [
        NOTED.replace("use_amp = False", "use_amp = args.always"),  # true where the branch is not taken, too
        NOTED.replace("use_amp = True", "use_amp = args.always"),
        NOTED.replace("use_amp = True", "if args.always:\n            use_amp = True"),
    ],
)
def test_a_name_that_says_something_else_is_not_known_above(first: str) -> None:
    found = [f for f in rewrite(made(first)).findings if f.code == "AMP113"]
    assert any("only known below the place" in f.message for f in found)
