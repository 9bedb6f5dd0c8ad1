"""A program's own `network_to_half`: where its calls go, and what becomes of those beside the training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files, texts_of

NETS = """
    import json
    import os

    import torch
    from torch import nn


    class Halver(nn.Module):
        def forward(self, x):
            return x.half() if x.is_cuda else x.float()


    def network_to_half(network):
        return nn.Sequential(Halver(), network.half())


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 2)

        def forward(self, x):
            return self.body(x)
    """
TRAIN = """
    from apex.fp16_utils import FP16_Optimizer
    from nets import *

    model = Net()
    model = network_to_half(model)
    if os.path.exists("net.pt"):
        model.load_state_dict(torch.load("net.pt"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = FP16_Optimizer(optimizer, static_loss_scale=128.0)
    for _ in range(2):
        optimizer.zero_grad()
        outputs = model(torch.ones(3, 4))
        outputs = outputs.float()
        loss = outputs.pow(2).mean()
        optimizer.backward(loss)
        optimizer.step()
        torch.save(model.state_dict(), "net.pt")
    print(json.dumps(len(model.state_dict())))
    """
# A script that `is_script` does not know for one, and one that it does.
SHOW = """
    from nets import *

    model = Net()
    model = network_to_half(model)
    model.load_state_dict(torch.load("saved/net.pt"))
    model = model.float()
    print(json.dumps(str(model(torch.ones(1, 4)).dtype)))
    """
COMPARE = """
    from nets import *

    model = Net()
    model = network_to_half(model)
    model.load_state_dict(torch.load("saved/net.pt", "cpu"))
    model = model.float()

    if __name__ == "__main__":
        with torch.no_grad():
            print(json.dumps(str(model(torch.ones(1, 4)).dtype)))
    """


def test_calls_go_in_all_programs_that_read_the_file_and_compute_in_float32(tmp_path: Path) -> None:
    texts = check_files({"nets.py": NETS, "train.py": TRAIN, "show.py": SHOW, "compare.py": COMPARE}, device="cpu")
    for name in ("train.py", "show.py", "compare.py"):
        assert "network_to_half" not in texts[name]
    for name in ("show.py", "compare.py"):
        assert "autocast" not in texts[name]
    assert run_files(tmp_path, texts, "train.py") == 2
    (tmp_path / "saved").mkdir()
    (tmp_path / "net.pt").rename(tmp_path / "saved" / "net.pt")
    for name in ("show.py", "compare.py"):
        assert run_files(tmp_path, texts, name) == "torch.float32"


def test_what_is_taken_out_where_nothing_is_cast_says_so() -> None:
    results = rewrite_files({"nets.py": NETS, "train.py": TRAIN, "show.py": SHOW})
    (told,) = [f for f in results["show.py"].findings if f.line == 4]
    assert "is made float32 below" in told.message


HALF = COMPARE.replace("    model = model.float()\n", "")
NAMED = HALF.replace('"saved/net.pt"', "sys.argv[1]").replace("from nets", "import sys\n    from nets", 1)
HELD = HALF.replace(
    'model.load_state_dict(torch.load("saved/net.pt", "cpu"))',
    'state = torch.load("saved/net.pt")\n    model.load_state_dict(state)',
)
RENAMED = HALF.replace(
    "from nets import *", "from nets import *\n    from nets import network_to_half as halve"
).replace("= network_to_half", "= halve")
TOLD = {
    "in half": (HALF, "net.pt, as train.py:", 5),
    "named by who runs it": (NAMED, "may be", 6),
    "by way of a variable": (HELD, "net.pt, as train.py:", 6),
    "under another name": (RENAMED, "net.pt, as train.py:", 6),
    "float under a condition": (
        COMPARE.replace(
            "    model = model.float()\n", "    if len(json.__name__) == 4:\n        model = model.float()\n"
        ),
        "net.pt, as",
        5,
    ),
    "run before it is float": (
        COMPARE.replace("    model = model.float()\n", "    model(torch.ones(1, 4))\n    model = model.float()\n"),
        "net.pt, as",
        5,
    ),
}


@pytest.mark.parametrize(("other", "says", "line"), TOLD.values(), ids=TOLD.keys())
def test_others_that_may_read_the_file_are_told(other: str, says: str, line: int) -> None:
    results = rewrite_files({"nets.py": NETS, "train.py": TRAIN, "compare.py": other})
    assert texts_of(results)["compare.py"].count("(model)") == 1
    (told,) = [f for f in results["compare.py"].findings if f.code == "AMP720"]
    assert (told.line, told.review) == (line, "review")
    assert says in told.message
    assert results["train.py"].status == "migrated"


SILENT = {
    "another file": COMPARE.replace("saved/net.pt", "saved/other.pt"),
    "no file": COMPARE.replace('model.load_state_dict(torch.load("saved/net.pt", "cpu"))\n', "\n"),
    "no Sequential": COMPARE.replace("model = network_to_half(model)\n", "model = model.half()\n"),
}


@pytest.mark.parametrize("other", SILENT.values(), ids=SILENT.keys())
def test_others_that_read_something_else_stay(other: str) -> None:
    results = rewrite_files({"nets.py": NETS, "train.py": TRAIN, "compare.py": other})
    assert "compare.py" not in results or not results["compare.py"].findings
    assert results["train.py"].status == "migrated"


def test_one_that_puts_nothing_in_a_sequential_changes_no_keys() -> None:
    plain = NETS.replace("nn.Sequential(Halver(), network.half())", "network.half()")
    results = rewrite_files({"nets.py": plain, "train.py": TRAIN, "compare.py": HALF})
    assert "network_to_half" not in texts_of(results)["train.py"]
    assert not [f for r in results.values() for f in r.findings if "`1.`" in f.message]


def test_the_place_in_the_sequential_is_what_keys_begin_with() -> None:
    first = NETS.replace("nn.Sequential(Halver(), network.half())", "nn.Sequential(network.half(), Halver())")
    results = rewrite_files({"nets.py": first, "train.py": TRAIN, "compare.py": HALF})
    assert any("`0.`" in f.message for f in results["train.py"].findings)
    (told,) = [f for f in results["compare.py"].findings if f.code == "AMP720"]
    assert told.message.endswith("model[0]")


def test_the_training_calls_it_by_another_name() -> None:
    source = TRAIN.replace("from nets import *", "from nets import *\n    from nets import network_to_half as halve")
    texts = check_files({"nets.py": NETS, "train.py": source.replace("= network_to_half", "= halve")})
    assert "halve(model)" not in texts["train.py"]


FLOAT = {
    "assigned": ("model = model.float()", False),
    "in place": ("model.float()", False),
    "and more": ("model = model.float().eval()", False),
    "half again": ("model = model.float()\n    model = network_to_half(model)", True),
    "never": ("model.eval()", True),
    "under a condition": ("if len(json.__name__) == 4:\n        model = model.float()", True),
}


@pytest.mark.parametrize(("made", "cast"), FLOAT.values(), ids=FLOAT.keys())
def test_a_network_made_float32_is_run_in_no_region(made: str, cast: bool) -> None:
    evaluated = SHOW.replace("model = model.float()", made)
    texts = texts_of(rewrite_files({"nets.py": NETS, "train.py": TRAIN, "show.py": evaluated}))
    assert ("autocast" in texts["show.py"]) == cast
