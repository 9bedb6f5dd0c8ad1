"""A function within a method, which takes nothing and reads the object from around it, can be followed."""

from __future__ import annotations

from tests.rules.helpers import rewrite
from tests.rules.programs import found

PROGRAM = """
import torch
from torch import nn, optim
from apex import amp

class Owner:
    def __init__(self, net, half):
        self.half = half
        self.opt = optim.RMSprop(net.parameters(), lr=0.002)
        self.net = net
        if half:
            self.net, self.opt = amp.initialize(net, self.opt, opt_level="O2", loss_scale=256.0)

    def grads(self):
        return amp.master_params(self.opt) if self.half else self.net.parameters()

    def step(self, loss):
        self.opt.zero_grad()
        if self.half:
            with amp.scale_loss(loss, self.opt) as scaled:
                scaled.backward()
        else:
            loss.backward()

        def inner():
            return nn.utils.clip_grad_norm_(self.grads(), 2.0)

        norm = inner()
        self.opt.step()
        return norm

def main(half=True):
    owner = Owner(nn.Linear(4, 4).cuda(), half)
    for turn in range(20):
        owner.step(owner.net(torch.randn(10, 4).cuda()).float().mean())

main()
"""


def test_it_is_followed() -> None:
    assert not found(rewrite(PROGRAM), "AMP191")
