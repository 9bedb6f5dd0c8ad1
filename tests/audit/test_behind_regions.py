"""What O1 ran in float32 whatever it was given, computed from values of a region just behind it: AMP535."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts

NETS = """
import torch
import torch.nn.functional as F
from apex import amp

class Members(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.members = torch.nn.ModuleList()
        for _ in range(count):
            self.members.append(torch.nn.Linear(4, 4))

    def nth(self, x, i):
        mean = self.members[i](x)
        return torch.distributions.Independent(torch.distributions.Normal(mean, torch.ones_like(mean)), 1)

    def plain(self, x, i):
        return self.members[i](x)

members = Members(3).cuda()
optimizer = torch.optim.SGD(members.parameters(), lr=0.1)
"""
SETUP = 'members, optimizer = amp.initialize(members, optimizer, opt_level="O1")\n'
REGION = 'with torch.autocast("cuda", dtype=torch.float16):'


def found(inside: str, after: str) -> list[Doubt]:
    body = "def run(loader, other):\n    for x, i in loader:\n"
    before = NETS + SETUP + body + f"        {inside}\n        {after}\n\nrun(loader, other)\n"
    now = NETS.replace("from apex import amp\n", "") + "scaler = torch.amp.GradScaler()\n" + body
    now += f"        {REGION}\n            {inside}\n        {after}\n\nrun(loader, other)\n"
    return [d for d in doubts(before, now) if d.code == "AMP535"]


OPERATIONS = (
    "out.std(dim=0)",
    "torch.std(out, dim=0)",
    "out.var(0)",
    "out ** 2",
    "2 ** out",
    "out.pow(2)",
    "torch.pow(out, 2)",
    "out.prod(1)",
    "out.sum(1)",
    "out.norm(dim=1)",
    "torch.norm(out)",
    "torch.dist(out, out)",
    "out.cumsum(0)",
    "out.cumprod(0)",
    "out.exp()",
    "torch.log(out)",
    "out.log2()",
    "out.expm1()",
    "out.reciprocal()",
    "out.rsqrt()",
    "F.softplus(out)",
    "F.gelu(out)",
    "torch.renorm(out, 2, 0, 1)",
    "F.cosine_similarity(out, out)",
    "out.tan()",
    "out.acos()",
    "out.erfinv()",
    "torch.sinh(out)",
    "out.cosh()",
    "out.log10()",
)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_that_o1_ran_in_float32(operation: str) -> None:
    assert len(found("out = members.plain(x, i)", f"kept = {operation}")) == 1
    assert not found("out = members.plain(x, i).float()", f"kept = {operation}")


def test_a_method_runs_the_network_by_what_it_holds_under_a_number_or_a_name() -> None:
    spread = "kept = torch.cat(out).std(dim=0)"
    for inside in ("out = [members.nth(x, i).mean]", "out = [members.plain(x, i)]"):
        (doubt,) = found(inside, spread)
        assert "std" in doubt.message
    assert not found("out = [members.nth(x, i).mean.float()]", spread)
    assert not found("out = [members.plain(x, i).float()]", spread)


def test_a_half_state_makes_a_recurrent_layer_raise() -> None:
    cell = "cell = torch.nn.GRUCell(4, 4).cuda(); kept = cell(x, STATE)"
    (doubt,) = found("out = members.plain(x, i)", cell.replace("STATE", "out"))
    assert "weights of cell are float32" in doubt.message
    assert not found("out = members.plain(x, i)", cell.replace("STATE", "out.float()"))
    lstm = "lstm = torch.nn.LSTM(4, 4).cuda(); kept = lstm(x, (STATE, STATE))"
    assert len(found("out = members.plain(x, i)", lstm.replace("STATE", "out"))) == 1
    assert not found("out = members.plain(x, i)", lstm.replace("STATE", "out.float()"))


MADE = "d = torch.distributions.Normal(members.plain(x, i), 1.0 * torch.ones_like(members.plain(x, i)))"


@pytest.mark.parametrize(
    ("made", "after", "told"),
    [
        (MADE, "kept = d.log_prob(d.rsample())", True),
        (MADE, "kept = d.entropy()", True),
        (MADE, "kept = torch.distributions.Independent(d, 1).log_prob(d.mean)", True),
        (MADE, "kept = d.mean.exp()", True),
        (MADE, "kept = d.log_prob(torch.zeros(4))", False),  # in the wider dtype
        (MADE, "kept = d.rsample()", False),
        (f"{MADE}; kept = d.log_prob(d.mean)", "kept.exp()", False),  # in the region, in float32
    ],
)
def test_what_a_distribution_computes_from_what_a_region_gave(made: str, after: str, told: bool) -> None:
    assert len(found(made, after)) == told
