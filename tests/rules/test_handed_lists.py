"""A function that is handed the optimizers as a list and sets them up: what it is given are several, each stepped once."""

from __future__ import annotations

import torch

from tests.rules.helpers import names_of, rewrite

SOURCE = """\
import torch
from apex import amp


class Base:
    def __init__(self, model, critic, extra, optimizers, half):
        self.model, self.critic, self.extra, self.half = model, critic, extra, half
        self.opt_m, self.opt_c, self.opt_e = optimizers
        self.losses = {}
        [self.model, self.critic], [self.opt_m, self.opt_c, self.opt_e] = self.prepare(
            [self.model, self.critic], [self.opt_m, self.opt_c, self.opt_e], losses=3
        )

    def prepare(self, models, optimizers, losses):
        if self.half:
            models, optimizers = amp.initialize(models, optimizers, opt_level="O1", num_losses=losses)
        return models, optimizers

    def back_c(self, loss):
        if self.half:
            with amp.scale_loss(loss, self.opt_c, loss_id=0) as scaled:
                scaled.backward()
        else:
            loss.backward()

    def back_m(self, loss):
        if self.half:
            with amp.scale_loss(loss, self.opt_m, loss_id=1) as scaled:
                scaled.backward()
        else:
            loss.backward()

    def back_e(self):
        if self.extra is None:
            return
        if "extra" in self.losses:
            if self.half:
                with amp.scale_loss(self.losses["extra"], [self.opt_e, self.opt_m], loss_id=2) as scaled:
                    scaled.backward(retain_graph=True)
            else:
                self.losses["extra"].backward(retain_graph=True)


class Trainer(Base):
    def train(self, loader):
        for x in loader:
            made = self.model(x)
            critic_loss = self.critic(made.detach()).pow(2).mean()
            self.opt_c.zero_grad()
            self.back_c(critic_loss)
            self.opt_c.step()
            loss = self.critic(made).pow(2).mean()
            self.opt_m.zero_grad()
            if self.extra is not None:
                self.losses["extra"] = self.extra(made).pow(2).mean()
                self.opt_e.zero_grad()
                self.back_e()
                self.opt_e.step()
            self.back_m(loss)
            self.opt_m.step()
"""


def trained(text: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    networks = [torch.nn.Linear(3, 3) for _ in range(3)]
    optimizers = [torch.optim.SGD(n.parameters(), lr=0.1) for n in networks]
    trainer = names_of(text)["Trainer"](*networks, optimizers, half=False)
    trainer.train([torch.randn(4, 3) for _ in range(3)])
    return [p.detach() for n in networks for p in n.parameters()]


def test_each_of_them_is_stepped_once_in_an_iteration() -> None:
    result = rewrite(SOURCE)
    assert result.after is not None
    assert [f for f in result.findings if f.status == "manual"] == []
    assert result.after.count("self.scaler.update()") == 1
    for name in ("opt_c", "opt_e", "opt_m"):
        assert f"self.scaler.step(self.{name})" in result.after
    plain = SOURCE.replace("from apex import amp\n", "")
    for old, new in zip(trained(plain), trained(result.after), strict=True):
        assert torch.equal(old, new)
