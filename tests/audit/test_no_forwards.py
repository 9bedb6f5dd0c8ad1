"""Calls that look like forwards of a model and run none: of a tokenizer that a network keeps, of a name that nothing binds."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
import torch
from apex import amp
from there import kinds, loader, speak

class Net(torch.nn.Module):
    def __init__(self, encoder, words):
        super().__init__()
        self.encoder = encoder
        self.words = words
        self.head = torch.nn.Linear(4, 8)

    def forward(self, x):
        return self.head(self.encoder(x))

encoder, kind = kinds["small"]
words = kind.from_pretrained("small")
model = Net(encoder.from_pretrained("small"), words).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x in loader:
    z = model(x)
ASKED
"""
AFTER = (
    BEFORE.replace("from apex import amp\n", "")
    .replace("model, optimizer = amp.initialize", "scaler = torch.amp.GradScaler()  # ")
    .replace("    z = model(x)", '    with torch.autocast("cuda", dtype=torch.float16):\n        z = model(x)')
)


def lost(asked: str) -> bool:
    found = doubts(BEFORE.replace("ASKED", asked), AFTER.replace("ASKED", asked))
    return any(d.code == "AMP531" and ("words.decode" in d.message or "is out of sight" in d.message) for d in found)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("print(model.words.decode([1, 2], skip_special_tokens=True))", False),
        ("print(model.words.decode(z.argmax(-1).tolist(), clean_up_tokenization_spaces=False))", False),
        ("print(model.words.decode(z), words.eos_token)", False),
        ("print(model.words.decode(z), model.words.convert_ids_to_tokens([1]))", False),
        ("print(model.words.decode(z))", True),  # a network may be called so
        ("print(model.words.decode(z), model.eos_token)", True),
    ],
)
def test_a_tokenizer_that_a_network_keeps_runs_no_part_of_it(asked: str, told: bool) -> None:
    assert lost(asked) == told


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("print(evaluate(model, loader))", False),
        ("from there import evaluate\nprint(evaluate(model, loader))", True),
        ("from there import *\nprint(evaluate(model, loader))", True),
        ('globals()["evaluate"] = speak\nprint(evaluate(model, loader))', True),
    ],
)
def test_a_name_that_nothing_binds_is_no_function_out_of_sight(asked: str, told: bool) -> None:
    assert lost(asked) == told
