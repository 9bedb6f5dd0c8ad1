"""A part of a model that is handed on, and a function that is handed over and given the model, ran in half as the whole did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, run_files

NETS = """
    import torch


    class Retriever(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(8, 8)
            self.words = Words()
            self.criterion = torch.nn.MSELoss()

        def get_depth(self):
            return len(list(enumerate(self.body.children())))

        def forward(self, x):
            return self.body(x)


    class Words:
        def count(self, x):
            return len(x)


    class Reader(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.retriever = Retriever()
            self.head = torch.nn.Linear(8, 2)

        def forward(self, x):
            return self.head(self.retriever(x))
    """
SAMPLER = """
    import torch

    SEEN = []


    class Sampler:
        def __init__(self, data):
            self.data = data

        def load(self, retriever):
            for x in self.data:
                with torch.no_grad():
                    hidden = CALL
                    SEEN.append(str(hidden.dtype))
                yield x + float(hidden.sum()) * 0
    """
TRAIN = """
    import torch
    from apex import amp

    import nets
    import sampler


    def main(level):
        sampler.SEEN.clear()
        model = nets.Reader()
        frozen = nets.Retriever()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        EARLY
        model, optimizer = amp.initialize(model, optimizer, opt_level=LEVEL)
        for x in sampler.Sampler([torch.ones(2, 8)]).load(GIVEN):
            loss = model(x).pow(2).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        return list(sampler.SEEN)
    """
DRIVER = """
import json
import train
print(json.dumps([train.main("O1"), train.main("O0")]))
"""
HALF, FULL = ["torch.float16"], ["torch.float32"]


def _project(call: str, given: str, early: str = "pass", level: str = "level") -> dict[str, str]:
    train = TRAIN.replace("GIVEN", given).replace("EARLY", early).replace("LEVEL", level)
    return {"nets.py": NETS, "sampler.py": SAMPLER.replace("CALL", call), "train.py": train}


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("retriever.body(x)", "model.retriever"),
        ("retriever(x)", "model.retriever"),
        ("retriever.forward(x)", "model.retriever"),
        ("retriever.retriever.body(x)", "model"),
        ("retriever(x)", "model.retriever.body"),
    ],
)
def test_a_part_that_a_generator_is_given_runs_in_a_region(tmp_path: Path, call: str, given: str) -> None:
    texts = check_files(_project(call, given), device="cpu")
    assert run_files(tmp_path, texts | {"driver.py": DRIVER}, "driver.py") == [HALF, FULL]


def test_a_part_that_a_class_out_of_sight_makes() -> None:
    files = _project("retriever.body(x)", "model.retriever")
    made = "Encoder.from_pretrained(8)"
    files["nets.py"] = NETS.replace("torch.nn.Linear(8, 8)", made).replace(
        "import torch\n", "import torch\n    from library import Encoder\n", 1
    )
    assert "autocast" in check_files(files)["sampler.py"]


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("retriever.words.count(x) * x", "model.retriever"),
        ("retriever(x, x)", "model.retriever.criterion"),
        ("retriever.get_depth() * x", "model.retriever"),
    ],
)
def test_what_a_model_keeps_beside_its_networks_is_no_forward(call: str, given: str) -> None:
    assert "autocast" not in check_files(_project(call, given))["sampler.py"]


def test_a_part_that_only_runs_before_the_set_up_stays_in_float32() -> None:
    files = _project("retriever.body(x)", "model", "list(sampler.Sampler([torch.ones(2, 8)]).load(model.retriever))")
    files["train.py"] = files["train.py"].replace(
        "for x in sampler.Sampler([torch.ones(2, 8)]).load(model)", "for x in [0]"
    )
    assert "autocast" not in check_files(files)["sampler.py"]


@pytest.mark.parametrize(("given", "region"), [("frozen", False), ("model.retriever", True)])
def test_o2_only_reached_the_parts_of_what_it_was_given(given: str, region: bool) -> None:
    texts = check_files(_project("retriever.body(x)", given, level='"O2"'))
    assert ("autocast" in texts["sampler.py"]) is region


LIBRARY = """
    import torch
    from apex import amp

    SEEN = []


    def train(args, model, x, eval_fn=None):
        eval_fn = eval_fn
        SEEN.clear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        loss = model(x).pow(2).mean()
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
        eval_fn(args, x, GIVEN)
        return list(SEEN)
    """
MAIN = """
    import argparse
    import json

    import torch

    import library
    from nets import Reader


    def evaluate_ranks(options, x, model):
        with torch.no_grad():
            ranks = model(x)
            library.SEEN.append(str(ranks.dtype))


    def main(flags):
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        parser.add_argument("--level", default="O1")
        args = parser.parse_args(flags)
        return library.train(args, Reader(), torch.ones(2, 8), eval_fn=evaluate_ranks)


    if __name__ == "__main__":
        print(json.dumps([main(["--fp16"]), main([])]))
    """


def test_a_function_that_is_handed_over_and_given_the_model(tmp_path: Path) -> None:
    files = {"nets.py": NETS, "library.py": LIBRARY.replace("GIVEN", "model"), "main.py": MAIN}
    assert run_files(tmp_path, check_files(files, device="cpu"), "main.py") == [HALF, FULL]


def test_a_function_that_is_given_something_else() -> None:
    files = {"nets.py": NETS, "library.py": LIBRARY.replace("GIVEN", "x.mean"), "main.py": MAIN}
    assert "autocast" not in check_files(files)["main.py"]
