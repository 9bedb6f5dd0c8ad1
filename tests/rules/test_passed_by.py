"""Functions that only demos and tests run, which load what initializes and never call it: nothing was cast in them."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

TRAIN = """
    import torch
    from apex import amp
    from lib.maps import Map

    class Trainer:
        def __init__(self, model):
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            self.model, self.optimizer = amp.initialize(model.cuda(), self.optimizer, opt_level="O1")

        def run(self, loader):
            for x, y in loader:
                self.optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(self.model(x), y)
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
            MORE

    def train(model, loader):
        Trainer(model).run(loader)
    """
MAPS = """
    import torch

    class Map:
        def __init__(self, model):
            self.model = model

        def __call__(self, x):
            return self.score(x)

        def score(self, x):
            preds = self.model(x)
            score = torch.sum(preds)
            score.backward()
            return score
    """
MAIN = """
    from lib.train import train
    from lib.build import build

    if __name__ == "__main__":
        train(build(), [])
    """
DEMO = """
    import torch
    import lib.train
    from lib.maps import Map
    from lib.build import build

    def main():
        print(Map(build().cuda())(torch.ones(2, 4).cuda()))

    if __name__ == "__main__":
        main()
    """
TEST = """
    import torch
    from lib.maps import Map
    from lib.train import train
    from lib.build import build

    def test_map():
        assert Map(build())(torch.ones(2, 4)) is not None

    def test_train():
        train(build(), [])
    """
BUILD = """
    from project import registry

    def build():
        return registry.build("net")
    """
FILES = {
    "lib/build.py": BUILD,
    "lib/__init__.py": "",
    "lib/train.py": TRAIN.replace("MORE", "pass"),
    "lib/maps.py": MAPS,
    "main.py": MAIN,
}


@pytest.mark.parametrize(
    "beside",
    [
        {"demo.py": DEMO},
        {"demo.py": DEMO, "tests/test_train.py": TEST.replace("Map(", "Net(")},
        {"demo.py": DEMO, "tests/test_train.py": TEST},  # of whose tests each may be all that runs
    ],
)
def test_what_only_a_demo_runs_is_left_as_it_is(beside: dict[str, str]) -> None:
    results = rewrite_files({**FILES, **beside})
    assert "autocast" in (results["lib/train.py"].after or "")
    assert results["lib/maps.py"].after is None
    assert not [f for f in results["lib/maps.py"].findings if f.code in ("AMP501", "AMP503", "AMP522")]


@pytest.mark.parametrize(
    "changed",
    [
        {"demo.py": DEMO.replace("def main():", "def main():\n        lib.train.train(build(), [])")},
        {"demo.py": DEMO, "lib/train.py": TRAIN.replace("MORE", "print(Map(self.model)(x))")},
        {"demo.py": DEMO.replace('    if __name__ == "__main__":\n        main()\n', "")},
    ],
)
def test_what_a_process_runs_that_initializes_is_not(changed: dict[str, str]) -> None:
    results = rewrite_files({**FILES, **changed})
    assert "autocast" in (results["lib/maps.py"].after or "")
