"""Methods of the program's own objects that are called through a wrapper of torch's: `trainer.module.gen_update(out)`. AMP535."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

TEXT = """
import torch
import torch.nn.functional as F
{imports}

class Trainer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 3)
        self.net.cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        {setup}

    def forward(self, x):
        {region}
            return self.net(x)

    def gen_update(self, out):
        return {update}

{other}
def main(loader, gpus):
    trainer = Trainer()
    if gpus > 1:
        trainer = {wrap}
    for x in loader:
        out = trainer.forward(x)
        if gpus > 1:
            trainer.module.gen_update(out)
        else:
            trainer.gen_update(out)
"""


def told(update: str, wrap: str, other: str = "") -> list[str]:
    parts = {"update": update, "wrap": wrap, "other": other}
    before = TEXT.format(
        imports="from apex import amp",
        setup="self.net, self.optimizer = amp.initialize(self.net, self.optimizer, opt_level='O1')",
        region="if True:",
        **parts,
    )
    after = TEXT.format(
        imports="",
        setup="self.scaler = torch.amp.GradScaler('cuda')",
        region="with torch.autocast('cuda', dtype=torch.float16):",
        **parts,
    )
    return [d.message for d in doubts(before, after) if d.code == "AMP535"]


@pytest.mark.parametrize(
    "wrap", ["torch.nn.DataParallel(trainer)", "torch.nn.parallel.DistributedDataParallel(trainer)"]
)
def test_a_wrapped_object_gives_its_own_methods(wrap: str) -> None:
    assert not told("F.softmax(out.float(), 1)", wrap)
    (only,) = told("F.softmax(out, 1)", wrap)
    assert "softmax is computed in it" in only


def test_an_object_that_keeps_another_as_its_module_is_no_wrapper() -> None:
    other = "class Own:\n    def __init__(self, trainer):\n        self.module = make(trainer)\n"
    assert "trainer.module.gen_update is out of sight" in "".join(
        told("F.softmax(out.float(), 1)", "Own(trainer)", other)
    )
