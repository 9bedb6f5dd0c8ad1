"""Methods of networks in which nothing ever was half, and those that compute in it: AMP531."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
import torch
from apex import amp


def rotations(x):
    first = torch.nn.functional.normalize(x[..., :3], dim=-1)
    second = {inner}
    return torch.stack((first, second, torch.cross(first, second, dim=-1)), -1)


class Poses(torch.nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.table = {table}
        self.norm = torch.nn.LayerNorm(6)
        self.free = True

    def pose(self, ind):
        if self.free is None:
            raise RuntimeError("no pose")
        return rotations({norm}(self.table(ind)))


def main(batches):
    poses = Poses(8, 6).cuda()
    model = torch.nn.Linear(9, 2).cuda()
    optimizer = torch.optim.SGD([*model.parameters(), *poses.parameters()], lr=0.1)
    (model, poses), optimizer = amp.initialize([model, poses], optimizer, opt_level="O1")
    for ind, y in batches:
        turned = poses.pose(ind)
        print(turned.shape)
        loss = train(model, turned, y)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()


def train(model, turned, y):
    return torch.nn.functional.mse_loss(model(turned.flatten(1)), y)


if __name__ == "__main__":
    main([(torch.arange(4).cuda(), torch.ones(4, 2).cuda())])
"""
FLOAT = {"inner": "x[..., 3:].float()", "table": "torch.nn.Embedding(count, width)", "norm": "self.norm"}


SCALED = """        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
"""
NATIVE = """        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
INITIALIZE = '    (model, poses), optimizer = amp.initialize([model, poses], optimizer, opt_level="O1")\n'


def told(**parts: str) -> list[str]:
    before = PROGRAM.format(**FLOAT | parts)
    after = before.replace(SCALED, NATIVE).replace("from apex import amp\n", "")
    after = after.replace(INITIALIZE, '    scaler = torch.amp.GradScaler("cuda")\n')
    region = '    with torch.autocast("cuda", dtype=torch.float16):\n        return torch.nn'
    after = after.replace("    return torch.nn.functional.mse", f"{region}.functional.mse")
    return [d.message for d in doubts(before, after) if d.code == "AMP531"]


def test_a_method_that_looks_up_and_normalizes_was_float32_under_apex() -> None:
    assert told() == []
    assert told(table="torch.nn.Embedding(count, width) if width else None") == []


@pytest.mark.parametrize(
    ("drawn", "said"),
    [
        ("torch.distributions.Categorical(logits=x[..., 3:]).probs", False),
        ("torch.distributions.categorical.Categorical(torch.softmax(x[..., 3:], -1)).probs", False),
        ("torch.distributions.MultivariateNormal(x[..., 3:], torch.eye(3)).mean", True),
    ],
)
def test_a_distribution_computes_no_products_but_one_of_several_variables(drawn: str, said: bool) -> None:
    assert bool(told(inner=drawn)) is said


@pytest.mark.parametrize(
    "parts",
    [
        {"table": "torch.nn.Bilinear(count, width, 6)"},
        {"table": "torch.nn.Sequential(torch.nn.Embedding(count, width), torch.nn.Linear(width, 6))"},
        {"inner": "x[..., 3:] @ x.new_ones(3, 3)"},
        {"inner": "torch.matmul(x[..., 3:], x.new_ones(3, 3))"},
        {"inner": "x[..., 3:].matmul(x.new_ones(3, 3))"},
        {"inner": "x[..., 3:].half()"},
        {"norm": "self.unknown"},
        {"norm": "torch.nn.Linear(6, 6)"},
        {"table": "torch.nn.Embedding(count, width) if width else torch.nn.Linear(count, width)"},
    ],
)
def test_a_method_that_may_compute_in_half_is_told(parts: dict[str, str]) -> None:
    assert len(told(**parts)) == 1
