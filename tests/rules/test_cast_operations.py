"""A value that is computed where it is taken is cast as a whole, or the half in it: never the number beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.rules.helpers import names_of, rewrite

SOURCE = """\
import torch
from apex import amp


def train(net, opt, batches, temp=2.0):
    found = []
    net, opt = amp.initialize(net, opt, opt_level="O1")
    for x in batches:
        a = net(x)
        found.append(({}).detach().cpu().numpy())
        loss = a.sum()
        opt.zero_grad()
        with amp.scale_loss(loss, opt) as scaled:
            scaled.backward()
        opt.step()
    return found
"""


@pytest.mark.parametrize("operation", ["a * 2", "a / 2.0", "a / temp", "2.0 * a", "a * a + 1", "a - a.mean()"])
def test_what_goes_to_numpy_is_float32(operation: str) -> None:
    result = rewrite(SOURCE.format(operation), device="cpu", dtype="bfloat16")
    assert result.after is not None
    assert ".float()" in result.after
    net = torch.nn.Linear(3, 3)
    train = names_of(result.after)["train"]
    assert {v.dtype for v in train(net, torch.optim.SGD(net.parameters(), lr=0.1), [torch.ones(2, 3)])} == {
        np.dtype("float32")
    }
