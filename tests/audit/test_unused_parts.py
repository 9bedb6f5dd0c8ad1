"""Parts of a network that no forward of its training runs: by their place in a list, in evaluation only, of one chosen by name."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, program

BEFORE = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    class Net(nn.Module):
        def __init__(self, planes=(4, 8, 16), last=2):
            super().__init__()
            INNER

        def forward(self, x):
            FORWARD
            return x

    MODEL
    model = DDP(model)
    """
LISTED = "self.inner = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)])"
APPENDED = """self.inner = []
            for n in planes:
                self.inner.append(nn.Sequential(nn.Linear(n, n), nn.ReLU()))
            self.inner = nn.ModuleList(self.inner)"""
COUNTED = "self.inner = nn.ModuleList(nn.Linear(n, n) for n in range(3))"
TWO = "x = self.inner[0](x) + self.inner[1](x)"
NET = "model = Net()"


def native(text: str) -> str:
    return text.replace("from apex.parallel", "from torch.nn.parallel")


def messages(inner: str, forward: str, model: str = NET) -> list[str]:
    before = program(BEFORE.replace("INNER", inner).replace("FORWARD", forward).replace("MODEL", model))
    return [d.message for d in doubts(before, native(before)) if d.code == "AMP651"]


@pytest.mark.parametrize(
    ("inner", "forward", "model"),
    [
        (LISTED, TWO, NET),
        (LISTED, "x = self.inner[-1](x)", NET),
        (LISTED.replace("ModuleList([", "Sequential(").replace("])", ")"), TWO, NET),
        (COUNTED.replace("(nn.Linear", "([nn.Linear").replace("(3))", "(3)])"), TWO, NET),
        (COUNTED.replace("(nn.Linear", "([nn.Linear").replace("range(3))", "planes])"), TWO, NET),
        (APPENDED, TWO, NET),
        (APPENDED, TWO, "model = Net([1, 2, 3, 4])"),
        (APPENDED.replace("in planes", "in range(len(planes))"), TWO, NET),
    ],
)
def test_a_list_of_which_some_parts_alone_are_run(inner: str, forward: str, model: str) -> None:
    (message,) = messages(inner, forward, model)
    made, run = 4 if "4" in model else 3, 1 if "-1" in forward else 2
    assert message.startswith(f"Net makes {made} parts in self.inner and runs {run} of them")


@pytest.mark.parametrize(
    ("inner", "forward", "model"),
    [
        (LISTED, f"{TWO} + self.inner[2](x)", NET),
        (LISTED, "x = sum(layer(x) for layer in self.inner)", NET),
        (LISTED, f"{TWO}\n            x = self.inner[self.at](x)", NET),
        (LISTED, f"{TWO}\n            x = self.inner[1:](x)", NET),
        (LISTED, f"{TWO} + self.inner[~0](x)", NET),
        (LISTED, TWO, f"{NET}\n    model.inner[2](1)"),
        (LISTED.replace("nn.Linear(2, 2)]", "nn.ReLU()]"), TWO, NET),
        (APPENDED, TWO, "model = Net((4, 8))"),
        (APPENDED, TWO, f"model = Net((4, 8))\n    {NET}"),
        (APPENDED, TWO, "model = Net(args.planes)"),
        (APPENDED.replace("for n in planes", "for n in planes[:last]"), TWO, NET),
        (APPENDED.replace("                self", "                if n > 4:\n                    self"), TWO, NET),
        (COUNTED, TWO, NET),  # a generator
        (LISTED, f'{TWO}\n            x = getattr(self, "inner")[2](x)', NET),
        (LISTED, f"{TWO}\n            x = sum(layer(x) for layer in self.children())", NET),
    ],
)
def test_a_list_that_is_run_whole_or_whose_length_is_not_seen(inner: str, forward: str, model: str) -> None:
    assert not messages(inner, forward, model)


@pytest.mark.parametrize(
    ("forward", "where"),
    [
        ("if not self.training:\n                x = self.inner(x)", "only where it is not trained"),
        (
            "if self.training:\n                pass\n            else:\n                x = self.inner(x)",
            "only where it is not",
        ),
        ("if self.training:\n                x = self.inner(x)", None),
        ("if not self.training:\n                pass\n            else:\n                x = self.inner(x)", None),
        ("x = x + 1", "nowhere"),
    ],
)
def test_a_part_for_evaluation_alone(forward: str, where: str | None) -> None:
    found = messages("self.inner = nn.Linear(2, 2)", forward)
    assert len(found) == (where is not None)
    assert all(f"makes self.inner in __init__ and uses it {where}" in m for m in found)


def test_a_sequential_runs_all_that_it_has() -> None:
    before = program(
        BEFORE.replace("nn.Module", "nn.Sequential")
        .replace("INNER", "self.inner = nn.Linear(2, 2)")
        .replace("        def forward(self, x):\n            FORWARD\n            return x\n", "")
        .replace("MODEL", NET)
    )
    assert not [d for d in doubts(before, native(before)) if d.code == "AMP651"]


CHOSEN = {
    "nets.py": """
        from torch import nn

        class Plain(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(2, 2)

            def forward(self, x):
                return self.body(x)

        class Deep(Plain):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(2, 2)
                self.aux = nn.Linear(2, 2)
        """,
    "train.py": """
        import importlib
        import torch
        import nets
        from apex.parallel import DistributedDataParallel

        def build(name):
            module = importlib.import_module(name.rpartition(".")[0])
            make = getattr(module, name.rpartition(".")[2])
            return make()

        def main(args):
            model = MODEL
            model = DistributedDataParallel(model)
        """,
}


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("build(args.arch)", True),
        ('getattr(nets, "Plain")()', False),
        ("nets.Plain()", False),
        ("args.build()", False),
    ],
)
def test_a_network_that_is_chosen_by_name(model: str, told: bool) -> None:
    before = {name: program(text.replace("MODEL", model)) for name, text in CHOSEN.items()}
    found = [d for d in doubts_of(before, {n: native(t) for n, t in before.items()}) if d.code == "AMP651"]
    assert [d.verdict for d in found] == ["look"] * told
    assert all("may make parts that nothing uses in training: Deep (head, aux). Where" in d.message for d in found)
    assert not any(d.remedy for d in found)
