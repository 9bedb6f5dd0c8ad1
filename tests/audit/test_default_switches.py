"""A region whose switch is a parameter that a call leaves at False is off in that call: nothing that it gives is half. AMP535."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of

HELPERS = """
    import torch

    def embed(model, loader{switch}):
        model.eval()
        return run(model, loader{handed})

    def run(model, loader{switch}):
        found = []
        for x in loader:
            {region}
                found.append(model(x))
        return torch.cat(found)
"""
TRAIN = """
    import torch
    from helpers import embed
    from networks import Net
    {imports}

    def main(loader):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        {set_up}
        for x in loader:
            {region}
                loss = model(x).sum()
            {step}
        return embed(model, loader{handed})

    main(data())
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
MEASURE = """
    import torch
    from helpers import embed
    from networks import Net

    def measure(loader):
        found = embed(Net(), loader{given})
        return torch.cdist(found, found).max()

    measure(data())
"""


@pytest.mark.parametrize(
    ("given", "default", "told"),
    [("", "False", False), (", False", "False", False), (", True", "False", True), ("", "True", True)],
)
def test_the_switch_of_the_call_counts(given: str, default: str, told: bool) -> None:
    on = 'with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=mixed):'
    before = {
        "helpers.py": HELPERS.format(switch="", handed="", region="with torch.no_grad():"),
        "train.py": TRAIN.format(
            imports="from apex import amp",
            set_up='model, optimizer = amp.initialize(model, optimizer, opt_level="O2")',
            region="with torch.enable_grad():",
            step="with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()\n            optimizer.step()",
            handed="",
        ),
        "networks.py": NET,
        "measure.py": MEASURE.format(given=""),
    }
    after = {
        "helpers.py": HELPERS.format(switch=f", mixed={default}", handed=", mixed", region=on),
        "train.py": TRAIN.format(
            imports="",
            set_up='scaler = torch.amp.GradScaler("cuda")',
            region='with torch.enable_grad(), torch.autocast("cuda", dtype=torch.float16):',
            step="scaler.scale(loss).backward()\n            scaler.step(optimizer)\n            scaler.update()",
            handed=", mixed=True",
        ),
        "measure.py": MEASURE.format(given=given),
    }
    found = [d for d in doubts_of(before, after) if d.code == "AMP535"]
    assert [d.path for d in found] == ["measure.py"] * told
