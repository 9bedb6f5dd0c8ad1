"""The state of a training program: taken, put in place."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import torch
from torch import nn

from amp_migrate.verify.recording import state


def momentum() -> tuple[nn.Module, torch.optim.Optimizer]:
    """An encoder that is trained, its average, and a buffer."""
    model = nn.Module()
    model.online = nn.Linear(3, 2)
    model.target = copy.deepcopy(model.online)
    model.register_buffer("queue", torch.zeros(4))
    return model, torch.optim.SGD(model.online.parameters(), lr=0.1)


def test_what_no_optimizer_moves_is_put_back_too() -> None:
    model, optimizer = momentum()
    with torch.no_grad():
        model.target.weight.fill_(2.0)
    taken = state.take([optimizer], [model])
    other, its = momentum()
    assert state.put(taken, [its], [other]) == []
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True))


def test_half_weights_follow_their_masters_and_are_no_state() -> None:
    model, _ = momentum()
    halves = list(model.online.half().parameters())
    optimizer = torch.optim.SGD([p.detach().float() for p in halves], lr=0.1)
    optimizer._amp_stash = SimpleNamespace(fp16_groups=[halves])
    assert [[p.shape for p in found] for found in state.unowned([optimizer, None], [model])] == [
        [p.shape for p in model.target.parameters()]
    ]


def test_a_network_that_one_side_trains_differently_is_left_alone() -> None:
    model, optimizer = momentum()
    taken = state.take([optimizer], [model])
    other, _ = momentum()
    before = [p.clone() for p in other.target.parameters()]
    its = torch.optim.SGD([*other.online.parameters(), other.target.weight], lr=0.1)
    told = state.put(taken, [its], [other])
    assert told == ["the parameters of optimizer 0 differ in number, order or shape"]
    assert all(torch.equal(one, two) for one, two in zip(before, other.target.parameters(), strict=True))
