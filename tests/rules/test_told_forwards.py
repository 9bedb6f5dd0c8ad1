"""Forwards that the rules do not see and the audit does: they get the region whose loss it would tell of."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

from amp_migrate.audit.doubts import Doubt
from amp_migrate.held import Held
from amp_migrate.rules.migration import Output
from tests.rules.helpers import check_files, rewrite_files, run_files

PROGRAM = {
    "network.py": """
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(4, 4)
                self.last = torch.nn.Linear(4, 1)

            def encode(self, x):
                return self.first(x)

            def forward(self, x):
                return self.last(self.encode(x))

            def penalty(self, x):
                return torch.nn.functional.binary_cross_entropy(torch.sigmoid(self.last(x)), torch.ones(2, 1))

        def bare(model):
            return model.module if isinstance(model, torch.nn.DataParallel) else model
        """,
    "main.py": """
        import argparse
        import json
        import torch
        from apex import amp
        from network import Net, bare

        def train(args, model, loader, optimizer):
            for x in loader:
                optimizer.zero_grad()
                loss = model(x).float().sum()
                if args.amp:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()

        def codes(model, loader):
            with torch.no_grad():
                return [str(bare(model).encode(x).dtype) for x in loader]

        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("--amp", action="store_true")
            args = parser.parse_args(ARGUMENTS)
            torch.manual_seed(0)
            loader = [torch.ones(2, 4)]
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if args.amp:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            train(args, model, loader, optimizer)
            print(json.dumps(codes(model, loader)))

        if __name__ == "__main__":
            main()
        """,
}


def with_call(runs: str) -> dict[str, str]:
    main = PROGRAM["main.py"].replace("ARGUMENTS", "").replace("bare(model).encode(x)", runs)
    return {**PROGRAM, "main.py": main}


def test_a_forward_that_only_the_audit_sees_gets_a_region(tmp_path: Path) -> None:
    files = with_call("bare(model).encode(x)")
    assert not [f for r in rewrite_files(files, device="cpu").values() for f in r.findings if f.code == "AMP531"]
    texts = check_files(files, device="cpu")
    assert "codes(model, loader, use_amp=args.amp)" in texts["main.py"], "the switch is handed over"
    for asked, dtype in (["--amp"], "float16"), ([], "float32"):
        main = texts["main.py"].replace("parse_args()", f"parse_args({asked})")
        assert run_files(tmp_path, {**texts, "main.py": main}, "main.py") == [f"torch.{dtype}"]


def test_where_a_region_is_wrong_it_is_left_out_again() -> None:
    """Not the program: without that region it works, in another precision."""
    tree = ast.parse("import torch\n\ndef codes(model):\n    return model()\n")
    module = type("File", (), {"display": "main.py", "tree": tree})()
    read, output, held = SimpleNamespace(modules=[module]), Output(), Held()
    lost = Doubt("main.py", 4, "AMP531", "a call of the model", "ran in half", "review", lost=((4, 11),))
    assert held.more([lost], read, output)  # type: ignore[arg-type]
    assert held.run == {("main.py", 4, 11): True}
    wrong = Doubt("main.py", 4, "AMP533", "a loss", "raises")
    assert held.more([wrong], read, output)  # type: ignore[arg-type]
    assert held.run == {("main.py", 4, 11): False}
    assert not held.files
    assert not held.more([lost], read, output)  # type: ignore[arg-type]
    assert held.more([wrong], read, output)  # type: ignore[arg-type]
    assert held.files == {"main.py": wrong}, "what is wrong without it is about the migration"


def test_no_region_is_given_where_evaluation_is_wanted_in_float32() -> None:
    after = rewrite_files(with_call("bare(model).encode(x)"), device="cpu", eval="fp32")["main.py"].after
    assert after is not None
    assert after.count("torch.autocast(") == 1


def test_a_file_beside_the_one_that_trains(tmp_path: Path) -> None:
    attacks = """
        from network import bare

        def features(model, x):
            return bare(model).encode(x)
        """
    main = PROGRAM["main.py"].replace("ARGUMENTS", "['--amp']")
    main = main.replace("bare(model).encode(x)", "features(model, x)")
    main = main.replace(
        "from network import Net, bare", "from attacks import features\n        from network import Net"
    )
    texts = check_files({**PROGRAM, "main.py": main, "attacks.py": attacks}, device="cpu")
    assert 'torch.autocast("cpu", dtype=torch.float16, enabled=' in texts["attacks.py"]
    assert run_files(tmp_path, texts, "main.py") == ["torch.float16"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return self.weights.sum() * 2.0", False),  # a sum of float32
        ("return self.count(x.sum(), 2.0)", False),  # what is out of sight may be anything: told, not written
        ("return x @ self.weights", True),
        ("return self.first(x)", True),
        ("return self.encode(x)", True),
    ],
)
def test_a_region_is_for_products(body: str, told: bool) -> None:
    """Only what O1 cast to half lost anything: a method that adds and scales float32 gets no region."""
    network = PROGRAM["network.py"].replace("def penalty(self, x):", "def predict(self, x):")
    start, end = network.index("return torch.nn.functional"), network.index("def bare")
    network = f"{network[:start]}{body}\n\n        {network[end:]}"
    network = network.replace("__init__(self):", "__init__(self, count=None):\n                self.count = count", 1)
    network = network.replace(
        "super().__init__()", "super().__init__()\n                self.weights = torch.ones(4, 4)"
    )
    files = {**with_call("bare(model).predict(x)"), "network.py": network}
    after = rewrite_files(files, device="cpu")["main.py"].after
    assert after is not None
    assert after.count("torch.autocast(") == 1 + told


def test_a_method_of_tensors_is_no_forward() -> None:
    network = PROGRAM["network.py"].replace(
        "self.last = torch", "self.sum = self.index = None\n                self.last = torch"
    )
    results = rewrite_files({**with_call("bare(model).last.weight.sum()"), "network.py": network}, device="cpu")
    assert not [f for r in results.values() for f in r.findings if f.code == "AMP531"]
    after = rewrite_files({**with_call("bare(model).names.index(x)"), "network.py": network}, device="cpu")[
        "main.py"
    ].after
    assert after is not None
    assert after.count("torch.autocast(") == 1
