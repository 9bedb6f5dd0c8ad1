"""Several models and optimizers, kept in mappings: whose gradients a clip reads is told by the entry that it names."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite

PROGRAM = """
import torch
from apex import amp
from project import discriminator, generator, loader, options


class Trainer:
    def __init__(self):
        self.models = {'g': generator().cuda(), 'd': discriminator().cuda()}
        self.optimizers = {
            'g': torch.optim.Adam(self.models["g"].parameters()),
            'd': torch.optim.Adam(self.models["d"].parameters()),
        }
        SETUP

    def step(self, x):
        fake = self.models['g'](x)
        loss = fake.mean()
        self.optimizers['g'].zero_grad()
        with amp.scale_loss(loss, self.optimizers['g']) as scaled:
            scaled.backward()
        torch.nn.utils.clip_grad_norm_(CLIP['g'].parameters(), max_norm=10.0)
        self.optimizers['g'].step()
        if self.steps > 5:
            loss = self.models['d'](fake.detach()).mean()
            self.optimizers['d'].zero_grad()
            with amp.scale_loss(loss, self.optimizers['d']) as scaled:
                scaled.backward()
            torch.nn.utils.clip_grad_norm_(CLIP['d'].parameters(), max_norm=10.0)
            self.optimizers['d'].step()
        self.steps += 1
"""
TOGETHER = """(self.models['g'], self.models['d']), (self.optimizers['g'], self.optimizers['d']) = amp.initialize(
            [self.models['g'], self.models['d']], [self.optimizers['g'], self.optimizers['d']], opt_level="O1"
        )"""
EACH = """self.models['g'], self.optimizers['g'] = amp.initialize(self.models['g'], self.optimizers['g'], opt_level="O1")
        self.models['d'], self.optimizers['d'] = amp.initialize(self.models['d'], self.optimizers['d'], opt_level="O1")"""
HELD = """both = amp.initialize(
            [self.models['g'], self.models['d']], [self.optimizers['g'], self.optimizers['d']], opt_level="O1"
        )
        self.models['g'], self.models['d'] = both[0]
        self.optimizers['g'], self.optimizers['d'] = both[1]"""


@pytest.mark.parametrize("clip", ["self.models", "parameters=self.models"])
@pytest.mark.parametrize("setup", [TOGETHER, EACH, HELD])
def test_each_clip_has_its_own_unscaling(setup: str, clip: str) -> None:
    texts = check_files({"train.py": PROGRAM.replace("SETUP", setup).replace("CLIP", clip)})
    lines = [line.strip() for line in texts["train.py"].splitlines()]
    for name in "gd":
        (at,) = (i for i, line in enumerate(lines) if line == f"self.scaler.unscale_(self.optimizers['{name}'])")
        assert lines[at + 1].startswith("torch.nn.utils.clip_grad_norm_(")
        assert f"['{name}'].parameters()" in lines[at + 1]
    assert lines.count("self.scaler.update()") == 1


def test_a_clip_of_what_names_no_entry_reads_them_all() -> None:
    result = rewrite(PROGRAM.replace("SETUP", TOGETHER).replace("CLIP", "everything"))
    assert result.after is None
