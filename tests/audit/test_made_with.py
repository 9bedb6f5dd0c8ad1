"""What an object was made with decides what its methods find switched on, and a property what its attribute holds."""

from __future__ import annotations

from tests.audit.helpers import doubts_of

MANAGER = """
import torch
import torch.nn as nn


class Manager:
    def __init__(self, net, mix_prec=None):
        self.net = net.cuda()
        self.teacher = nn.Linear(8, 2).cuda()
        self.mix_prec = mix_prec
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        SET_UP
        self.net = nn.DataParallel(self.net)

    @property
    def network(self):
        return self.net.module if isinstance(self.net, nn.DataParallel) else self.net

    @network.setter
    def network(self, new):
        self.net = new

    def validate(self, loader, net=None):
        if net is None:
            net = self.net
        if not isinstance(net, nn.DataParallel):
            net = nn.DataParallel(net)
        net.eval()
        with torch.no_grad():
            for x in loader:
                REGION
                    y = net(x)
        return y

    def validate_all(self, loader):
        return self.validate(loader, self.network)

    def train(self, loader):
        self.teacher.eval()
        for x, target in loader:
            REGION
                loss = nn.functional.mse_loss(self.net(x), TAUGHT)
            BACKWARD
"""
BEFORE = (
    MANAGER.replace(
        "SET_UP",
        "if mix_prec is not None:\n            from apex import amp\n"
        "            self.network, self.optimizer = amp.initialize(self.network, self.optimizer, opt_level=mix_prec)",
    )
    .replace("REGION", "if True:")
    .replace(
        "BACKWARD",
        "from apex import amp\n            with amp.scale_loss(loss, self.optimizer) as scaled:\n"
        "                scaled.backward()\n            self.optimizer.step()",
    )
)
AFTER = (
    MANAGER.replace(
        "SET_UP", 'self.scaler = torch.amp.GradScaler("cuda", enabled=mix_prec is not None and mix_prec != "O0")'
    )
    .replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()):')
    .replace(
        "BACKWARD",
        "self.scaler.scale(loss).backward()\n            self.scaler.step(self.optimizer)\n"
        "            self.scaler.update()",
    )
)
EVALUATE = """
import torch.nn as nn

from manager import Manager

net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
manager = Manager(MADE)
print(manager.validate(loader, net=net))
manager.train(loader)
"""


def told(made: str = "net", after: str = AFTER, taught: str = "target") -> list[str]:
    files = {"manager.py": BEFORE.replace("TAUGHT", taught), "evaluate.py": EVALUATE.replace("MADE", made)}
    changed = files | {"manager.py": after.replace("TAUGHT", taught)}
    return [d.message for d in doubts_of(files, changed) if d.code == "AMP531"]


def test_an_object_made_without_mixed_precision_runs_nothing_in_half() -> None:
    assert told() == []


def test_one_that_is_made_with_it_was_set_up_in_its_constructor() -> None:
    assert told('net, mix_prec="O1"') == []
    assert told("net, args.mix_prec") == []


def test_a_switch_that_is_on_without_it_is_told_of() -> None:
    after = AFTER.replace("mix_prec is not None and mix_prec", "mix_prec")
    messages = told(after=after)
    assert [m.partition(",")[0] for m in messages] == [f"{net} runs under autocast now" for net in ("net", "self.net")]
    assert "called from evaluate.py:7" in messages[0]


def test_a_network_beside_the_one_behind_a_property_is_told_of() -> None:
    (message,) = told(taught="self.teacher(x)")
    assert message.startswith("self.teacher was not given to amp.initialize")
