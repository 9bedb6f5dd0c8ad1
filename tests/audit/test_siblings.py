"""Classes that share a base, of which one is set up: what its objects read and run is not laid to those of the others."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, told

TRAINERS = """
    import torch
    {imports}

    class Base:
        def __init__(self, model, optimizer, loss_f):
            self.model = model.cuda()
            self.optimizer = optimizer
            self.loss_f = loss_f

        def train(self, loader):
            self.model.train()
            if hasattr(self.loss_f, "train"):
                self.loss_f.train()
            for data in loader:
                self.iteration(data)

    class Plain(Base):
        def iteration(self, data):
            x, y = data
            loss = self.loss_f(self.model(x), y)
            loss.backward()
            self.optimizer.step()

    class Mixed(Plain):
        def __init__(self, model, optimizer, loss_f):
            super().__init__(model, optimizer, loss_f)
            {set_up}

        def iteration(self, data):
            x, y = data
            {region}
                loss = self.loss_f(self.model(x), y)
            {step}
"""
BEFORE = {
    "imports": "from apex import amp",
    "set_up": 'self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="{level}")',
    "region": "if True:",
    "step": "with amp.scale_loss(loss, self.optimizer) as scaled: scaled.backward()\n            self.optimizer.step()",
}
AFTER = {
    "imports": "",
    "set_up": 'self.scaler = torch.amp.GradScaler("cuda")',
    "region": 'with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()):',
    "step": "self.scaler.scale(loss).backward()\n            self.scaler.step(self.optimizer)\n            self.scaler.update()",
}
SCRIPT = """
    import argparse
    import torch
    from torch.nn import functional as F
    from networks import Net
    from trainers import Mixed, Plain

    def main():
        p = argparse.ArgumentParser()
        p.add_argument("--mixed", action="store_true")
        args = p.parse_args()
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        {made}
        trainer.train(data())

    main()
"""
NET = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(x)
"""
CHOSEN = """if args.mixed:
            trainer = Mixed(model, optimizer, F.cross_entropy)
        else:
            trainer = Plain(model, optimizer, F.cross_entropy)"""


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("trainer = Mixed(model, optimizer, F.cross_entropy)", []),
        (CHOSEN, []),
        # One model given to both: it was half when the other ran it.
        ("Mixed(model, optimizer, F.cross_entropy)\n        trainer = Plain(model, optimizer, F.cross_entropy)", [20]),
        ("trainer = Mixed(model, optimizer, torch.nn.Bilinear(4, 4, 1))", [32]),  # weights of its own
    ],
)
def test_what_one_class_prepares_is_not_what_a_class_beside_it_runs(made: str, expected: list[int]) -> None:
    trainers = TRAINERS.format(**BEFORE).replace("{level}", "O2")
    files = {"trainers.py": trainers, "networks.py": NET, "main.py": SCRIPT.format(made=made)}
    found = doubts_of(files, {"trainers.py": TRAINERS.format(**AFTER)})
    assert [d.line for d in found if d.code == "AMP531"] == expected
    assert not told(found, "AMP131")


def test_a_field_that_only_the_class_below_makes_is_missing_where_the_base_reads_it() -> None:
    after = {**AFTER, "set_up": "pass"}
    files = {"trainers.py": TRAINERS.format(**BEFORE).replace("{level}", "O2"), "networks.py": NET}
    below = """
    from trainers import Mixed

    class Scaled(Mixed):
        def __init__(self, model, optimizer, loss_f):
            super().__init__(model, optimizer, loss_f)
            self.scaler = make()
"""
    for made, expected in (("Mixed", "refuse"), ("Scaled", None)):
        script = SCRIPT.format(made=f"trainer = {made}(model, optimizer, F.cross_entropy)")
        script = script.replace(
            "from trainers import Mixed, Plain", "from below import Scaled\n    from trainers import Mixed"
        )
        found = doubts_of(
            {**files, "main.py": script, "below.py": below},
            {"trainers.py": TRAINERS.format(**after), "below.py": below},
        )
        assert [v for _, v in told(found, "AMP131")] == ([expected] if expected else [])


CHOSEN = """
    import torch
    {imports}

    def build():
        return torch.nn.Linear(3, 1).cuda()

    class Base:
        def __init__(self, opt):
            self.opt = opt

        def test(self):
            with torch.no_grad():
                self.forward()

    class Training(Base):
        def __init__(self, opt):
            Base.__init__(self, opt)
            self.net = build()
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
            {set_up}

        def forward(self):
            {region}
                self.output = self.net(self.input)

        def optimize(self):
            self.forward()
            {backward}

    class Testing(Base):
        def __init__(self, opt):
            Base.__init__(self, opt)
            self.net = build()

        def forward(self):
            self.output = self.net(self.input)
    """


@pytest.mark.parametrize("region", ["with torch.autocast('cuda', dtype=torch.float16):", "if True:"])
def test_which_class_is_made_is_out_of_sight_and_the_object_has_one_all_the_same(region: str) -> None:
    """`Base.test` runs the forward of the object's class: of one that sets nothing up, no set-up is seen to come before."""
    set_up = "self.net, self.optimizer = amp.initialize(self.net, self.optimizer, opt_level='O1')"
    scaled = "with amp.scale_loss(self.output.sum(), self.optimizer) as s:\n                s.backward()"
    step = "\n            self.optimizer.step()"
    before = CHOSEN.format(imports="from apex import amp", set_up=set_up, region="if True:", backward=scaled + step)
    native = "self.scaler.scale(self.output.sum()).backward()\n            self.scaler.step(self.optimizer)"
    after = CHOSEN.format(
        imports="",
        set_up="self.scaler = torch.amp.GradScaler('cuda')",
        region=region,
        backward=f"{native}\n            self.scaler.update()",
    )
    found = [d for d in doubts_of({"models.py": before}, {"models.py": after}) if d.code == "AMP531"]
    lines = [n for n, text in enumerate(after.splitlines()) if "self.net(" in text]
    ran = {d.line for d in found if "ran in half precision under Apex" in d.message}
    assert ran == (set() if "autocast" in region else {lines[0]})
    assert {d.line for d in found} - ran == {lines[1]}  # not seen, and told as that


DISTRIBUTED = """
import torch
from apex import amp


class Engine:
    def __init__(self, model, optimizer, teacher):
        self.model, self.optimizer = model, optimizer
        self.teacher = torch.load(teacher).cuda().eval()

    def run(self, loader):
        self.model.train()
        self.epoch(loader)

    def epoch(self, loader):
        for x in loader:
            loss = self.model(x).sum() + self.teacher(x).sum()
            loss.backward()
            self.optimizer.step()


class Distributed(Engine):
    def __init__(self, model, optimizer, teacher, mixed):
        super().__init__(model, optimizer, teacher)
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def epoch(self, loader):
        for x in loader:
            soft = self.teacher(x).sum()
            loss = self.model(x).sum() + soft
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()
            BASE
"""
ENGINE_RUN = """
from engine import Engine


def main(model, optimizer, loader):
    Engine(model, optimizer, "teacher.pt").run(loader)


main(*parts())
"""


@pytest.mark.parametrize(
    ("base", "lines"),
    [("pass", [28]), ("super().epoch(loader)", [16, 28])],
)
def test_another_network_that_a_method_with_another_definition_runs(base: str, lines: list[int]) -> None:
    """An object of the class that sets Apex up runs its own `epoch`; the base's only where that calls it."""
    before = DISTRIBUTED.replace("BASE", base)
    initialize = '        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")\n'
    after = before.replace("from apex import amp\n", "").replace(
        initialize, '        self.scaler = torch.amp.GradScaler("cuda")\n'
    )
    scaled = "            with amp.scale_loss(loss, self.optimizer) as scaled_loss:\n                scaled_loss.backward()\n"
    after = after.replace(
        f"{scaled}            self.optimizer.step()\n",
        "            self.scaler.scale(loss).backward()\n"
        "            self.scaler.step(self.optimizer)\n            self.scaler.update()\n",
    )
    after = after.replace(
        "            loss = self.model(x).sum() + soft\n",
        '            with torch.autocast("cuda", dtype=torch.float16):\n'
        "                loss = self.model(x).sum() + soft\n",
    )
    found = doubts_of({"engine.py": before, "main.py": ENGINE_RUN}, {"engine.py": after})
    assert [d.line for d in found if d.code == "AMP531" and d.message.startswith("self.teacher")] == lines
