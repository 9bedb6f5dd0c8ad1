"""Methods of a network that run its layers in turn compute, too: what they are given half raised outside of a region."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

TRAIN = """
import argparse
import torch
from net import Net

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--generate", action="store_true")
args = parser.parse_args()


def train(model, loader, fp16):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if fp16:
        from apex import amp
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()


def generate(model, loader, fp16):
    if fp16:
        from apex import amp
        model, _ = amp.initialize(model, [], opt_level="O3")
    for x in loader:
        with torch.no_grad():
            x = x.cuda()
            if fp16:
                x = x.half()
            out = model.generate(x)
        print(out.cpu().numpy())


if __name__ == "__main__":
    model = Net().cuda()
    if args.generate:
        generate(model, torch.load("data"), args.fp16)
    else:
        train(model, torch.load("data"), args.fp16)
"""
NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList()
        for _ in range(2):
            self.layers.append(torch.nn.Linear(2, 2))

    def forward(self, x):
        return self.run(x)

    def run(self, x):
        for LOOP:
            x = RUNS
        return x

    def generate(self, x):
        return self.run(x)
"""


@pytest.mark.parametrize(
    ("loop", "runs"), [("layer in self.layers", "layer(x)"), ("i, layer in enumerate(self.layers[::-1])", "layer(x)")]
)
def test_layers_that_are_run_in_turn(loop: str, runs: str) -> None:
    results = rewrite_files({"train.py": TRAIN, "net.py": NET.replace("LOOP", loop).replace("RUNS", runs)})
    after = results["train.py"].after or ""
    assert (
        '            with torch.autocast("cuda", dtype=torch.float16, enabled=fp16):\n                out = model.generate(x)'
        in after
    )


def test_what_is_no_layer_of_it_runs_none() -> None:
    results = rewrite_files(
        {"train.py": TRAIN, "net.py": NET.replace("LOOP", "size in (2, 2)").replace("RUNS", "x + size")}
    )
    assert "with torch.autocast" not in (results["train.py"].after or "").partition("def generate")[2]


def test_a_half_input_is_told_of_where_no_region_is_written() -> None:
    train = TRAIN.replace('generate(model, torch.load("data"), args.fp16)', "generate(model, **torch.load('settings'))")
    net = NET.replace("LOOP", "layer in self.layers").replace("RUNS", "layer(x)")
    told = [
        f.message for f in rewrite_files({"train.py": train, "net.py": net})["train.py"].findings if f.code == "AMP531"
    ]
    assert [m for m in told if m.startswith("model.generate") and "x, which is made half here" in m]
    whole = train.replace("x = x.half()", "x = x.clone()")
    told = [
        f.message for f in rewrite_files({"train.py": whole, "net.py": net})["train.py"].findings if f.code == "AMP531"
    ]
    assert not [m for m in told if "made half here" in m]
