"""Programs that share the function which runs the model: each call of it is switched by whether its own program had set Apex up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

ENGINE = """
    import torch

    def evaluate(model, batches, flip=False):
        with torch.no_grad():
            return [str(model(x).dtype) for x in batches]
    """
NET = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x)
    """
SCRIPT = """
    import json
    import sys

    import torch
    from apex import amp

    from engine import evaluate
    from nets import Net

    BATCHES = [torch.ones(2, 4)]

    def main(only):
        model = Net()
        if only:
            print(json.dumps(evaluate(model, BATCHES)))
            {leave}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in BATCHES:
            loss = model(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        print(json.dumps(evaluate(model, BATCHES)))

    main({only})
    """


def files(only: bool, leave: str = "sys.exit(0)") -> dict[str, str]:
    script = SCRIPT.format(only=only, leave=leave)
    return {
        "engine.py": ENGINE,
        "nets.py": NET,
        "first.py": script,
        "second.py": script,
        "third.py": script.replace("BATCHES = [", "BATCHES = [torch.ones(3, 4), "),
    }


@pytest.mark.parametrize("leave", ["sys.exit(0)", "return", "exit()"])
@pytest.mark.parametrize("only", [True, False])
@pytest.mark.parametrize("entry", ["first.py", "second.py", "third.py"])
def test_what_is_evaluated_before_the_set_up_stays_float32_in_every_program(
    entry: str, only: bool, leave: str, tmp_path: Path
) -> None:
    texts = check_files(files(only, leave), device="cpu", dtype="bfloat16")
    assert set(run_files(tmp_path, texts, entry)) == {"torch.float32" if only else "torch.bfloat16"}


def test_no_finding_contradicts_another() -> None:
    found = [f for r in rewrite_files(files(True)).values() for f in r.findings]
    assert not [f for f in found if f.code == "AMP531"]
    (told,) = [f.message for f in found if f.code == "AMP220"]
    assert "left out, as in first.py:15, second.py:15, third.py:15" in told
    assert [f.line for f in found if f.code == "AMP517"] == [24, 24]
