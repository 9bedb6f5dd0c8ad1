"""What a model is exported or traced on, once its weights stay float32."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files
from tests.rules.programs import found

MODEL = """
    import torch


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.base(x)
    """
TRAIN = """
    import torch
    from apex import amp
    from model import Net


    def train(model, optimizer, x):
        loss = model(x).pow(2).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        optimizer.zero_grad()


    def main():
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
        train(model, optimizer, torch.ones(2, 4))
        {trace}
        print('"' + str(traced(torch.ones(1, 4)).dtype) + '"')


    if __name__ == "__main__":
        main()
    """


def migrated(trace: str) -> str:
    return check_files({"model.py": MODEL, "train.py": TRAIN.format(trace=trace)})["train.py"]


@pytest.mark.parametrize(
    "trace",
    [
        "dummy = torch.randn(1, 4).half()\n        traced = torch.jit.trace(model.base, dummy)",
        "dummy = torch.randn(1, 4).to(torch.float16)\n        traced = torch.jit.trace(model, (dummy,))",
        "traced = torch.jit.trace(model, example_inputs=torch.randn(1, 4).half())",
    ],
)
def test_it_stays_float32_and_the_trace_runs(trace: str, tmp_path: Path) -> None:
    text = migrated(trace)
    assert "half" not in text
    assert "float16)" not in text.partition("optimizer.zero_grad()")[2]
    assert run_files(tmp_path, {"model.py": MODEL_TEXT, "train.py": text}, "train.py") == "torch.float32"


MODEL_TEXT = "\n".join(line[4:] for line in MODEL.splitlines())


@pytest.mark.parametrize(
    "trace",
    [
        "copied = copy.deepcopy(model).half()\n        traced = torch.jit.trace(copied, torch.randn(1, 4).half())",
        "dummy = torch.randn(1, 4).half()\n        show(dummy)\n        traced = torch.jit.trace(model, dummy)",
        "other = torch.nn.Linear(4, 2).half()\n        traced = torch.jit.trace(other, torch.randn(1, 4).half())",
    ],
)
def test_what_else_is_half_is_left_alone(trace: str) -> None:
    result = rewrite_files({"model.py": MODEL, "train.py": TRAIN.format(trace=trace)})["train.py"]
    assert "torch.randn(1, 4).half()" in (result.after or "")
    assert not found(result, "AMP525")


def test_what_nothing_mends_is_told() -> None:
    trace = "dummy = torch.randn(1, 4).half()\n        show(dummy)\n        traced = torch.jit.trace(model.base, dummy)"
    result = rewrite_files({"model.py": MODEL, "train.py": TRAIN.format(trace=trace)})["train.py"]
    assert [f.review for f in found(result, "AMP540")] == ["review"]
