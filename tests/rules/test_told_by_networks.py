"""A method of a network that tells of what was counted is no forward, and gets no region."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

FILES = {
    "net.py": """
        import torch
        from counting import Accuracy


        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)
                self.accuracy = Accuracy()

            def forward(self, x):
                return self.layer(x)

            def get_metrics(self, reset: bool = False):
                return {"accuracy": TOLD}
        """,
    "wrapper.py": """
        import torch
        from apex import amp


        class Wrapper:
            def __init__(self, net):
                optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
                self.model, self.optimizer = amp.initialize(net, optimizer, opt_level="O1")

            def step(self, x):
                loss = self.model(x).float().sum()
                self.optimizer.zero_grad()
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
                self.optimizer.step()
        """,
    "main.py": """
        from data import batches
        from net import Net
        from wrapper import Wrapper

        wrapper = Wrapper(Net().cuda())
        told = []
        for number, x in enumerate(batches):
            wrapper.step(x)
            told.append(wrapper.model.get_metrics(reset=(number % 10) == 0)["accuracy"])
        """,
}


@pytest.mark.parametrize(
    ("told", "computes"),
    [
        ("self.accuracy.get_metric(reset)", False),
        ("self.accuracy.get_metric(reset=True)", False),
        ("self.accuracy.get_metric(self.layer.weight)", True),
        ("self.layer(self.last)", True),
    ],
)
def test_what_only_tells_gets_no_region(told: str, computes: bool) -> None:
    results = rewrite_files({name: text.replace("TOLD", told) for name, text in FILES.items()})
    assert "torch.autocast" in (results["wrapper.py"].after or "")
    assert ("torch.autocast" in (results["main.py"].after or "")) is computes
