"""Regions in which a network runs on half copies that are stale, or have no history, keep none."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite
from tests.rules.trained import PRELUDE, check_trained

HARD = """
class Hard(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = build()

    def forward(self, x):
        with torch.no_grad():
            order = self.body(x).abs().flatten().argsort()
        return self.body(x[order[2:]]), order[2:]


model = Hard()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1", enabled={enabled})
for x, y in loader:
    output, kept = model(x)
    loss = criterion(output, y[kept])
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(amp.master_params(optimizer), 1.0))
    optimizer.step()
"""


def test_a_network_that_runs_without_gradients_first_keeps_no_half_copies() -> None:
    after = check_trained(HARD.format(enabled="True"))
    assert '    with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):\n' in after
    result = rewrite(PRELUDE + HARD.format(enabled="fast").replace("class", "fast = True\nclass", 1))
    assert result.after is not None
    assert "dtype=torch.float16, enabled=fast, cache_enabled=False):\n" in result.after
    assert not [f for f in result.findings if f.code == "AMP536"]
    assert any(f.code == "AMP501" and f.review == "look" and "half copies" in f.message for f in result.findings)


def test_one_run_a_region_keeps_them() -> None:
    program = HARD.format(enabled="True").replace("torch.no_grad()", "torch.enable_grad()")
    assert "cache_enabled" not in check_trained(program)


CLONED = """
class Scaled(torch.utils.data.Dataset):
    def __init__(self, mean):
        self.mean = mean

    def __getitem__(self, index):
        return torch.ones(4) - self.mean


class Margin(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = build()
        self.register_buffer("t", torch.zeros(1))

    def forward(self, x):
        scores = self.body(x) * 1.0
        with torch.no_grad():
            self.t = scores.mean({axis}) * 0.01 + 0.99 * self.t
        return scores


class Focal(torch.nn.Module):
    def forward(self, scores, y):
        loss = (scores.float() - y) ** 2
        return loss.mean({axis}).sum()


focal = Focal()
model = Margin()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = focal(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(amp.master_params(optimizer), 1.0))
    optimizer.step()
"""


@pytest.mark.parametrize("axis", ["", "-1", "dim=(0, 1)"])
def test_a_mean_of_tensors_is_no_network_that_runs_twice_whatever_is_called_so(axis: str) -> None:
    result = rewrite(PRELUDE + CLONED.format(axis=axis))
    assert result.after is not None
    assert "autocast" in result.after
    assert "cache_enabled" not in result.after


HANDED = {
    "nets.py": """
import torch


class Wide(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layer = torch.nn.Linear(2, n)

    def forward(self, x):
        return self.layer(x)


def wide(n):
    return Wide(n)


class Dynamic(torch.nn.Module):
    def weights(self, net, x):
        with torch.no_grad():
            return net(x).softmax(dim=1).max(1).values

    def forward(self, scores, y, w):
        return (torch.nn.functional.cross_entropy(scores, y, reduction="none") * w).mean()
""",
    "train.py": """
import torch
from apex import amp
from nets import Dynamic, wide


def train(net, other, optimizer, criterion, loader):
    for x, y in loader:
        optimizer.zero_grad()
        w = criterion.weights(ASKED)
        loss = criterion(net(x), y, w)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


net, other = wide(3), wide(3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
[net, other], optimizer = amp.initialize([net, other], optimizer, opt_level="O1")
train(net, other, optimizer, Dynamic(), [(torch.ones(2, 2), torch.zeros(2).long())])
""",
}


@pytest.mark.parametrize(("asked", "keeps"), [("net=net, x=x", False), ("net=other, x=x", True)])
def test_a_network_that_another_one_is_handed(asked: str, keeps: bool) -> None:
    """The function that makes it has several callers: it is the same one where it goes by the same name."""
    files = {p: t.replace("ASKED", asked) for p, t in HANDED.items()}
    after = check_files(files)["train.py"]
    assert ("cache_enabled=False" not in after) is keeps
