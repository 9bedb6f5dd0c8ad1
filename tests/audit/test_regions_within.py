"""A network whose forward has regions of its own around all that it computes in half ran half there, and does: AMP531."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

MODELS = """
    import torch
    from apex import amp
    from torch import nn


    class Whole(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config
            self.net = nn.Linear(4, 2).to(config.device)
            self.optimizer = torch.optim.Adam(self.net.parameters())
            if config.fp16:
                self.net, self.optimizer = amp.initialize(self.net, self.optimizer, opt_level="O1")

        def forward(self, x, mask):
            found = {}
            masked = {masked}
            found["output"] = self.net(masked)
            return found

        def process(self, x, y, mask):
            found = self.forward(x, mask)
            self.optimizer.zero_grad()
            loss = nn.functional.l1_loss(found["output"], y)
            if self.config.fp16:
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            self.optimizer.step()
"""
TRAIN = """
    import sys
    import torch
    from data import Config, batches, restored
    from models import Whole

    if __name__ == "__main__":
        model = Whole(Config(sys.argv[1]))
        model, state = restored(model)
        for x, y, mask in batches():
            model.process(x, y, mask)
        model.eval()
        with torch.no_grad():
            print(model(x, mask))
"""
DATA = """
    import json
    import torch


    class Config:
        def __init__(self, path):
            with open(path) as file:
                self.values = json.load(file)

        def __getattr__(self, name):
            return self.values.get(name)


    def restored(model, state=None):
        model.net.load_state_dict(torch.load(model.config.path))
        return model, state


    def batches():
        yield torch.ones(3, 4), torch.ones(3, 2), torch.zeros(3, 4)
"""


@pytest.mark.parametrize(
    ("masked", "told"),
    [("x * (1 - mask).float()", False), ("torch.cat([x, mask], dim=1)", False), ("x @ (1 - mask).t()", True)],
)
def test_only_what_is_computed_outside_of_them_is_told(masked: str, told: bool) -> None:
    results = rewrite_files({"models.py": MODELS.replace("{masked}", masked), "train.py": TRAIN, "data.py": DATA})
    after = results["models.py"].after
    assert after is not None
    assert 'found["output"] = self.net(masked)' in after.partition("with torch.autocast")[2]
    found = [f for r in results.values() for f in r.findings if f.code == "AMP531"]
    assert bool(found) is told, found
