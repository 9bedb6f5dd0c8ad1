"""How the scale grows where each loss has a scaler of its own under Apex: AMP205 and AMP207."""

from __future__ import annotations

import pytest

from tests.rules.helpers import names_of, rewrite
from tests.rules.programs import found

PROGRAM = """
import torch
from apex import amp

torch.manual_seed(0)
net, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
first, second = torch.optim.SGD(net.parameters(), lr=0.1), torch.optim.SGD(head.parameters(), lr=0.1)
[net, head], [first, second] = amp.initialize([net, head], [first, second], opt_level="O1", num_losses=3)


def train(x):
    loss = net(x).abs().mean()
    first.zero_grad()
    with amp.scale_loss(loss, first, ONE) as scaled_loss:
        scaled_loss.backward()
    first.step()
    loss = head(net(x).detach()).abs().mean()
    second.zero_grad()
    with amp.scale_loss(loss, second, TWO) as scaled_loss:
        scaled_loss.backward()
    loss = (net(x) * head(x)).abs().mean()
    with amp.scale_loss(loss, [first, second], loss_id=2) as scaled_loss:
        scaled_loss.backward()
    second.step()


for _ in range(4):
    train(torch.randn(8, 4))
"""


@pytest.mark.parametrize(
    ("one", "two", "several"),
    [("loss_id=0", "loss_id=1", False), ("loss_id=2", "loss_id=1", True), ("loss_id=0", "loss_id=0", True)],
)
def test_what_each_scaler_of_apex_counted_is_what_the_updates_are(one: str, two: str, several: bool) -> None:
    result = rewrite(PROGRAM.replace("ONE", one).replace("TWO", two), device="cpu")
    assert bool(found(result, "AMP207")) is several
    (told,) = {f.message for f in found(result, "AMP205")}
    assert "every update" not in told
    assert "begins the count towards its growth anew" in told
    assert names_of(result.after)["scaler"].state_dict()["_growth_tracker"] == 4  # as many as turns


STEPPED = """
import torch
from apex import amp

net, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
first, second = torch.optim.SGD(net.parameters(), lr=0.1), torch.optim.SGD(head.parameters(), lr=0.1)
[net, head], [first, second] = amp.initialize([net, head], [first, second], opt_level="O1", num_losses=2)


def step(loss, optimizer, number):
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer, loss_id=number) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()


for _ in range(4):
    x = torch.randn(8, 4)
    step(net(x).float().abs().mean(), first, 0)
    step(head(x).float().abs().mean(), second, 1)
"""


def test_where_each_loss_has_an_update_of_its_own_the_scale_grows_by_all_of_them() -> None:
    result = rewrite(STEPPED, device="cpu")
    assert not found(result, "AMP207")
    (told,) = found(result, "AMP205")
    assert "every update counts towards its growth" in told.message
    assert names_of(result.after)["scaler"].state_dict()["_growth_tracker"] == 8
