"""What a call asks of a model by a constant decides which of its statements run: AMP535 tells of no other."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found

PROGRAM = """
import sklearn.cluster
import torch
import torch.nn.functional as F
from apex import amp
from rows import kept


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 3)

    def forward(self, x, option="raw"):
        feats = [self.body(x)]
        y = feats[-1]
        FORWARD


def norms(found):
    return READ


def evaluate(model, data, option):
    rows = dict()
    with torch.no_grad():
        for i, x in enumerate(data):
            _, feats = model(x, option=OPTION)
            rows[i] = feats[-1][0]
    rows = torch.stack(list(rows.values())).cpu()
    return norms(rows)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x in [torch.ones(2, 4)]:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x)[0], torch.zeros(2, 3))
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
evaluate(model, [torch.ones(2, 4)], model.option)
"""
CHAIN = """
if option == "raw":
    return y, feats
elif option == "plain":
    return y, [F.normalize(f, p=2, dim=1) for f in feats]
return y, feats
"""
NESTED = """
if option != "raw":
    if option == "plain":
        return y, [F.normalize(f, p=2, dim=1) for f in feats]
    else:
        raise ValueError(option)
return y, feats
"""
GIVEN = """
if option == "plain":
    feats = [F.normalize(f, p=2, dim=1) for f in feats]
return y, feats
"""


def _said(forward: str, option: str, read: str = "torch.pow(found, 2).sum(1)") -> list[str]:
    program = PROGRAM.replace("FORWARD", textwrap.indent(forward.strip(), " " * 8).lstrip())
    result = rewrite(program.replace("OPTION", option).replace("READ", read))
    assert result.after is not None
    return [f.message for f in found(result, "AMP535")]


@pytest.mark.parametrize("forward", [CHAIN, NESTED, GIVEN])
def test_only_what_the_call_asks_for_runs(forward: str) -> None:
    assert not _said(forward, '"plain"')
    assert _said(forward, '"raw"')
    assert _said(forward, "option")


@pytest.mark.parametrize("called", ["sklearn.cluster.KMeans(2).fit(found)", "sklearn.cluster.k_means(found, 2)"])
def test_a_library_of_arrays_gets_what_was_float32_on_the_cpu(called: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another way gives it what is not seen."""
    monkeypatch.setattr(
        f"{__name__}.PROGRAM", PROGRAM.replace("return norms", "rows = rows if data else kept()\n    return norms")
    )
    (message,) = _said(CHAIN, "option", called)
    assert "Apex had it in float32" in message
