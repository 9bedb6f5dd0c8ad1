"""Models made anew after the set-up and run through objects that keep them, and copies: AMP531."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts
from tests.rules.helpers import rewrite

PROGRAM = """
import copy
import torch
HEAD

class Net(torch.nn.Module):
    def forward(self, x):
        return x @ self.weight

class Base:
    def __init__(self, model):
        self.model = model.eval()

class Tester(Base):
    def __init__(self, model, name="a"):
        super().__init__(model)
        self.name = name

class Keeper:
    def __init__(self, loader, model):
        self.model = model
        self.model.eval()
        self.loader = loader

    def test(self):
        for x in self.loader:
            self.one(x)

    def one(self, x):
        REGION:
            self.model(x)

class Renewing:
    def __init__(self, loader, model):
        self.model = model
        self.loader = loader

    def anew(self):
        self.model = Net().cuda()
        for x in self.loader:
            REGION:
                self.model(x)

class Loading(Keeper):
    def load(self):
        self.model = Net().cuda()
        self.model.eval()

    def wrap(self):
        self.model = torch.nn.DataParallel(self.model)

    def maybe(self):
        if self.loader:
            self.model = Net()

    def all(self):
        self.load()
        self.test()

def test(net, loader):
    net.eval()
    for x in loader:
        REGION:
            net(x)

def main(loader):
    model = Net().cuda()
    model.train()
    early = copy.deepcopy(model)
    INITIALIZE
    late = copy.deepcopy(model)
    for x in loader:
        REGION:
            loss = model(x).sum()
        STEP
    CODE

main(load())
"""


def found(code: str, level: str) -> list[str]:
    """What is told of models that a migration runs in half where Apex did not."""
    whole = PROGRAM.replace("CODE", code)
    before = whole.replace("HEAD", "from apex import amp").replace("REGION", "if True")
    before = before.replace("INITIALIZE", f'model, optimizer = amp.initialize(model, make(model), opt_level="{level}")')
    before = before.replace(
        "STEP", "with amp.scale_loss(loss, optimizer) as s:\n            s.backward()\n        optimizer.step()"
    )
    after = whole.replace("HEAD", "").replace("INITIALIZE", "optimizer, scaler = make(model), torch.amp.GradScaler()")
    after = after.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16)')
    after = after.replace(
        "STEP", "scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()"
    )
    return [d.message.partition(" ")[0] for d in doubts(before, after) if "it ran in float32" in d.message]


@pytest.mark.parametrize(
    ("code", "called"),
    [
        ("best = Net().cuda()\n    Keeper(loader, best).test()", "self.model"),
        (
            "keeper = Keeper(loader, model)\n    keeper.test()\n    keeper = Keeper(loader, Net())\n    keeper.test()",
            "self.model",
        ),
        ("model = Net()\n    keeper = Keeper(loader, model=model)\n    keeper.test()", "self.model"),
        ("keeper = Renewing(loader, model)\n    keeper.anew()", "self.model"),
        ("keeper = Loading(loader, model)\n    keeper.load()\n    keeper.test()", "self.model"),
        ("keeper = Loading(loader, model)\n    keeper.all()", "self.model"),
        ("test(model, loader)\n    test(early, loader)", "net"),
        ("keeper = Keeper(loader, Net())\n    test(keeper.model, loader)\n    test(model, loader)", "net"),
        ("model = Net.load('best.pt')\n    test(model, loader)", "net"),
        ("model = Net()\n    model.load_state_dict(torch.load('best.pt'))\n    test(model, loader)", "net"),
        ("tester = Keeper(loader, early)\n    tester.test()", "self.model"),
    ],
)
def test_another_object_than_o2_was_given(code: str, called: str) -> None:
    assert found(code, "O2") == [called]
    assert not found(code, "O1")  # which ran all of them in half


@pytest.mark.parametrize(
    "code",
    [
        "Keeper(loader, model).test()",
        "keeper = Loading(loader, model)\n    keeper.wrap()\n    keeper.test()",
        "keeper = Loading(loader, model)\n    keeper.maybe()\n    keeper.test()",
        "keeper = Loading(loader, model)\n    keeper.test()\n    keeper.load()",
        "keeper = Keeper(loader, model)\n    keeper.test()",
        "test(late, loader)",  # a copy of what was half is half
        "test(model, loader)",
        "keeper = Keeper(loader, model)\n    test(keeper.model, loader)",
        "keeper = Keeper(loader, torch.nn.DataParallel(model))\n    keeper.test()",
        "model = torch.load('best.pt')\n    test(model, loader)",  # as half as it was when it was saved
        "if loader:\n        model = torch.load('best.pt')\n    else:\n        model = Net()\n    test(model, loader)",
        "model = torch.load('best.pt').cuda()\n    Keeper(loader, model).test()\n    test(model, loader)",
    ],
)
def test_the_object_that_was_given(code: str) -> None:
    assert not found(code, "O2")


HANDED = """
    import torch
    from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.body(x)

    class Trainer:
        def __init__(self, model, level):
            self.model = model.cuda()
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=level)

        def train(self, loader):
            for x, y in loader:
                loss = torch.nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
                self.optimizer.step()

    def prepare(model):
        return model

    def main(level, loader):
        CODE
        trainer.train(loader)
    """


@pytest.mark.parametrize(
    "code",
    [
        "trainer = Trainer(Net(), level)",
        "trainer = Trainer(model=Net().cuda(), level=level)",
        "trainer = Trainer(prepare(Net()), level)",
        "trainer = Trainer(torch.nn.DataParallel(Net()), level)",
        "trainer = [Trainer(Net(), level)][0]",
        "model = Net()\n        trainer = Trainer(model, level)",
    ],
)
def test_what_the_call_is_given_that_sets_up_is_there_before(code: str) -> None:
    """`Trainer(Net(), level)`, whose constructor calls `initialize`, is given a network that was made before."""
    result = rewrite(HANDED.replace("CODE", code))
    assert result.status == "migrated"
    assert not [f.message for f in result.findings if f.code == "AMP531"]
