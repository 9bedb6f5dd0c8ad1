"""What is computed just behind a region, of what it gave: in float32 as under Apex, or in the region."""

from __future__ import annotations

import torch

from tests.rules.helpers import names_of, rewrite

SPREAD = """
import torch
from apex import amp

torch.manual_seed(0)


class Members(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.members = torch.nn.ModuleList()
        for _ in range(count):
            self.members.append(torch.nn.Linear(4, 4))

    def nth(self, x, i):
        mean = self.members[i](x)
        return torch.distributions.Independent(torch.distributions.Normal(mean, torch.ones_like(mean)), 1)


def reward(members, x):
    guesses = []
    for i in range(3):
        guesses.append(members.nth(x, i).mean.unsqueeze(0))
    guesses = torch.cat(guesses)
    assert len(guesses.shape) == 3
    return (guesses.std(dim=0) * guesses.std(dim=0)).mean(dim=1) * 10000


members = Members(3)
optimizer = torch.optim.SGD(members.parameters(), lr=0.1)
members, optimizer = amp.initialize(members, optimizer, opt_level="O1")
x, seen = torch.randn(8, 4), []
for _ in range(2):
    seen.append(reward(members, x))
    loss = -members.nth(x, 0).log_prob(x).mean()
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""


def test_the_spread_of_what_members_of_a_list_gave_is_computed_in_float32() -> None:
    result = rewrite(SPREAD, device="cpu")
    assert "guesses.float().std(dim=0) * guesses.float().std(dim=0)" in str(result.after)
    assert {r.dtype for r in names_of(result.after)["seen"]} == {torch.float32}


HANDED = """
import torch
from apex import amp

torch.manual_seed(0)


class Trainer:
    def __init__(self):
        self.net, self.value = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        self.first = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.second = torch.optim.SGD(self.value.parameters(), lr=0.1)
        [self.net, self.value], [self.first, self.second] = amp.initialize(
            [self.net, self.value], [self.first, self.second], opt_level="O1", num_losses=2
        )

    def value_loss(self, x, target):
        mean = self.value(x)
        dist = torch.distributions.Normal(mean, torch.ones_like(mean))
        assert len(target.shape) == 2, target.shape
        logs = dist.log_prob(target)
        assert len(logs.shape) == 2, logs.shape
        loss = -logs.mean()
        return loss, dist

    def update(self, optimizer, loss, number):
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer, loss_id=number) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()

    def train(self, x, y):
        out = self.net(x)
        loss = (out - y).abs().sum()
        self.update(self.first, loss, 0)
        with torch.no_grad():
            y = y * 1
        value_loss, dist = self.value_loss(x, y[:, :1])
        self.update(self.second, value_loss, 1)
        return value_loss.item()


trainer = Trainer()
seen = [trainer.train(torch.randn(8, 4), 3 * torch.ones(8, 4)) for _ in range(3)]
"""


def test_a_loss_that_is_handed_to_what_scales_it_is_computed_in_the_region_of_its_forward() -> None:
    result = rewrite(HANDED, device="cpu")
    assert "            logs = dist.log_prob(target)\n        assert len(logs.shape) == 2" in str(result.after)
    assert len(names_of(result.after)["seen"]) == 3
