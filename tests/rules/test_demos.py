"""Demos: what stands under `if __name__ == "__main__":` in a file that the program imports runs in a process of its own, which
sets nothing up. It stays float32, and asks for no scaler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

NET = """
    import json

    import torch
    from torch import nn


    class Net(nn.Module):
        def __init__(self, width=4):
            super().__init__()
            self.body = nn.Linear(width, 2)

        def forward(self, x):
            return self.body(x)


    def small(width=4):
        model = Net(width)
        return model


    if __name__ == "__main__":
        model = small()
        model.eval()
        print(json.dumps(str(model(torch.randn(1, 4)).dtype)))
    """
TRAIN = """
    import argparse
    import json

    import torch
    from apex import amp
    from torch.nn.functional import mse_loss

    from net import small


    def train(model, optimizer, use):
        for x, y in [(torch.randn(3, 4), torch.randn(3, 2))]:
            loss = mse_loss(model(x), y)
            optimizer.zero_grad()
            if use:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()
        return float(loss)


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--amp", action="store_true")
        args = parser.parse_args()
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.amp:
            model, optimizer = amp.initialize(model, optimizer)
        print(json.dumps(train(model, optimizer, args.amp)))


    if __name__ == "__main__":
        main()
    """
ALWAYS = TRAIN.replace("        if args.amp:\n            model, opt", "        model, opt")


@pytest.mark.parametrize("source", [TRAIN, ALWAYS], ids=["switched", "always on"])
def test_a_demo_that_runs_a_model_stays_as_it_is(tmp_path: Path, source: str) -> None:
    texts = check_files({"net.py": NET, "train.py": source})
    assert "autocast" not in texts["net.py"]
    assert ".forward = " not in texts["train.py"]  # no region in the model for what cannot be told the switch
    assert run_files(tmp_path, texts, "net.py") == "torch.float32"
    assert run_files(tmp_path, texts, "train.py") > 0


def test_what_sets_up_itself_is_no_demo() -> None:
    body = """
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer)
        loss = model(torch.ones(2, 4)).sum()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
    """
    source = f"{NET[: NET.index('        model = small()')]}{body}".replace(
        "import torch", "import torch\n    from apex import amp", 1
    )
    texts = check_files({"net.py": source, "use.py": "from net import small\n\nprint(small())\n"})
    assert texts["net.py"].count("autocast") == 1


def test_a_demo_of_what_is_trained_is_handed_no_scaler(tmp_path: Path) -> None:
    loop = TRAIN[: TRAIN.index("    def main")] + (
        """
    if __name__ == "__main__":
        model = small()
        print(json.dumps(train(model, torch.optim.SGD(model.parameters(), lr=0.1), False)))
    """
    )
    start = (
        TRAIN[: TRAIN.index("    def train")] + "    from loop import train\n\n" + TRAIN[TRAIN.index("    def main") :]
    )
    texts = check_files({"net.py": NET, "loop.py": loop, "start.py": start})
    assert "scaler=None" in texts["loop.py"]
    assert "\nscaler = " not in texts["loop.py"]
    assert "scaler=scaler" in texts["start.py"]
    for entry in ("loop.py", "start.py"):
        assert run_files(tmp_path, texts, entry) > 0


SOLVER = """
    import torch
    from apex import amp
    from torch.nn.functional import mse_loss

    from net import small


    class Solver:
        def __init__(self, use):
            self.use = use
            self.model = small()
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            if use:
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer)

        def fit(self, x, y):
            loss = mse_loss(self.model(x), y)
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
            self.optimizer.step()


    class Slow(Solver):
        def __init__(self, use):
            super(Slow, self).__init__(use)
            self.steps = 0
    """
BASES = {
    "a base": "",
    "asked for": "\n    def is_solver(thing):\n        return isinstance(thing, Solver)\n",
}


@pytest.mark.parametrize("more", BASES.values(), ids=BASES.keys())
def test_a_class_that_others_derive_from_is_not_made_by_that(more: str) -> None:
    net = NET.replace("import json\n", "import json\n    import solver\n")
    start = "import sys\n\nfrom solver import Slow\n\nSlow(len(sys.argv) > 1).fit([], [])\n"
    results = rewrite_files({"net.py": net, "solver.py": SOLVER + more, "start.py": start})
    assert results["solver.py"].status == "migrated", [r.findings for r in results.values()]
    assert "net.py" not in results or results["net.py"].after is None
    assert ".forward = " not in (results["solver.py"].after or "")


OLDER = """
    import torch
    from apex.fp16_utils import FP16_Optimizer, network_to_half
    from torch.nn.functional import mse_loss

    from make import build


    def train(model, optimizer):
        for x, y in [(torch.randn(3, 4).cuda(), torch.randn(3, 2).cuda())]:
            loss = mse_loss(model(x).float(), y)
            optimizer.zero_grad()
            optimizer.backward(loss)
            optimizer.step()


    model = network_to_half(build().cuda())
    optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    train(model, optimizer)
    print(build())
    """
MAKE = """
    from net import small


    def build():
        return small()
    """
MADE = """
    from net import small


    def load():
        model = small()
        return model


    small = load()
    print(small)
    """


@pytest.mark.parametrize("value", ["load()", "small()"], ids=["another value", "its own value"])
def test_what_a_script_puts_under_an_imported_name_is_not_what_others_call(value: str) -> None:
    made = MADE.replace("= load()", f"= {value}")
    texts = check_files({"net.py": NET, "make.py": MAKE, "train.py": OLDER, "show.py": made})
    assert "autocast" in texts["train.py"]
    assert "autocast" not in texts["make.py"]
