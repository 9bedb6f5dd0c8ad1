"""A class is idle only where nothing in sight can make an object of it, under whichever name, or by one that is computed."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, told

BEFORE = """
    import torch
    from apex import amp
    {importing}

    def main(args, batches):
        net = {making}.cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
        for x in batches:
            loss = net(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
"""
AFTER = """
    import torch
    {importing}

    def main(args, batches):
        net = {making}.cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x in batches:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = net(x).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
"""
NETS = """
    import abc
    import sys

    import torch
    from registries import RegistryMeta

    MADE = {{}}

    class Kept(type):
        pass

    class Base(torch.nn.Module{kind}):
        {keeping}

    class Mix(Base):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            return torch.einsum("bi,ij->bj", x, self.table)

    class Wide(Mix):
        pass

    def build(name):
        return {built}
"""
KEEPING = """def __init_subclass__(cls):
            MADE[cls.__name__.lower()] = cls"""


OTHERS = """
    from nets import Mix as Encoder, build

    def instantiate(name):
        return build(name)
"""


def spoken_of(importing: str, making: str, *, keeping: str = "pass", built: str = "None", kind: str = "") -> bool:
    """Whether the audit tells of what the classes compute."""
    nets = NETS.format(keeping=keeping, built=built, kind=kind)
    before = {"train.py": BEFORE.format(importing=importing, making=making), "nets.py": nets, "others.py": OTHERS}
    found = doubts_of(before, {"train.py": AFTER.format(importing=importing, making=making)})
    return bool(told(found, "AMP535"))


@pytest.mark.parametrize(
    ("importing", "making"),
    [
        ("from nets import Mix", "Mix()"),
        ("from nets import Mix as Backbone", "Backbone()"),
        ("from nets import Wide as Backbone", "Backbone()"),
        ("from others import Encoder", "Encoder()"),
        ("from nets import *", "eval(args.arch)()"),
        ("import nets", 'eval("nets." + args.arch)()'),
        ("from nets import *", "vars()[args.arch]()"),
        ("import nets", "made(attrgetter(args.arch)(nets))"),
        ("import nets; from hydra.utils import instantiate", "instantiate(args.model)"),
        ("import nets; from pydoc import locate", 'locate("nets.Mix")()'),
    ],
)
def test_what_may_be_made_is_told(importing: str, making: str) -> None:
    assert spoken_of(importing, making)


@pytest.mark.parametrize(
    "built",
    [
        "getattr(sys.modules[__name__], name)()",
        "made(getattr(sys.modules[__name__], name))",
        "made(vars(sys.modules[name]))",
    ],
)
def test_a_file_may_find_its_own_by_name(built: str) -> None:
    assert spoken_of("from nets import build", "build(args.arch)", built=built)


@pytest.mark.parametrize(
    ("keeping", "kind", "kept"),
    [
        ("pass", "", False),
        (KEEPING, "", True),
        ("pass", ", metaclass=Kept", True),
        ("pass", ", metaclass=RegistryMeta", True),
        ("pass", ", metaclass=abc.ABCMeta", False),
    ],
)
def test_what_comes_by_each_class_may_keep_it(keeping: str, kind: str, kept: bool) -> None:
    assert spoken_of("from nets import MADE", "MADE[args.arch]()", keeping=keeping, kind=kind) is kept


@pytest.mark.parametrize(
    ("importing", "making"),
    [
        ("from nets import build", "build(args.arch)"),
        ("from nets import build, Mix as Backbone", "build(args.arch)"),
        ("from others import instantiate", "instantiate(args.arch)"),
        ("import nets", "nets.build(vars()['args'], locals())"),
    ],
)
def test_what_nothing_names_is_not(importing: str, making: str) -> None:
    assert not spoken_of(importing, making, built="torch.nn.Linear(4, 4)")
