"""Half values that an object keeps in entries of what it has, for another of its methods: AMP535."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts_of

METRIC = """
import numpy as np
import torch
from torchvision.models import inception_v3

class Metric:
    def __init__(self):
        self.meters = {}
        self.last = []
        self.model = inception_v3()

    def batch(self, images, mode):
        key = f"run_{mode}"
        if key not in self.meters:
            self.meters[key] = {"seen": []}
        found = self.activations(images)
        KEEP

    def reduce(self, mode):
        key = f"run_{mode}"
        found = READ
        return np.cov(found)

    def activations(self, images):
        return torch.flatten(self.model(images), start_dim=1)
"""
NET = """
import torch
from metric import Metric

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3)

    def init_metrics(self):
        self.metric = Metric()

    def forward(self, x):
        return self.conv(x)

    def update(self, x, mode):
        self.metric.batch(x, mode)

    def summary(self, mode):
        return self.metric.reduce(mode)
"""
TRAIN = """
import torch
from net import Net
IMPORT

def main(loader):
    model = Net().cuda()
    model.init_metrics()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    SETUP
    for x in loader:
        REGION
            loss = model(x).float().mean()
        BACKWARD
        REGION
            model.update(x, "train")
    REGION
        print(model.summary("train"))
"""


def found(keep: str, read: str, level: str = "O1", net: str = NET) -> list[Doubt]:
    metric = METRIC.replace("KEEP", keep).replace("READ", read)
    before = TRAIN.replace("IMPORT", "from apex import amp").replace("REGION", "if True:")
    before = before.replace("SETUP", f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")')
    scaled = "with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()\n        optimizer.step()"
    before = before.replace("BACKWARD", scaled)
    after = TRAIN.replace("IMPORT", "").replace("SETUP", 'scaler = torch.amp.GradScaler("cuda")')
    after = after.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16):')
    after = after.replace(
        "BACKWARD", "scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()"
    )
    files = {"metric.py": metric, "net.py": net}
    told = doubts_of({**files, "train.py": before}, {"train.py": after})
    return [d for d in told if d.code == "AMP535"]


@pytest.mark.parametrize(
    ("keep", "read"),
    [
        ('self.meters[key]["seen"].append(found.cpu())', 'torch.cat(self.meters[key]["seen"]).numpy()'),
        ('self.meters[key]["seen"].append(found.cpu())', 'torch.cat(self.meters[key]["seen"]).cpu().data.numpy()'),
        ('self.meters[key]["seen"].append(found.detach())', 'torch.cat(self.meters[key]["seen"]).cpu().numpy()'),
        ("self.meters[key] = found.cpu()", "self.meters[key].numpy()"),
        ("self.last.append(found.cpu())", "torch.cat(self.last).numpy()"),
    ],
)
def test_what_a_metric_puts_on_the_cpu_in_a_region_is_told_where_numpy_gets_it(keep: str, read: str) -> None:
    (doubt,) = found(keep, read)
    assert (doubt.path, doubt.verdict) == ("metric.py", "look")
    assert "out of sight" in doubt.message
    assert "float16 array" in doubt.message


@pytest.mark.parametrize(
    ("keep", "read"),
    [
        ('self.meters[key]["seen"].append(found.float().cpu())', 'torch.cat(self.meters[key]["seen"]).numpy()'),
        ('self.meters[key]["seen"].append(found.cpu())', 'torch.cat(self.meters[key]["seen"]).float().numpy()'),
        ('self.meters[key]["seen"].append(found.argmax(1).cpu())', 'torch.cat(self.meters[key]["seen"]).numpy()'),
        ('self.meters[key]["seen"].append(found.cpu())', "torch.rand(3).numpy()"),
    ],
)
def test_what_is_float32_or_an_index_or_read_by_nobody_is_not_told(keep: str, read: str) -> None:
    assert not found(keep, read)


def test_o2_left_the_cpu_alone() -> None:
    assert not found(
        'self.meters[key]["seen"].append(found.cpu())', 'torch.cat(self.meters[key]["seen"]).numpy()', "O2"
    )


def test_an_object_that_a_forward_fills() -> None:
    net = NET.replace("return self.conv(x)", 'self.metric.batch(x, "train")\n        return self.conv(x)')
    net = net.replace("self.metric.batch(x, mode)", "pass")
    (doubt,) = found(
        'self.meters[key]["seen"].append(found.cpu())', 'torch.cat(self.meters[key]["seen"]).numpy()', net=net
    )
    assert doubt.path == "metric.py"
