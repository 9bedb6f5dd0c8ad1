"""Half divided by a name that holds a number stays half: what computes from that in float32 under Apex is given float32."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import argparse
import torch
import torch.nn.functional as F
from apex import amp

HEAT = 10.0

class Settings:
    def __init__(self):
        self.heat = 10.0

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def forward(self, x, labels):
        scores = self.layer(x)
        return F.cross_entropy(scores, labels), scores

def softened(settings, scores, wanted, heat=10.0):
    TAKEN
    return F.kl_div(F.log_softmax(USED, dim=1), F.softmax(wanted / 10.0, dim=1)) * 100.0

class Stepper:
    def __init__(self, model):
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.model, self.optimizer = amp.initialize(model, self.optimizer, opt_level="O1")

    def step(self, loss):
        with amp.scale_loss(loss, self.optimizer) as scaled:
            scaled.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

def train(args, batches, model, settings):
    stepper = Stepper(model)
    for batch in batches:
        wanted = batch.pop("wanted", None)
        outputs = stepper.model(**batch)
        loss, scores = outputs[:2]
        if wanted is not None:
            loss = GIVEN
            stepper.step(loss)
        else:
            stepper.step(loss)

parser = argparse.ArgumentParser()
parser.add_argument("--warmth", type=float, default=10.0)
train(parser.parse_args(), [], Net().cuda(), Settings())
"""
TAKEN = ["pass", "t = 10.0", "t = HEAT", "t = settings.heat", "t = settings.warmth", "t = heat"]


@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("used", ["scores / {}", "scores.div({})", "-scores * {}", "{} * scores[:, :2]"])
def test_the_loss_of_a_helper_is_given_float32(taken: str, used: str) -> None:
    used = used.format("settings.heat" if taken == "pass" else "t")
    text = PROGRAM.replace("TAKEN", taken).replace("USED", used)
    result = rewrite(text.replace("GIVEN", "softened(args, scores, wanted)"))
    assert result.after is not None
    assert "softened(args, scores.float(), wanted)" in result.after


@pytest.mark.parametrize("number", ["HEAT", "settings.heat", "args.warmth"])
def test_what_is_computed_beside_the_region_is_given_float32(number: str) -> None:
    given = f"wanted.sum()\n            print(F.log_softmax(scores / {number}, dim=1))"
    result = rewrite(PROGRAM.replace("TAKEN", "pass").replace("USED", "scores").replace("GIVEN", given))
    assert f"log_softmax(scores.float() / {number}" in (result.after or "")


@pytest.mark.parametrize("taken", ["t = settings.warmth"])
def test_what_goes_through_a_container_is_told(taken: str) -> None:
    given = 'softened(settings, [{"rows": scores}][0]["rows"], wanted)'
    text = PROGRAM.replace("TAKEN", taken).replace("USED", "scores / t")
    result = rewrite(text.replace("GIVEN", given))
    told = [f for f in result.findings if f.code == "AMP535" and "log_softmax" in f.message]
    assert told or ".float()" in (result.after or "")
