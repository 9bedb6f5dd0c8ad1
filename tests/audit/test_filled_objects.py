"""Half values that a model puts into the attributes of an object that it gives back: AMP535, AMP542."""

from __future__ import annotations

from tests.audit.helpers import doubts_of, program

NET = """
import torch

class Data:
    def __init__(self):
        self.features = None
        self.scores = None

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Conv2d(3, 8, 3)
        self.neck = torch.nn.BatchNorm1d(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        features = self.base(x).mean((2, 3))
        data = Data()
        data.features = features
        data.plain = features.float()
        if self.training:
            data.scores = self.head(self.neck(features))
        return data
"""
DISTANCES = """
import torch

def distance(x, y):
    dist = torch.pow(x, 2).sum(1, keepdim=True) + torch.pow(y, 2).sum(1, keepdim=True).t()
    dist.addmm_(x, y.t(), beta=1, alpha=-2)
    return dist
"""
CENTERS = """
import torch
from distances import distance

class Centers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = torch.nn.Parameter(torch.randn(5, 8))

    def forward(self, x, labels):
        return (distance(x, self.centers) * labels).sum()
"""
TRAIN = """
import torch
from ignite.engine import Engine
from centers import Centers
from net import Data, Net
{imports}

class Parts:
    def __init__(self, cfg):
        self.model = Net().cuda()
        self.losses = {{}}
        self.xent = torch.nn.CrossEntropyLoss()
        self.center = Centers().cuda()
        self.optimizer = torch.optim.SGD([*self.model.parameters(), *self.center.parameters()], lr=0.1)

        def loss_function(data: Data):
            return self.xent(data.scores, data.labels)

        self.losses["xent"] = loss_function

        def loss_function(data: Data):
            return cfg.weight * self.center(data.{which}, data.labels)

        self.losses["center"] = loss_function
        {setup}

def trainer(parts):
    def update(engine, batch):
        x, labels = batch
        parts.optimizer.zero_grad()
        {region}
            data = parts.model(x.cuda())
            data.labels = labels
            loss = torch.tensor(0.0).cuda()
            for name, function in parts.losses.items():
                loss += function(data)
        {backward}
        return loss.item()

    return Engine(update)

def evaluator(parts, first=True):
    def infer(engine, batch):
        with torch.no_grad():
            x, labels = batch
            {region}
                data = parts.model(x.cuda())
            if first:
                return data.features, labels
            else:
                return data.{which}, labels

    return Engine(infer)
"""


def told(which: str, net: str = NET) -> list[str]:
    before = TRAIN.format(
        imports="from apex import amp",
        which=which,
        setup="models, self.optimizer = amp.initialize([self.model, self.center], self.optimizer, opt_level='O1')\n"
        "        self.model, self.center = models[0], models[1]",
        region="if True:",
        backward="with amp.scale_loss(loss, parts.optimizer) as scaled:\n"
        "            scaled.backward()\n"
        "        parts.optimizer.step()",
    )
    after = TRAIN.format(
        imports="",
        which=which,
        setup="self.scaler = torch.amp.GradScaler('cuda')\n"
        "        models = [self.model, self.center]\n"
        "        self.model, self.center = models[0], models[1]",
        region="with torch.autocast('cuda', dtype=torch.float16):",
        backward="parts.scaler.scale(loss).backward()\n"
        "        parts.scaler.step(parts.optimizer)\n"
        "        parts.scaler.update()",
    )
    files = {"train.py": before, "net.py": net, "distances.py": DISTANCES, "centers.py": CENTERS}
    lines = {path: program(text).splitlines() for path, text in files.items()}
    found = [d for d in doubts_of(files, {"train.py": after}) if d.code in ("AMP535", "AMP542")]
    return [f"{d.code} {d.verdict} {d.path}: {lines[d.path][d.line - 1].strip()}: {d.message}" for d in found]


def test_what_a_model_gives_in_an_object_reaches_a_product_by_a_closure_of_a_dictionary() -> None:
    found = [m for m in told("features") if "addmm_" in m]
    assert len(found) == 1, found
    assert found[0].startswith("AMP542 refuse train.py"), found
    assert "line 5 of distances.py" in found[0]
    assert not [m for m in told("plain") if "addmm_" in m]


def test_each_return_tells_of_what_it_gives() -> None:
    found = [m for m in told("features") if "ignite.engine.Engine" in m]
    assert len(found) == 2, found
    (single,) = [m for m in told("plain") if "ignite.engine.Engine" in m]
    assert "return data.features" in single
