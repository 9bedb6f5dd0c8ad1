"""`amp` itself kept on an object, or None where it is not used, and handed from there to functions of other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files

SOLVER = """
    import json
    import torch
    from torch import nn
    from keeping import resume, save

    class Solver:
        def __init__(self, options, loader):
            self.options, self.loader = options, loader
            torch.manual_seed(0)
            self.net = nn.Linear(8, 2)
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
            if self.options["use_amp"]:
                from apex import amp

                self.amp = amp
                self.net, self.optimizer = self.amp.initialize(self.net, self.optimizer, opt_level="O1")
            else:
                self.amp = None
            if self.options["resume"]:
                RESUME

        def train(self):
            for x, y in self.loader:
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.net(x), y)
                if self.amp:
                    with self.amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                self.optimizer.step()
            SAVE

    loader = [(torch.rand(4, 8), torch.tensor([0, 1, 0, 1]))]
    Solver({"use_amp": False, "resume": False}, loader).train()
    Solver({"use_amp": False, "resume": True}, loader).train()
    print(json.dumps([str(state) for state in torch.load("last.pt").values()][-1]))
    """
KEEPING = """
    import torch

    def save(path, model=None, optimizer=None, amp=None):
        state = {"net": model.state_dict(), "optimizer": optimizer.state_dict()}
        state["amp_state"] = amp.state_dict() if amp else None
        torch.save(state, path)

    def resume(path, model=None, optimizer=None, amp=None):
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["net"])
        if optimizer is not None:
            optimizer.load_state_dict(checkpoint["optimizer"])
        if checkpoint.get("amp_state") and amp:
            amp.load_state_dict(checkpoint["amp_state"])
    """
INFERENCE = """
    import torch
    from keeping import resume

    net = torch.nn.Linear(8, 2)
    resume("last.pt", model=net)
    """


def solver(save: str, resume: str) -> str:
    return SOLVER.replace("SAVE", f'save("last.pt", {save})').replace("RESUME", f'resume("last.pt", {resume})')


@pytest.mark.parametrize(
    "handed", ["self.net, self.optimizer, amp=self.amp", "model=self.net, optimizer=self.optimizer, amp=self.amp"]
)
@pytest.mark.parametrize("beside", [{}, {"inference.py": INFERENCE}])
def test_what_is_handed_from_an_attribute_is_the_scaler_then(
    handed: str, beside: dict[str, str], tmp_path: Path
) -> None:
    """A script that leaves optimizer and amp out is no reason for another parameter."""
    texts = check_files({"solver.py": solver(handed, handed), "keeping.py": KEEPING, **beside})
    assert "def resume(path, model=None, optimizer=None, scaler=None):" in texts["keeping.py"]
    assert 'checkpoint["scaler_state"]' in texts["keeping.py"]
    assert texts["solver.py"].count("scaler=self.scaler)") == 2
    assert not beside or texts["inference.py"].endswith('resume("last.pt", model=net)\n')
    assert run_files(tmp_path, texts, "solver.py") == "None"


def test_a_scaler_that_is_off_stands_once_where_the_other_branch_held_none() -> None:
    handed = "self.net, self.optimizer, self.amp"
    texts = check_files({"solver.py": solver(handed, handed), "keeping.py": KEEPING})
    assert texts["solver.py"].count("GradScaler(") == 1
    assert 'GradScaler("cuda", enabled=self.options["use_amp"])' in texts["solver.py"]


def test_an_attribute_of_that_name_that_holds_something_else_is_handed_on_as_it_is() -> None:
    files = {
        "measure.py": """
            class Wave:
                def __init__(self, amp):
                    self.amp = amp

            def louder(wave, amp):
                return wave.amp + amp

            print(louder(Wave(1), amp=Wave(2).amp))
            """
    }
    texts = check_files(files)
    assert "scaler" not in texts["measure.py"]


ON_MODEL = """
import torch
{top}

class Runner:
    def __init__(self, args):
        self.args = args
        self.model = torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        {first}
        if self.args.level is not None:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=self.args.level)
        {then}self.model.amp = amp

    def step(self, x, y):
        loss = (self.model(x) - y).pow(2).mean()
        self.optimizer.zero_grad()
        if {asked}:
            loss.backward()
        else:
            with self.model.amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
        self.optimizer.step()


def main(args, loader):
    runner = Runner(args)
    for x, y in loader:
        runner.step(x, y)
"""


@pytest.mark.parametrize(
    ("top", "first", "then", "asked"),
    [
        ("", "from apex import amp", "else:\n            amp = None\n        ", "self.model.amp is None"),
        ("from apex import amp\n", "pass", "    ", "self.args.level is None"),
        ("from apex import amp\n", "pass", "", "self.args.level is None"),
    ],
    ids=["none beside", "in the branch", "below it"],
)
def test_where_amp_is_kept_on_a_model_the_test_around_the_set_up_is_the_switch(
    top: str, first: str, then: str, asked: str
) -> None:
    result = rewrite(ON_MODEL.format(top=top, first=first, then=then, asked=asked))
    assert not [f for f in result.findings if f.status == "manual" or f.code == "AMP531"], result.findings
    assert result.after is not None
    kept = result.after.partition("self.model.scaler = ")[2].partition("def step")[0]
    assert 'enabled=self.args.level is not None and self.args.level != "O0"' in kept
