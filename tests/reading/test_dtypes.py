"""Which dtype a value has that is computed in a region, asked of what a network returns."""

from __future__ import annotations

import textwrap

import pytest

from amp_migrate.reading.values.dtypes import Dtypes
from tests.reading.test_project import project
from tests.reading.test_values import asked

HEAD = """
from functools import partial
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.scale = nn.Parameter(torch.ones([]))

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        x = x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-12)
        return self.weight * x

class Inference(nn.Module):
    def forward(self, x):
        if self.training:
            return x
        return F.softmax(x, 1)

class Net(nn.Module):
    def __init__(self, norm_layer=nn.LayerNorm, act=None):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8)
        self.chosen = norm_layer(8)
        self.own = Norm(8)
        self.made = partial(nn.LayerNorm, eps=1e-6)(8)
        self.several = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Dropout())
        self.other = nn.Sequential(nn.LayerNorm(8), nn.Sequential(nn.ReLU(), nn.Linear(8, 2)), nn.Identity())
        self.identity = nn.Identity()
        self.late = Inference()
        self.drop = nn.Dropout(0.1)
        self.table = nn.Embedding(3, 8)
        self.loss = nn.CrossEntropyLoss()
        self.head = nn.Linear(8, 2) if act else nn.Identity()
        self.one = nn.Parameter(torch.ones([]))

    def twice(self, x):
        return self.norm(x), x.argmax(1)

    def forward(self, x, y):
        h = self.body(x)
"""
ANSWERS = {
    "half": "h | self.late(h) | torch.relu(h) | self.drop(h) | h[:, 0] | h + h | h * 2 | self.other(x) | self.identity(h) | "
    "h @ h.t() | torch.cat([h, h], 1) | h.max(1)[0] | h.max(1).values | self.norm(h).half() | "
    "F.softmax(h, 1, dtype=torch.half) | h * self.one | h / h.norm() | [h, self.norm(h)][0] | h.cpu() | F.gelu(h) | "
    "h.std(1) | F.grid_sample(h, h) | torch.einsum('ij,ij->i', self.norm(h), h) | self.head(h) | h.sum() * h",
    "float32": "self.norm(h) | self.late(self.norm(h)) | self.chosen(h) | self.made(h) | self.own(h) | self.several(x) | "
    "self.drop(self.norm(h)) | self.norm(h)[:, 0] | self.norm(h)[0] | self.identity(self.norm(h)) | "
    "h + self.norm(h) | h / h.norm(dim=1, keepdim=True) | F.normalize(h) * h | (h * h).sum(1) | h ** 2 | "
    "torch.cat([h, self.norm(h)]) | self.norm(h).max(1)[0] | h.float() | h.to(torch.float32) | "
    "torch.softmax(h, 1).squeeze(-1) | self.norm(h).mean(1) | self.twice(h)[0] | h.exp().detach().cpu() | "
    "F.interpolate(h, size=4) | self.norm(h).view(1, -1).chunk(2) | torch.zeros(3, 4) | "
    "F.cross_entropy(h, y, reduction='none') | torch.where(h > 0, self.norm(h), h) | F.grid_sample(h, self.norm(h)) | "
    "h.type_as(self.norm(h)) | F.grid_sample(h, grid=self.norm(h))",
    "scalar": "F.cross_entropy(h, y) | self.loss(h, y) | h.norm() | h.sum() | self.norm(h).mean() | self.one | "
    "0.5 * F.mse_loss(h, x) + self.loss(h, y)",
    "integer": "h.argmax(1) | h.max(1)[1] | h.topk(5)[1] | h.max(1).indices | h > 0 | h.argmax(1).view(-1).cpu() | h.long() | "
    "torch.argmax(h, dim=1) | self.twice(h)[1] | (h > 0).sum() | h.to(torch.long) | not h",
    "host": "h.cpu().numpy() | h.mean().item() | np.exp(h.tolist()) | h.shape | h.item() + 1",
    "unknown": "x | self.missing(h) | load(h) | h + x | y + self.one | x.view(-1) | self.table(y) | self.norm",
}


def answer(value: str, before: str = "") -> str:
    """What a network returns that computes a value, and makes it in one more way before."""
    text = HEAD + textwrap.indent(f"{before}\nask({value})\n", " " * 8)
    p = project(net=text)
    _, ((module, node), *_) = asked(p)
    return p.once(Dtypes).of(module, node)


@pytest.mark.parametrize("dtype", ANSWERS)
def test_what_is_computed(dtype: str) -> None:
    given = {value: answer(value) for value in ANSWERS[dtype].split(" | ")}
    assert given == dict.fromkeys(given, dtype)


def test_what_comes_by_several_ways() -> None:
    assert answer("z", "z = self.norm(h)\nif y:\n    z = self.drop(z)") == "float32"
    assert answer("z", "z = self.norm(h)\nif y:\n    z = h") == "half"
    assert answer("z", "z = self.norm(h)\nif y:\n    z = load(h)") == "unknown"
    assert answer("z", "z = 0\nfor _ in y:\n    z += self.loss(h, y)") == "scalar"
    assert answer("z", "z = self.norm(h)\nz += h") == "float32"
    assert answer("z", "z = 0\nfor _ in y:\n    z = z + self.loss(h, y)") == "scalar"
    assert answer("z", "z = h\nfor _ in y:\n    a = z * 2\n    z = a + 1") == "half"
    assert answer("a", "z = h\nfor _ in y:\n    a = z * 2\n    z = a + 1") == "half"
    assert answer("z", "z = self.norm(h)\nfor _ in y:\n    z = self.norm(z) + z") == "float32"
    assert answer("sum(z) + torch.stack(z)", "z = []\nfor _ in y:\n    z.append(self.loss(h, y))") == "scalar"
    assert answer("z", "a, z = self.twice(h)") == "integer"
    assert answer("z", "z, a = self.twice(h)") == "float32"
    assert answer("z", "for z in [self.norm(h), self.own(h)]:\n    pass") == "float32"
    assert answer("z", "z = None\nif y:\n    z = self.norm(h)") == "float32"
