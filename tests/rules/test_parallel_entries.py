"""What a model reads of the tuples that its parts give, put together and cut as they are on the way: what nothing reads takes no
part in the training, and torch's DistributedDataParallel is to look for it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.rules.helpers import rewrite, run_alone
from tests.rules.test_parallel_parts import RUN, UNFINISHED

SOURCE = """
    import torch
    from torch import nn
    from apex.parallel import DistributedDataParallel as DDP

    class Pooler(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = nn.Linear(2, 2)

        def forward(self, x):
            return self.dense(x)

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(2, 2)
            self.pooler = Pooler()

        def forward(self, x, more=False):
            given = (self.body(x),)
            x = given[0]
            pooled = self.pooler(x)
            RETURN

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = Encoder()
            self.out = nn.Linear(2, 1)

        def forward(self, x, loss=True):
            READ
            if loss:
                outputs = (outputs[0].sum(),) + outputs
            return outputs

    def train(loader):
        model = Tagger()
        model = DDP(model)
        for x in loader:
            model(x)[0].backward()
        return model
    """
RETURN = """outputs = (x, pooled) + given[1:]
            return outputs"""
READ = """outputs = self.encoder(x)
            scores = self.out(outputs[0])
            outputs = (scores,) + outputs[2:]"""


def _source(old: str = "", new: str = "") -> str:
    return textwrap.dedent(
        SOURCE.replace("RETURN", RETURN).replace("READ", READ).replace(old, new)
        if old
        else SOURCE.replace("RETURN", RETURN).replace("READ", READ)
    )


@pytest.mark.parametrize(
    ("old", "new", "dropped"),
    [
        ("", "", True),
        # What the part returns.
        (RETURN, "return (x, pooled) + given[1:]", True),
        (RETURN, "return x, self.pooler(x)", False),  # beside the other call of it
        (f"pooled = self.pooler(x)\n            {RETURN}", "return x, self.pooler(x)", True),
        (RETURN, "return (x, pooled, x) if more else (x, pooled)", True),
        (
            RETURN,
            "outputs = (x, pooled)\n            if more:\n                outputs = outputs + (x,)\n            return outputs",
            True,
        ),
        (RETURN, "outputs = (x,)\n            outputs += (pooled,)\n            return outputs", True),
        (
            RETURN,
            "outputs = (x,)\n            if more:\n                outputs += (pooled,)\n            return outputs",
            True,
        ),
        (RETURN, "outputs = [x, pooled]\n            return tuple(outputs)", True),
        (RETURN, "outputs = (x, pooled)\n            return (outputs[0] + outputs[1],)", False),
        (RETURN, "outputs = (x, pooled)\n            return (outputs[-1],) + outputs[1:]", False),
        (RETURN, "outputs = (pooled, x) + given[1:]\n            return outputs", False),
        (
            RETURN,
            "outputs = tuple(x.unbind()) + (pooled,)\n            return (x, x) + outputs",
            False,
        ),  # at a place that is not known
        (
            RETURN,
            "outputs = (x,)\n            for _ in x:\n                outputs += (pooled,)\n            return outputs",
            False,
        ),
        (RETURN, "if more:\n                return x, pooled\n            return dict(x=x, pooled=pooled)", False),
        ("pooled = self.pooler(x)", "pooled = self.pooler(x) if self.pooler is not None else None", True),
        # What the model reads of it.
        ("outputs[2:]", "outputs[1:]", False),
        ("outputs[2:]", "outputs[:1]", True),
        ("outputs[2:]", "outputs[-1:]", False),
        ("outputs[2:]", "tuple(outputs)[2:]", True),
        ("outputs[2:]", "outputs", False),
        ("outputs = (scores,) + outputs[2:]", "outputs = (scores, outputs[1])", False),
        ("outputs = (scores,) + outputs[2:]", "outputs = (scores, (lambda: outputs)()[1])", False),
        ("outputs = self.encoder(x)", "outputs = self.encoder(x)\n            outputs = outputs[1:]", False),
        ("outputs = self.encoder(x)", "outputs = self.encoder(x)\n            outputs = outputs[:1] + outputs", False),
        ("outputs[0])\n", "outputs[0]) if loss else outputs[1]\n", False),
        ("outputs = self.encoder(x)\n", "outputs, *_ = self.encoder(x)\n            outputs = (outputs,)\n", True),
        (
            "outputs = self.encoder(x)\n",
            "outputs, *more = self.encoder(x)\n            outputs = (outputs, *more)\n",
            False,
        ),
        ("outputs = self.encoder(x)\n", "for _ in range(2):\n                outputs = self.encoder(x)\n", True),
        ("outputs = self.encoder(x)\n", "with torch.enable_grad():\n                outputs = self.encoder(x)\n", True),
        ("outputs = self.encoder(x)\n", "self.kept = outputs = self.encoder(x)\n", False),
    ],
)
def test_what_nothing_reads_of_a_tuple(old: str, new: str, dropped: bool) -> None:
    source = _source(old, new)
    assert source != _source() or not old
    after = rewrite(source).after or ""
    assert ("DDP(model, find_unused_parameters=True)" in after) is dropped
    assert dropped or "DDP(model)" in after


def test_a_model_that_reads_some_entries_trains(tmp_path: Path) -> None:
    result = rewrite(_source())
    assert any("reads nothing of what self.pooler of its self.encoder" in f.message for f in result.findings)
    assert run_alone(tmp_path, (result.after or "") + RUN)[0] == "trained"
    plain = _source("apex.parallel", "torch.nn.parallel")
    assert UNFINISHED in run_alone(tmp_path, plain + RUN)[1]


def test_beside_recomputed_activations_it_is_only_told() -> None:
    result = rewrite(_source("import torch\n", "import torch\n    import torch.utils.checkpoint\n"))
    assert "DDP(model)" in (result.after or "")
    (finding,) = [f for f in result.findings if f.code == "AMP651"]
    assert (finding.review, "self.pooler of its self.encoder" in finding.message) == ("review", True)
