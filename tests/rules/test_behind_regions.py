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
