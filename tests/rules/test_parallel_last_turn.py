"""A model of whose blocks, run in turn, the last hands on what nothing reads: under torch's DistributedDataParallel."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from amp_migrate.audit.checks import ranks
from tests.rules.helpers import rewrite, run_alone

BLOCKS = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.on = nn.Linear(width, width)
            self.out = nn.Linear(width, 1)

        def forward(self, x):
            return x + self.on(x), self.out(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(2) for _ in range(3)])

        def forward(self, x):
            total = 0
            for block in self.blocks:
                x, out = block(x)
                total += out
            return total.sum()

    def train(loader):
        model = Net()
        # 1 of the last block is not used, so that parameter gets no grad
        model = DDP(model, delay_allreduce=True)
        for x in loader:
            model(x).backward()
        return model
    """
RUN = """
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
train([torch.ones(1, 2)] * 3)
print("trained")
torch.distributed.destroy_process_group()
"""
COMMENT = "        # 1 of the last block is not used, so that parameter gets no grad\n"


def test_a_model_whose_last_block_hands_on_for_nothing_trains(tmp_path: Path) -> None:
    source = BLOCKS.replace(COMMENT, "")
    result = rewrite(source)
    assert "DDP(model, find_unused_parameters=True)" in (result.after or "")
    (told,) = [f.message for f in result.findings if f.code == "AMP601"]
    assert "since Net reads nothing of what self.on of the last of self.blocks gives (" in told
    assert "costs time" in told
    assert run_alone(tmp_path, (result.after or "") + RUN)[0] == "trained"
    plain = textwrap.dedent(source).replace("apex.parallel", "torch.nn.parallel").replace("delay_allreduce=True", "")
    printed, errors = run_alone(tmp_path, plain + RUN)
    assert not printed
    assert "Expected to have finished reduction in the prior iteration" in errors  # a single process raises, too


def test_what_the_program_says_of_its_model_is_written_too(tmp_path: Path) -> None:
    source = BLOCKS.replace("[Block(2) for _ in range(3)]", "list(map(Block, [2, 2, 2]))")
    result = rewrite(source)
    assert "DDP(model, find_unused_parameters=True)" in (result.after or "")
    assert any("says that a parameter gets no gradient (" in f.message for f in result.findings)
    assert not [f for f in result.findings if f.code == "AMP651"]
    assert run_alone(tmp_path, (result.after or "") + RUN)[0] == "trained"


def test_where_several_forwards_come_before_a_backward_it_is_told_alone() -> None:
    source = BLOCKS.replace("[Block(2) for _ in range(3)]", "list(map(Block, [2, 2, 2]))")
    result = rewrite(source.replace("model(x).backward()", "(model(x) + model(-x)).backward()"))
    assert "DDP(model)" in (result.after or "")
    assert [f.review for f in result.findings if f.code == "AMP651"] == ["review"]
    assert not [f for f in result.findings if f.code == "AMP601" and "gets no gradient" in f.message]


LOOP = """for block in self.blocks:
                x, out = block(x)
                total += out"""
MADE = "self.blocks = nn.ModuleList([Block(2) for _ in range(3)])"
APPENDED = """self.blocks = nn.ModuleList()
            for _ in range(3):
                self.blocks.append(Block(2))"""
SWITCHED = """for block in self.blocks:
                if self.both:
                    x, out = block(x)
                    total += out
                else:
                    x, _ = block(x)
            if not self.both:
                total = x"""


@pytest.mark.parametrize(
    ("made", "loop", "written"),
    [
        (MADE, LOOP, True),
        (APPENDED, LOOP, True),
        (MADE, LOOP.replace("block in self.blocks", "n, block in enumerate(self.blocks)"), True),
        (MADE, LOOP.replace("block in self.blocks", "block, n in zip(self.blocks, range(3))"), True),
        (f"self.both = True if 2 is not None else False\n            {MADE}", SWITCHED, True),
        (f"self.both = both\n            {MADE}", SWITCHED, False),
        (MADE, f"{LOOP}\n            total = total + x", False),
        (MADE, LOOP.replace("+= out", "+= out + x"), False),
        (MADE, f"{LOOP}\n                if total.sum() > 1:\n                    break", False),
        (MADE, f"{LOOP}\n            total = total + self.blocks[-1](x)[0]", False),
        (MADE.replace("[Block(2) for _ in range(3)]", "[made(2)]"), LOOP, False),
        (MADE.replace("[Block(2) for _ in range(3)]", "[Block(2), made(2)]"), LOOP, False),
    ],
)
def test_the_rule_sees_it_by_itself(made: str, loop: str, written: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "unread_in_last", lambda *_: ())
    source = BLOCKS.replace(COMMENT, "").replace(MADE, made).replace(LOOP, loop)
    source = source.replace("def __init__(self):", "def __init__(self, both=None):")
    result = rewrite(source.replace("Net()", "Net(options.both)") if "= both" in made else source)
    assert ("DDP(model, find_unused_parameters=True)" in (result.after or "")) is written
    assert "AMP651" not in {f.code for f in result.findings}


@pytest.mark.parametrize(
    "recomputes",
    [
        "from torch.utils.checkpoint import checkpoint",
        "from torch.utils import data, checkpoint as again",
        "def spare(model):\n    model.gradient_checkpointing_enable()",
    ],
)
def test_where_activations_are_recomputed_it_is_not_written(recomputes: str) -> None:
    result = rewrite(f"{recomputes}\n\n\n" + textwrap.dedent(BLOCKS.replace(COMMENT, "")).lstrip())
    assert "DDP(model)" in (result.after or "")
    assert [f.review for f in result.findings if f.code == "AMP651"] == ["review"]
