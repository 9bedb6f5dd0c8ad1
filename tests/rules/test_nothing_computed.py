"""No region where methods of a network compute nothing in half, and no second one where its own forward has one: AMP501, AMP509."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files

NET = """
    import torch
    import torch.nn as nn
    from scores import Scores

    class Net(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.width = width
            self.head = nn.Linear(width, width)
            self.view = nn.Linear(width, width)
            self.scores = Scores()

        def forward(self, x):
            return self.head(x)

        def start(self):
            self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)

        def losses(self, out, y):
            return {"loss": nn.functional.mse_loss(out, y)}

        def loss_list(self, losses):
            return [losses["loss"]]

        METHOD

    class Wrapped(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, *args, **kwargs):
            return self.module(*args, **kwargs)
    """
SCORES = """
    import numpy as np

    class Scores:
        def __init__(self):
            self.seen = []

        def reduce(self, mode):
            return np.mean(self.seen)
    """
SUITE = """
    import torch
    from apex import amp
    from data import args, loader
    from net import Net, Wrapped

    class Suite:
        def __init__(self):
            self.model = Net(args.width).cuda()
            self.model.start()
            self.model, self.model.optimizer = amp.initialize(self.model, self.model.optimizer, opt_level="O1")
            if args.gpus > 1:
                self.model = torch.nn.parallel.DistributedDataParallel(self.model)
            else:
                self.model = Wrapped(self.model)

        def train(self):
            for x, y in loader:
                out = self.model(x)
                losses = self.model.module.losses(out, y)
                loss = self.model.module.loss_list(losses)
                optimizer = self.model.module.optimizer
                optimizer.zero_grad()
                for one in loss:
                    with amp.scale_loss(one, optimizer) as scaled:
                        scaled.backward()
                optimizer.step()
                self.show(out)

        def show(self, out):
            CALL

    if __name__ == "__main__":
        Suite().train()
    """


def _suite(method: str, call: str = "print(self.model.module.shown(out, args.mode))") -> str:
    method = method.replace("\n", "\n        ")
    files = {"net.py": NET.replace("METHOD", method), "scores.py": SCORES, "suite.py": SUITE.replace("CALL", call)}
    after = check_files(files)
    assert after["net.py"].count("autocast") == 0
    return after["suite.py"]


def test_a_wrapper_that_runs_the_model_is_a_network_whoever_asks_it_for_an_optimizer() -> None:
    """`self.model.optimizer` may be asked of a wrapper around the model, which trains nothing for that."""
    suite = _suite("def shown(self, out, mode):\n    return out", call="pass")
    assert ".forward" not in suite
    assert suite.count("torch.autocast") == 1


@pytest.mark.parametrize(
    "method",
    [
        "def shown(self, out, mode):\n    return self.scores.reduce(mode)",  # NumPy
        "def shown(self, out, mode):\n    return {'out': out.view(-1, self.width)[0].byte().cpu()}",
        "def shown(self, out, mode):\n    return [out]",
        "def shown(self, out, mode):\n    return out.expand(self.width, -1)",
    ],
)
def test_a_method_that_shapes_and_hands_on_what_the_model_gave(method: str) -> None:
    suite = _suite(method)
    assert suite.count("torch.autocast") == 1
    assert suite.index("loss = self.model.module.loss_list") > suite.index("torch.autocast")


@pytest.mark.parametrize(
    "method",
    [
        "def shown(self, out, mode):\n    return self.head(out)",
        "def shown(self, out, mode):\n    return self.view(out)",  # a layer of that name
        "def shown(self, out, mode):\n    return torch.matmul(out, out.t())",
        "def shown(self, out, mode):\n    return nn.functional.linear(out.view(-1, self.width), self.head.weight)",
    ],
)
def test_a_method_that_runs_layers_or_multiplies(method: str) -> None:
    suite = _suite(method)
    assert suite.count("torch.autocast") == 2
    assert suite.index("self.model.module.shown") > suite.rindex("torch.autocast")


def test_a_list_of_losses_that_a_branch_makes_gets_no_region_of_its_own() -> None:
    listed = "                loss = self.model.module.loss_list(losses)\n"
    branch = f"                print(losses)\n                if args.train:\n    {listed}"
    assert SUITE.count(listed) == 1
    files = {"net.py": NET.replace("METHOD", ""), "scores.py": SCORES, "suite.py": SUITE.replace(listed, branch)}
    suite = check_files({**files, "suite.py": files["suite.py"].replace("CALL", "pass")})["suite.py"]
    assert suite.count("torch.autocast") == 1
    assert "            if args.train:\n                loss = self.model.module.loss_list(losses)\n" in suite
