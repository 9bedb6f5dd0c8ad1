"""Functions that run a network they have from around them, a variable of the file, which holds a new one at some calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files

PROGRAM = """
    import argparse
    import json
    import torch
    from apex.fp16_utils import FP16_Optimizer

    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true", default=True)
    args = parser.parse_args()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last = torch.nn.Linear(4, 1)

        def forward(self, x):
            return self.last(x)

        @classmethod
        def from_pretrained(cls, state):
            net = cls()
            net.load_state_dict(state)
            return net

    dtypes = []
    batches = [torch.ones(2, 4)]
    model = Net()
    if args.fp16:
        model.half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        optimizer = FP16_Optimizer(optimizer, static_loss_scale=128)

    def evaluate():
        for x in batches:
            dtypes.append(str(model(x).dtype))

    def fit():
        for x in batches:
            loss = model(x).sum()
            if args.fp16:
                optimizer.backward(loss)
            else:
                loss.backward()
            optimizer.step()
        BETWEEN

    fit()
    RENEWED
    evaluate()
    print(json.dumps(dtypes))
    """
NEW = "model = Net.from_pretrained(model.state_dict())"


def program(renewed: str, between: str = "evaluate()") -> str:
    return PROGRAM.replace("BETWEEN", between).replace("RENEWED", renewed)


def dtypes(folder: Path, renewed: str, between: str = "evaluate()") -> list[str]:
    """Those of the outputs in each evaluation of the migrated program."""
    text = check_files({"main.py": program(renewed, between)}, device="cpu")["main.py"]
    found: list[str] = run_files(folder, {"main.py": text}, "main.py")
    return [name.removeprefix("torch.") for name in found]


@pytest.mark.parametrize("renewed", [NEW, f"{NEW}\n    model.eval()", "model = Net()"])
def test_a_call_that_runs_a_new_network_hands_over_no_switch(renewed: str, tmp_path: Path) -> None:
    """The function runs the network that is trained, too: only its callers can tell."""
    assert dtypes(tmp_path, renewed) == ["float16", "float32"]


def test_no_region_where_all_calls_run_a_new_network(tmp_path: Path) -> None:
    assert dtypes(tmp_path, NEW, between="pass") == ["float32"]


@pytest.mark.parametrize(
    "renewed",
    ["model.eval()", f"{NEW}.half()", f"{NEW}\n    model.half()", f"if len(batches) > 1:\n        {NEW}"],
    ids=["the same", "made half", "made half below", "by choice"],
)
def test_what_may_be_half_keeps_its_region(renewed: str) -> None:
    after = rewrite(program(renewed), device="cpu").after or ""
    assert "use_amp" not in after
    assert after.count("torch.autocast(") == 2


def test_a_network_that_another_function_gives_the_variable() -> None:
    """Whether that ran by then is not asked."""
    renew = "def renew():\n        global model\n        model = Net()\n    renew()"
    after = rewrite(program(renew), device="cpu").after or ""
    assert after.count("torch.autocast(") == 2
