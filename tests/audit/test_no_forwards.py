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


CHOSEN = """
import sys
import torch
IMPORT
from settings import batches, opts, parser

class Trainer(torch.nn.Module):
    def __init__(self, params):
        super().__init__()
        self.fp16 = params["apex"]
        self.run = torch.nn.Linear(4, 4)
        self.opt = torch.optim.SGD(self.run.parameters(), lr=0.1)
        SET_UP

if opts.trainer == "first":
    trainer = Trainer(opts.params)
else:
    OTHERWISE
run = trainer.run
for x in batches:
    with torch.no_grad()REGION:
        print(run(x))
"""


@pytest.mark.parametrize(
    ("otherwise", "told"),
    [
        ('sys.exit("first alone")', False),
        ('parser.error("first alone")', False),
        ("exit(1)", False),
        ("raise ValueError(opts.trainer)", False),
        ("trainer = opts.others()", True),
    ],
)
def test_what_ends_the_run_comes_to_no_forward(otherwise: str, told: bool) -> None:
    """A run of another kind never came by amp.initialize: it ended."""
    text = CHOSEN.replace("OTHERWISE", otherwise)
    set_up = 'if self.fp16:\n            self.run, self.opt = amp.initialize(self.run, self.opt, opt_level="O1")'
    before = text.replace("IMPORT", "from apex import amp").replace("SET_UP", set_up).replace("REGION", "")
    region = ', torch.autocast("cuda", dtype=torch.float16, enabled=trainer.scaler.is_enabled())'
    scaler = 'self.scaler = torch.amp.GradScaler("cuda", enabled=self.fp16)'
    after = text.replace("IMPORT", "").replace("SET_UP", scaler).replace("REGION", region)
    found = [d for d in doubts(before, after) if d.code == "AMP531" and "under autocast now" in d.message]
    assert bool(found) == told
