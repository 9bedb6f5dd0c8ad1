"""A region that an expression chooses: `with autocast() if flag else nullcontext():`."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts
from tests.rules.helpers import rewrite

PROGRAM = """
import argparse
from contextlib import nullcontext
import torch
from apex import amp


def train(loader, net, optimizer, use_apex, use_native):
    if use_apex:
        net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
    scaler = torch.amp.GradScaler("cuda", enabled=use_native)
    for x in loader:
        loss = net(x).mean()
        optimizer.zero_grad()
        if use_native:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            if use_apex:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()


parser = argparse.ArgumentParser()
parser.add_argument("--apex", action="store_true")
parser.add_argument("--native", action="store_true")
args = parser.parse_args()
net = torch.nn.Linear(3, 1).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with CHOSEN:
    train(loader, net, optimizer, args.apex, args.native)
"""


@pytest.mark.parametrize(
    "chosen",
    [
        'torch.autocast("cuda") if args.native else nullcontext()',
        'nullcontext() if not args.native else torch.autocast("cuda")',
    ],
)
def test_it_is_on_where_the_test_chooses_it(chosen: str) -> None:
    before = PROGRAM.replace("CHOSEN", chosen)
    asked = ' or torch.is_autocast_enabled("cuda")'
    after = rewrite(before).after
    assert after is not None
    assert asked in after
    assert not doubts(before, after)
    found = doubts(before, after.replace(asked, ""))
    assert not [d for d in found if "Apex was set up" in d.message]
    (told,) = [d for d in found if d.code == "AMP531"]
    assert "not apex and native" in told.message
