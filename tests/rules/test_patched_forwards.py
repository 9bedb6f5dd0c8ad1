"""O2 patched the forward of the models that `initialize` was given, and no part of them: what those give was half, and stays so."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import torch
from apex import amp


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 4)

    def forward(self, ids):
        return self.out(self.words(ids))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = Encoder(), torch.nn.Linear(4, 9)

    def embed(self, ids):
        return self.encoder(ids)

    def whole(self, ids):
        return self(ids)

    def forward(self, ids):
        return self.head(self.encoder(ids))


def embedded(net, ids):
    return net.encoder(ids)


def main(loader, record):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    GIVEN, optimizer = amp.initialize(GIVEN, optimizer, opt_level="O2")
    PREPARE
    for ids, y in loader:
        optimizer.zero_grad()
        left = CALL
        loss = torch.nn.functional.cross_entropy(torch.matmul(left, left.transpose(1, 0)), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        record(torch.sigmoid(left).sum())


if __name__ == "__main__":
    main(batches, print)
"""


def told(call: str, prepare: str = "pass", given: str = "model") -> tuple[bool, bool]:
    """Whether a value is made float32 where it leaves the region, and whether it is told that a product of it was float32."""
    text = PROGRAM.replace("CALL", call).replace("PREPARE", prepare).replace("GIVEN", given)
    result = rewrite(text)
    assert result.after is not None
    return ".float()" in result.after, any("torch.matmul" in f.message for f in result.findings if f.code == "AMP535")


@pytest.mark.parametrize(
    "call", ["model.encoder(ids)", "model.encoder.forward(ids)", "embedded(model, ids)", "model.embed(ids)"]
)
def test_parts_and_other_methods_gave_half(call: str) -> None:
    assert told(call) == (False, False)


def test_parts_that_are_taken_out_gave_half() -> None:
    assert told("part(ids)", "part = model.encoder") == (False, False)
    wrapped = "model = torch.nn.parallel.DistributedDataParallel(model)"
    assert told("model.module.encoder(ids)", wrapped) == (False, False)


def test_what_apex_was_given_gave_float32() -> None:
    wrapped = "model = torch.nn.parallel.DistributedDataParallel(model)"
    assert told("model(ids)") == (True, True)
    assert told("model.module(ids)", wrapped) == (True, True)
    assert told("model.whole(ids)") == (True, True)
    assert told("model.encoder(ids)", given="model.encoder") == (True, True)
