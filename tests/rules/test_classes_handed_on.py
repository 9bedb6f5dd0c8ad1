"""A class that is handed on makes the model where it is called: that runs no forward, and stands in no region."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import argparse
import torch
from apex import amp

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(8, width)

    def forward(self, x):
        return self.layer(x)

class Loader:
    def __init__(self, network_class):
        self.network_class = network_class

    def load(self, args, path):
        model = self.network_class(args.width)
        model.load_state_dict(torch.load(path))
        return model.cuda()

def restore(args, network_class, path, *, strict=True):
    model = network_class(args.width)
    model.load_state_dict(torch.load(path), strict=strict)
    return model.cuda()

def through(args, network_class, path):
    return restore(args, network_class, path, strict=False)

def load(args):
    if args.resume:
        return RESTORED
    return Net(args.width).cuda()

def train(args, batches, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in batches:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--width", type=int, default=2)
    parser.add_argument("--resume", default="")
    args = parser.parse_args()
    train(args, [], load(args))
    args.resume = "m.pt"
    model = load(args)
    with torch.no_grad():
        print([model(x).sum().item() for x, y in []])

main()
"""
RESTORED = [
    "restore(args, Net, args.resume)",
    "restore(args, network_class=Net, path=args.resume)",
    "through(args, Net, args.resume)",
    "Loader(Net).load(args, args.resume)",
]


@pytest.mark.parametrize("restored", RESTORED)
def test_no_region_where_a_model_is_made(restored: str) -> None:
    result = rewrite(PROGRAM.replace("RESTORED", restored))
    text = result.after or ""
    assert text.count("torch.autocast(") == 2  # of the training, and of what is printed in the end
    assert "def restore(args, network_class, path, *, strict=True):\n    model = network_class(args.width)\n" in text
    assert "def load(self, args, path):\n        model = self.network_class(args.width)\n" in text
    assert not [f for f in result.findings if f.code in ("AMP531", "AMP220")]
