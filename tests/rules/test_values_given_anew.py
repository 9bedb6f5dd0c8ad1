"""What a name, or a model, is given anew: of what it held before nothing is said there, and of what may be, that it may."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

LOOP = """
import torch
import torch.nn.functional as F
from torch import nn
from apex import amp


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x)


def main(train, test, meter):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    for step, (x, y) in enumerate(train):
        optimizer.zero_grad()
        scores = model(x)
        loss = F.cross_entropy(scores, y)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        BETWEEN
        if step % 10 == 0:
            torch.set_grad_enabled(False)
            for x, y in test:
                OTHER
                meter(scores, y)
            torch.set_grad_enabled(True)
"""


@pytest.mark.parametrize(
    ("between", "other", "cast"),
    [
        ("pass", "scores = model(x)", [False, True]),
        ("pass", "print(x)", [True]),
        ("meter(scores, y)", "scores = model(x)", [True, True]),
        ("pass", "if len(x):\n                    scores = model(x)", [True, True]),
        ("scores = scores[:, 0]", "print(x)", [True]),
        ("scores = scores[:, 0]", "scores = model(x)", [True, True]),
    ],
)
def test_an_output_leaves_its_region_where_the_name_holds_it_still(between: str, other: str, cast: list[bool]) -> None:
    result = rewrite(LOOP.replace("BETWEEN", between).replace("OTHER", other))
    lines = [line for line in (result.after or "").splitlines() if "scores = model(x)" in line]
    assert [line.endswith(".float()") for line in lines] == cast
    assert len([f for f in result.findings if f.code == "AMP503"]) == sum(cast)


CLIPPED = """
import argparse
import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
args = parser.parse_args()
model = build().cuda()
optimizer = torch.optim.SGD(PARAMETERS, lr=0.1)
if args.fp16:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
model.resize_token_embeddings(100)
for x in loader:
    loss = model(x).mean()
    if args.fp16:
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
    else:
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("parameters", "told"), [("model.parameters()", "may have more"), ("model.head.parameters()", "has more")]
)
def test_a_model_that_may_be_given_other_parameters_may_have_more(parameters: str, told: str) -> None:
    result = rewrite(CLIPPED.replace("PARAMETERS", parameters))
    (finding,) = [f for f in result.findings if f.code == "AMP304"]
    assert f"model.parameters(), which {told}, without mixed precision, as before" in finding.message
