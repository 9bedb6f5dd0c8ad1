"""Several FP16_Optimizers: each has a loss scale of its own, so each gets a GradScaler, or the program is refused."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import apex, check_refused, found, native

IMPORTS = "from apex.fp16_utils import FP16_Optimizer"
MODEL = """
netG, netD = build().half(), build().half()
optG = torch.optim.Adam(netG.parameters())
optD = torch.optim.Adam(netD.parameters())
"""
WRAPS = "optG = FP16_Optimizer(optG, static_loss_scale=128.0)\noptD = FP16_Optimizer(optD, dynamic_loss_scale=True)"
LOOP = """
loss_D = criterion(netD(netG(x).detach()), y)
optD.zero_grad()
optD.backward(loss_D)
optD.step()
loss_G = criterion(netD(netG(x)), y)
optG.zero_grad()
optG.backward(loss_G)
optG.clip_master_grads(1.0)
optG.step()
print(optG.loss_scale, optD.loss_scale)
"""
NATIVE = """
with torch.autocast("cuda", dtype=torch.float16):
    loss_D = criterion(netD(netG(x).detach()), y)
optD.zero_grad()
scalerD.scale(loss_D).backward()
scalerD.step(optD)
scalerD.update()
with torch.autocast("cuda", dtype=torch.float16):
    loss_G = criterion(netD(netG(x)), y)
optG.zero_grad()
scalerG.scale(loss_G).backward()
scalerG.unscale_(optG)
torch.nn.utils.clip_grad_norm_(netG.parameters(), 1.0)
scalerG.step(optG)
scalerG.update(128.0)
print(scalerG.get_scale(), scalerD.get_scale())
"""
SCALERS = 'scalerG = torch.amp.GradScaler("cuda", init_scale=128.0)\nscalerD = torch.amp.GradScaler("cuda")'


def test_each_has_a_scaler_with_the_settings_it_had() -> None:
    before = apex(LOOP, WRAPS, imports=IMPORTS, model=MODEL)
    check_rewrite(before, native(NATIVE, SCALERS, model=MODEL.replace(".half()", "")))


def test_each_state_is_saved_beside_its_optimizer() -> None:
    wraps = WRAPS.replace("static_loss_scale=128.0", "dynamic_loss_scale=True")
    save = 'torch.save({"G": optG.state_dict(), "D": optD.state_dict()}, "last.pt")'
    after = rewrite(apex(LOOP, wraps, imports=IMPORTS, model=MODEL, tail=save)).after
    assert after is not None
    assert '"G": optG.state_dict(), "scalerG": scalerG.state_dict(), ' in after
    assert '"D": optD.state_dict(), "scalerD": scalerD.state_dict()}' in after


def test_each_state_is_loaded_into_its_own_scaler() -> None:
    wraps = WRAPS.replace("static_loss_scale=128.0", "dynamic_loss_scale=True")
    load = 'saved = torch.load("last.pt")\noptG.load_state_dict(saved["G"])\noptD.load_state_dict(saved["D"])'
    after = rewrite(apex(LOOP, f"{wraps}\n{load}", imports=IMPORTS, model=MODEL)).after
    assert after is not None
    for name in ("scalerG", "scalerD"):
        assert f'if "{name}" in saved:\n    {name}.load_state_dict(saved["{name}"])\n' in after


def test_a_trainer_keeps_one_beside_each_optimizer() -> None:
    source = """
        import torch
        from apex.fp16_utils import FP16_Optimizer


        class Trainer:
            def __init__(self, actor, critic):
                self.actor, self.critic = actor, critic
                self.actor_optim = FP16_Optimizer(torch.optim.Adam(actor.parameters()), dynamic_loss_scale=True)
                self.critic_optim = FP16_Optimizer(torch.optim.Adam(critic.parameters()), dynamic_loss_scale=True)

            def step(self, x):
                loss = self.critic(x).sum()
                self.critic_optim.backward(loss)
                self.critic_optim.step()
                loss = self.critic(self.actor(x)).sum()
                self.actor_optim.backward(loss)
                self.actor_optim.step()
        """
    after = rewrite(source).after
    assert after is not None
    for name in ("actor", "critic"):
        assert f"        self.scaler_{name} = torch.amp.GradScaler" in after
        assert (
            f"        self.scaler_{name}.scale(loss).backward()\n        self.scaler_{name}.step(self.{name}_optim)"
            in after
        )
        assert f"        self.scaler_{name}.update()\n" in after


@pytest.mark.parametrize("call", ["update(optD, loss_D)\nupdate(optG, loss_G)", "for o, l in pairs:\n    update(o, l)"])
def test_a_helper_that_serves_several_is_refused(call: str) -> None:
    helper = "\n\ndef update(optimizer, loss):\n    optimizer.backward(loss)\n    optimizer.step()\n"
    loop = (
        f"loss_D, loss_G = criterion(netD(x), y), criterion(netG(x), y)\npairs = (optD, loss_D), (optG, loss_G)\n{call}"
    )
    check_refused(apex(loop, WRAPS, imports=IMPORTS + helper, model=MODEL), "AMP707")


def test_one_optimizer_wrapped_in_either_branch_needs_one_scaler() -> None:
    wraps = (
        "if static:\n    optimizer = FP16_Optimizer(optimizer, static_loss_scale=128.0)\n"
        "else:\n    optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)"
    )
    loop = "loss = criterion(model(x), y)\noptimizer.backward(loss)\noptimizer.step()"
    result = rewrite(apex(loop, wraps, imports=f"{IMPORTS}\nfrom project import static"))
    assert result.after is not None
    assert result.after.count("GradScaler(") == 1
    assert not found(result, "AMP707")
