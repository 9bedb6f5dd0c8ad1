"""Programs that share what steps for them, each with an FP16_Optimizer and a loss scale of its own: no process has two of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files, run_files

STEPPER = """
    class Stepper:
        def __init__(self, optimizer):
            self.optimizer = optimizer
            self.steps = 0

        def step(self):
            self.optimizer.step()
            self.steps += 1
    """
PROGRAM = """
    import argparse
    import json

    import torch
    from apex.fp16_utils import FP16_Optimizer
    from stepper import Stepper


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--static", type=float, default=64.0)
        args = parser.parse_args()
        model = torch.nn.Linear(4, 2).half()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = FP16_Optimizer(optimizer, SETTINGS)
        stepper = Stepper(optimizer)
        for _ in range(3):
            loss = model(torch.ones(3, 4).half()).float().pow(2).mean()
            optimizer.zero_grad()
            optimizer.backward(loss)
            stepper.step()
        print(json.dumps(SHOWN))


    if __name__ == "__main__":
        main()
    """
SETTINGS = {
    "window": ("dynamic_loss_scale=True, dynamic_loss_args={'scale_window': 500}", "growth_interval=500"),
    "start": (
        "dynamic_loss_scale=True, dynamic_loss_args={'init_scale': 2 ** 8, 'scale_window': 30}",
        "init_scale=2 ** 8, growth_interval=30",
    ),
    "default": ("dynamic_loss_scale=True", 'GradScaler("cpu")'),
}


def program(settings: str) -> str:
    return PROGRAM.replace("SETTINGS", settings).replace("SHOWN", "stepper.steps")


def test_each_program_keeps_its_own_settings(tmp_path: Path) -> None:
    files = {f"{name}.py": program(settings) for name, (settings, _) in SETTINGS.items()}
    texts = check_files({"stepper.py": STEPPER, **files}, device="cpu")
    for name, (_, expected) in SETTINGS.items():
        assert expected in texts[f"{name}.py"], texts[f"{name}.py"]
        assert run_files(tmp_path, texts, f"{name}.py") == 3
    assert texts["stepper.py"].count(".update()") == 1


def test_one_program_has_a_static_scale(tmp_path: Path) -> None:
    files = {"moving.py": program(SETTINGS["window"][0]), "fixed.py": program("static_loss_scale=args.static")}
    texts = check_files({"stepper.py": STEPPER, **files}, device="cpu")
    assert "growth_interval=500" in texts["moving.py"]
    assert "growth_interval" not in texts["fixed.py"]
    for name in files:
        shown = texts[name].replace("stepper.steps))", "scaler.get_scale()))")
        scale = run_files(tmp_path, {**texts, name: shown}, name)
        assert scale == 64.0 if name == "fixed.py" else scale >= 2.0**12


def test_two_in_one_process_are_told_to_be_settled_first() -> None:
    both = "import window\nimport start\n\nwindow.main()\nstart.main()\n"
    files = {f"{name}.py": program(SETTINGS[name][0]) for name in ("window", "start")}
    results = rewrite_files({"stepper.py": STEPPER, **files, "both.py": both})
    told = [f for r in results.values() for f in r.findings if f.status == "manual"]
    assert any("several FP16_Optimizers" in f.message for f in told)


ASKED = {
    "tested": "if 'fp32_from_fp16' in self.optimizer.state_dict():\n                self.masters = True",
    "tested in its keys": "if 'fp32_from_fp16' not in self.optimizer.state_dict().keys():\n                self.masters = None",
    "read": "self.masters = self.optimizer.state_dict()['fp32_from_fp16'][0]",
    "got": "self.masters = self.optimizer.state_dict().get('fp32_from_fp16')",
    "in a variable": "state = self.optimizer.state_dict()\n            self.masters = state.get('fp32_from_fp16')",
    "in a function": "self.masters = masters_of(self.optimizer.state_dict())",
    "the scaler": "self.scale = self.optimizer.state_dict()['loss_scaler'].loss_scale",
}
MORE = """

    def masters_of(state):
        return state.get("fp32_from_fp16")
    """


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
def test_what_asks_for_the_masters_is_the_reason(asked: str) -> None:
    stepper = STEPPER.replace("self.steps = 0", f"self.steps = 0\n            {asked}") + MORE
    results = rewrite_files({"stepper.py": stepper, "window.py": program(SETTINGS["window"][0])})
    told = [f for f in results["stepper.py"].findings if f.status == "manual"]
    assert any(f.code == "AMP707" and "only the state of an FP16_Optimizer has" in f.message for f in told), told
    assert results["window.py"].after is None


OTHERS = {
    "its own state": "if 'momentum' in self.optimizer.state_dict():\n                self.masters = True",
    "another mapping": "if 'loss_scaler' in vars(self):\n                self.masters = True",
}


@pytest.mark.parametrize("asked", OTHERS.values(), ids=OTHERS.keys())
def test_what_asks_for_something_else_is_none(asked: str) -> None:
    stepper = STEPPER.replace("self.steps = 0", f"self.steps = 0\n            {asked}")
    results = rewrite_files({"stepper.py": stepper, "window.py": program(SETTINGS["window"][0])})
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]


KEPT = """
    import torch
    from apex.fp16_utils import FP16_Optimizer

    def save(state, path):
        checkpoint = {"optimizer_state_dict": state, "cur_iter": 3}
        if checkpoint["cur_iter"] > 2:
            torch.save(checkpoint["optimizer_state_dict"], path)
        ASKED

    def train(loader):
        model = torch.nn.Linear(4, 2).cuda().half()
        optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), dynamic_loss_scale=True)
        for x in loader:
            optimizer.zero_grad()
            loss = model(x).float().sum()
            optimizer.backward(loss)
            optimizer.step()
            save(optimizer.state_dict(), "last.pt")
    """


def test_a_mapping_of_the_programs_own_that_holds_the_state_may_be_asked() -> None:
    result = rewrite(KEPT.replace("ASKED", "return checkpoint"))
    assert [f.message for f in result.findings if f.status == "manual"] == []
    assert "GradScaler" in (result.after or "")


@pytest.mark.parametrize("asked", ["state['cur_iter']", "checkpoint['optimizer_state_dict']['fp32_from_fp16']"])
def test_the_state_itself_may_not_be_asked(asked: str) -> None:
    told = [f for f in rewrite(KEPT.replace("ASKED", f"return {asked}")).findings if f.status == "manual"]
    assert any("only the state of an FP16_Optimizer has" in f.message for f in told)
