"""Arrays that NumPy gets below a region of what parts of a model give: rows of layers, parts out of a registry, hooks (AMP535)."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts_of

TRAIN = """
import torch
from nets import make
IMPORT

def main(cfg, loader):
    model = make(cfg)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    SETUP
    for x, y in loader:
        REGION
            loss = model(x, y)
        BACKWARD
"""
SCALED = "with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()\n        optimizer.step()"
NATIVE = "scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()"


def found(nets: str, level: str = "O1") -> list[Doubt]:
    before = TRAIN.replace("IMPORT", "from apex import amp").replace("REGION", "if True:").replace("BACKWARD", SCALED)
    before = before.replace("SETUP", f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")')
    after = TRAIN.replace("IMPORT", "").replace("SETUP", 'scaler = torch.amp.GradScaler("cuda")')
    after = after.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16):').replace("BACKWARD", NATIVE)
    told = doubts_of({"nets.py": nets, "train.py": before}, {"train.py": after})
    return [d for d in told if d.code == "AMP535"]


ROWS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.body = nn.Sequential(LAYERS)

    def forward(self, x, y):
        start, other = self.both(x)
        self.seen = start[0].cpu().numpy()
        return other.float().mean()

    def both(self, x):
        return self.body(x).squeeze(1), x

def make(cfg):
    return Net(cfg).cuda()
"""


@pytest.mark.parametrize(
    "layers",
    [
        "nn.Conv1d(4, 1, 1), nn.Sigmoid()",
        "nn.Linear(4, 1), nn.BatchNorm1d(1), nn.ReLU(), nn.Dropout(0.1)",
        "nn.Sequential(nn.Linear(4, 1), nn.ReLU()), nn.Flatten()",
    ],
)
def test_a_row_of_layers_gives_what_the_last_does_that_decides_on_the_dtype(layers: str) -> None:
    (doubt,) = found(ROWS.replace("LAYERS", layers))
    assert doubt.verdict == "review"
    assert "start[0]" in doubt.message


@pytest.mark.parametrize(
    "layers",
    [
        "nn.Linear(4, 1), nn.LayerNorm(1), nn.ReLU()",
        "nn.Linear(4, 1), nn.Softmax(dim=1), nn.Dropout(0.1)",
        "nn.ReLU(), nn.Dropout(0.1)",
    ],
)
def test_a_row_of_layers_that_ends_in_float32_or_is_given_it(layers: str) -> None:
    assert not found(ROWS.replace("LAYERS", layers))


HEADS = """
import torch
from registry import HEADS, build_head

class BaseHead(torch.nn.Module):
    def loss(self, score, labels):
        self.top = score.detach().cpu().numpy(), labels.detach().cpu().numpy()
        return torch.nn.functional.cross_entropy(score, labels)

@HEADS.register
class ClsHead(BaseHead):
    def forward(self, x):
        return self.fc(x)

@HEADS.register
class BoxHead(torch.nn.Module):
    def loss(self, score, boxes, rois, targets):
        self.top = boxes.cpu().numpy()
        return score.float().mean()

class Net(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cls_head = build_head(cfg.head)

    def forward(self, x, y):
        score = self.cls_head(x)
        return self.cls_head.loss(CALL)

def make(cfg):
    return Net(cfg).cuda()
"""


def test_a_method_of_a_part_out_of_a_registry_is_followed_by_what_that_is_called() -> None:
    (doubt,) = found(HEADS.replace("CALL", "score, y.squeeze()"))
    assert (doubt.path, doubt.verdict) == ("nets.py", "look")
    assert "score.detach().cpu().numpy()" in doubt.message


@pytest.mark.parametrize("call", ["score.float(), y", "score.argmax(1), y"])
def test_what_such_a_method_is_given_in_float32_or_as_an_index(call: str) -> None:
    assert not found(HEADS.replace("CALL", call))


def test_a_method_that_takes_fewer_values_is_not_meant() -> None:
    (doubt,) = found(HEADS.replace("CALL", "score, score, y, y"))
    assert "boxes.cpu().numpy()" in doubt.message


HOOKS = """
import torch

class Outputs:
    def __init__(self, module, names):
        self.outputs = {}
        for name in names:
            getattr(module, name).register_forward_hook(HOOK)

    def wrap(self, name):
        def hook(model, input, output):
            self.outputs[name] = output.detach()OUT
        return hook

    def method(self, model, input, output):
        self.outputs[model] = output.detach()OUT

class Net(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)
        self.outputs = Outputs(self, ["fc"])

    def forward(self, x, y):
        return self.fc(x).float().mean()

def make(cfg):
    return Net(cfg).cuda()
"""


@pytest.mark.parametrize("hook", ["self.wrap(name)", "self.method"])
def test_what_a_hook_is_given_may_be_half(hook: str) -> None:
    (doubt,) = found(HOOKS.replace("HOOK", hook).replace("OUT", ".cpu().numpy()"))
    assert doubt.verdict == "look"
    assert "output.detach().cpu().numpy()" in doubt.message
    assert not found(HOOKS.replace("HOOK", hook).replace("OUT", ".float().cpu().numpy()"))
    assert not found(HOOKS.replace("HOOK", hook).replace("OUT", ".cpu().numpy()"), "O2")
