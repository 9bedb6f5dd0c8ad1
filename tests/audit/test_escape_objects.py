"""Half values that an option lets go one of several ways, or that an object keeps for another of its methods: AMP535."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of

TRAIN = """
import torch
from losses import make_loss
from scores import Scores
{imports}

class GeM(torch.nn.Module):
    def forward(self, x):
        return x.clamp(min=1e-6).pow(3).mean((2, 3)).pow(1 / 3)

class Net(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.base = torch.nn.Conv2d(3, 8, 3)
        if cfg.gem:
            self.pool = GeM()
        else:
            self.pool = {pool}
        self.neck = torch.nn.BatchNorm1d(8)

    def forward(self, x):
        return self.neck(self.pool(self.base(x)).flatten(1))

def main(cfg, loader, test_loader):
    model = Net(cfg).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = make_loss(cfg)
    {setup}
    for x, y in loader:
        {region}
            loss = criterion(model(x), y)
        {backward}
    scores = Scores(cfg.queries)
    with torch.no_grad():
        for x, y in test_loader:
            {region}
                features = model(x)
            scores.update([features{leaves}, y])
    print(scores.compute())
"""
LOSSES = """
import torch

def distance(x, y):
    dist = torch.pow(x, 2).sum(1, keepdim=True) + torch.pow(y, 2).sum(1, keepdim=True).t()
    dist.addmm_(1, -2, ARGUMENTS)
    return dist

class Ranking:
    def __call__(self, features, target):
        return distance(features, features).mean()

def make_loss(cfg):
    if cfg.ranking:
        metric = Ranking()
    else:
        def metric(features, target):
            return 0

    def loss(features, target):
        return cfg.weight * metric(features, target)
    return loss
"""
SCORES = """
import torch

class Scores:
    def __init__(self, queries):
        self.queries = queries
        self.features = []
        self.ids = []

    def update(self, output):
        features, ids = output
        self.features.append(features)
        self.ids.extend(ids)

    def compute(self):
        features = torch.cat(self.features, dim=0)
        features = torch.nn.functional.normalize(features, dim=1)
        return features[: self.queries] @ features[self.queries :].t(), max(self.ids)
"""


def told(
    pool: str = "torch.nn.AdaptiveAvgPool2d(1)", arguments: str = "x, y.t()", leaves: str = "", train: str = TRAIN
) -> list[str]:
    before = train.format(
        imports="from apex import amp",
        pool=pool,
        setup="model, optimizer = amp.initialize(model, optimizer, opt_level='O1')",
        region="if cfg:",
        backward="with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()",
        leaves="",
    )
    after = train.format(
        imports="",
        pool=pool,
        setup="scaler = torch.amp.GradScaler('cuda')",
        region="with torch.autocast('cuda', dtype=torch.float16):",
        backward="scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()",
        leaves=leaves,
    )
    files = {"train.py": before, "losses.py": LOSSES.replace("ARGUMENTS", arguments), "scores.py": SCORES}
    found = [d for d in doubts_of(files, {"train.py": after}) if d.code in ("AMP535", "AMP542")]
    return [f"{d.path} {d.verdict}: {d.message}" for d in found]


def test_a_criterion_that_is_an_object_or_a_function_is_followed_both_ways() -> None:
    """A function of the same name on the other way hid the object; a pooling of the program's hid torch's."""
    found = [m for m in told() if "addmm_" in m]
    assert len(found) == 1
    assert found[0].startswith("losses.py review")
    assert "raises" in found[0]
    assert not [m for m in told(arguments="x.float(), y.t().float()") if "addmm_" in m]
    (unseen,) = [
        m for m in told(pool="GeM()") if "addmm_" in m
    ]  # a power is float32 in both: nothing is followed there
    assert "an argument may be float16" in unseen


def test_what_an_object_keeps_is_followed_into_its_other_methods() -> None:
    """O1 normalized in float32 wherever that stood; half features that `update` keeps are normalized in `compute`."""
    (message,) = [m for m in told() if "scores.py" in m]
    assert "normalize" in message
    assert "float16" in message
    assert not [m for m in told(leaves=".float()") if "scores.py" in m]
    assert not [m for m in told(pool="GeM()") if "scores.py" in m]


def test_what_an_object_keeps_is_followed_into_methods_that_were_followed_before() -> None:
    update = "            scores.update([features{leaves}, y])\n"
    sooner = TRAIN.replace("    print(scores.compute())\n", "")
    sooner = sooner.replace(update, f"            print(scores.compute())\n{update}")
    assert "normalize" in "".join(m for m in told(train=sooner) if "scores.py" in m)
    assert not [m for m in told(leaves=".float()", train=sooner) if "scores.py" in m]


KEPT = """
    import torch
    {imports}

    class Trainer:
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer
            {setup}

        def report(self):
            return {read}

        def forward(self, x):
            {region}
                self.output = self.model(x)
            {leaves}

    model = torch.nn.Linear(4, 2).cuda()
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    trainer.forward(torch.ones(2, 4).cuda())
    print(trainer.report())
    """


@pytest.mark.parametrize(
    ("level", "read", "leaves", "expected"),
    [
        ("O1", "torch.nn.functional.softmax(self.output, dim=1)", "pass", True),
        ("O1", "torch.sigmoid(self.output)", "pass", False),  # half under O1, too
        ("O2", "torch.sigmoid(self.output)", "pass", True),
        ("O2", "self.output.argmax(1)", "pass", False),
        ("O1", "torch.nn.functional.softmax(self.output, dim=1)", "self.output = self.output.float()", False),
        ("O1", "torch.nn.functional.softmax(self.other, dim=1)", "self.other = x", False),
    ],
)
def test_an_attribute_that_a_method_written_above_reads(level: str, read: str, leaves: str, expected: bool) -> None:
    parts = {"read": read, "leaves": leaves}
    before = KEPT.format(
        imports="from apex import amp",
        setup=f"self.model, self.optimizer = amp.initialize(model, optimizer, opt_level='{level}')",
        region="if True:",
        **parts,
    )
    after = KEPT.format(imports="", setup="pass", region="with torch.autocast('cuda', dtype=torch.float16):", **parts)
    assert bool([d for d in doubts(before, after) if d.code == "AMP535" and "output" in d.message]) is expected


KEEPING = """
import torch
{imports}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.base(x)

class Trainer:
    def __init__(self, args, loader):
        self.args, self.model = args, Net().cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.past = None
        {setup}

    def step(self, x):
        if self.args.fp16:
            {region}
                out = self.model(x if self.past is None else self.past)
        else:
            out = self.model(x if self.past is None else self.past)
        self.past = out
        loss = out.sum()
        {backward}

    def look(self):
        return self.model(self.past)
"""


def test_the_side_of_a_test_that_has_no_region_is_run_without_half_values() -> None:
    before = KEEPING.format(
        imports="from apex import amp",
        setup="if args.fp16:\n            self.model, self.optimizer = amp.initialize(self.model, self.optimizer)",
        region="if True:",
        backward="with amp.scale_loss(loss, self.optimizer) as scaled:\n            scaled.backward()\n        self.optimizer.step()",
    )
    after = KEEPING.format(
        imports="",
        setup='self.scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)',
        region='with torch.autocast("cuda", dtype=torch.float16):',
        backward="self.scaler.scale(loss).backward()\n        self.scaler.step(self.optimizer)\n        self.scaler.update()",
    )
    lines = after.splitlines()
    raised = [lines[d.line - 1].strip() for d in doubts(before, after) if "it raises" in d.message]
    assert raised == ["return self.model(self.past)"]
