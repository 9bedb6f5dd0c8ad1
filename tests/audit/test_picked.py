"""Collections of which a forward runs what its caller picks."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, program

BEFORE = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    class Block(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(depth)])

        def forward(self, x, number):
            for layer in self.layers:
                x = layer(x)
            return x

    class Net(nn.Module):
        def __init__(self, tasks, config):
            super().__init__()
            self.blocks = nn.ModuleList([Block(config.depth) for _ in range(4)])
            self.heads = nn.ModuleList([nn.Linear(2, 2) for _ in tasks])

        def forward(self, x, task, number=None):
            for i, block in enumerate(self.blocks):
                x = block(x, number)
            return self.heads[0](x)

    def train(model, loader, criterion):
        for x, task in loader:
            loss = criterion(model(x, task))
            loss.backward()

    def main(args, loader):
        model = Net(args.tasks, args)
        model = DDP(model)
        train(model, loader, torch.nn.MSELoss())
    """
HEAD = "self.heads[0](x)"
ALL = "sum(h(x) for h in self.heads)"
LIST = "nn.ModuleList([nn.Linear(2, 2) for _ in tasks])"


def messages(*changes: tuple[str, str]) -> list[str]:
    text = BEFORE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    before = program(text)
    after = before.replace("from apex.parallel", "from torch.nn.parallel")
    return [d.message for d in doubts(before, after) if d.code == "AMP651"]


@pytest.mark.parametrize(
    ("head", "made"),
    [
        ("self.heads[task](x)", LIST),
        ("self.heads[task.item()](x)", LIST),
        ("self.heads[int(task)](x)", LIST),
        ("self.heads[task](x)", "nn.ModuleDict({t: nn.Linear(2, 2) for t in tasks})"),
        ("self.heads[task](x)", "nn.ModuleDict({'a': nn.Linear(2, 2), 'b': nn.Linear(2, 2)})"),
        (
            "self.heads[task](x)",
            "nn.ModuleList()\n            for t in tasks:\n                self.heads.append(nn.Linear(2, 2))",
        ),
    ],
)
def test_a_head_that_a_caller_picks(head: str, made: str) -> None:
    (message,) = messages((HEAD, head), (LIST, made))
    assert message.startswith(f"Net runs {head[:-3]}, as its caller picks")
    assert message.endswith("pass find_unused_parameters=True")


def test_a_stretch_of_the_layers_of_a_part() -> None:
    (message,) = messages((HEAD, ALL), ("in self.layers:", "in self.layers[:number]:"))
    assert message.startswith("Block runs self.layers[:number], as its caller picks")


RUN_ALL = f"        def run(self):\n            return {ALL}\n\n    def train("
TURNS = [
    ("nn.ModuleList([Block(config.depth) for _ in range(4)])", "Block(4)"),
    ("i, block in enumerate(self.blocks)", "i in range(4)"),
    ("block(x, number)", "self.blocks(x, i)"),
]


@pytest.mark.parametrize(
    "changes",
    [
        [(HEAD, ALL)],
        [(HEAD, "self.heads[task](x) + self.run()"), ("    def train(", RUN_ALL)],
        [(HEAD, "self.heads[task](x)"), (", task, number", ", task=None, number")],  # which may be none
        [(HEAD, "self.heads[self.task](x)")],
        [(HEAD, "sum(self.heads[task](x) for task in range(2))")],
        [(HEAD, "self.heads[task](x)"), (LIST, "nn.ModuleList([nn.Linear(2, 2)])")],
        [(HEAD, "self.heads[task](x)"), (LIST, "nn.ModuleList([nn.ReLU() for _ in tasks])")],
        [(HEAD, "self.heads[task](x)"), ("loss.backward()", "return loss")],
        [(HEAD, "x[task]")],
        [(HEAD, ALL), ("in self.layers:", "in self.layers[number:number + 1]:"), *TURNS],
        [(HEAD, ALL), ("in self.layers:", "in self.layers[:]:")],
    ],
)
def test_all_parts_may_run(changes: list[tuple[str, str]]) -> None:
    assert not messages(*changes)


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        ("criterion(model(x, task)) + criterion(model(x, 0))", "static_graph=True if all steps are alike"),
        ("sum(criterion(model(x, t)) for t in task)", "static_graph=True if all steps are alike"),
        ("criterion(model(x, task) if task else model(x, 0))", "static_graph=True if all steps are alike"),
    ],
)
def test_several_forwards_may_pick_others(loss: str, told: str) -> None:
    (message,) = messages((HEAD, "self.heads[task](x)"), ("criterion(model(x, task))", loss))
    assert told in message


def test_branches_of_one_test_are_one_forward() -> None:
    branches = "\n                ".join(
        ["if task:", "    loss = criterion(model(x, task))", "else:", "    loss = criterion(model(x, 0))"]
    ).replace("\n    ", "\n")
    (message,) = messages((HEAD, "self.heads[task](x)"), ("loss = criterion(model(x, task))", branches))
    assert message.endswith("pass find_unused_parameters=True")


def test_a_model_without_training_waits_for_no_gradients() -> None:
    unused = ((HEAD, "x"), (LIST, "nn.Linear(2, 2)"))
    assert messages(*unused)
    without = "with torch.no_grad():\n                y = model(x, task)\n            loss = criterion(y)"
    assert not messages(*unused, ("loss = criterion(model(x, task))", without))


@pytest.mark.parametrize(
    ("used", "told"),
    [
        ("model.eval(); print(model.state_dict())", False),
        ("fit(model, loader)", True),  # out of sight
        ("model.module.loss(loader).backward()", True),
        ("other.module.loss(loader).backward()", False),
    ],
)
def test_what_may_train_a_model_out_of_sight_waits_for_gradients(used: str, told: bool) -> None:
    without = "with torch.no_grad():\n                y = model(x, task)\n            loss = criterion(y)"
    handed = ("        train(model, loader,", f"        {used}\n        train(model, loader,")
    found = messages((HEAD, "x"), (LIST, "nn.Linear(2, 2)"), ("loss = criterion(model(x, task))", without), handed)
    assert bool(found) is told


def test_a_head_beside_another_of_one_backward_is_told_only() -> None:
    """torch's class marks a parameter twice where it looks for unused ones after each of two forwards of one backward."""
    change = (
        "loss = criterion(model(x, task))",
        "loss = criterion(model(x, 0)) + of_task(model, x, task)",
    )
    helper = ("    def train(", "    def of_task(net, x, task):\n        return net(x, task).sum()\n\n    def train(")
    (alone,) = messages((HEAD, "self.heads[task](x)"))
    assert alone.endswith("pass find_unused_parameters=True")
    (told,) = messages((HEAD, "self.heads[task](x)"), change, helper)
    assert "one backward follows several forwards" in told
