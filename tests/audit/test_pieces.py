"""Parts that are taken out of an initialized model and run by themselves: AMP531."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
import torch
import torch.nn as nn
HEAD

class Encoder(nn.Module):
    def forward(self, x):
        return x @ x.t()

class Net(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.encoder = Encoder()
        self.layers = nn.ModuleDict()
        self.layers["body"] = nn.Linear(4, 4)
        self.words = words
        self.criterion = nn.MSELoss()

    def forward(self, x):
        body = self.layers["body"]
        return body(self.encoder(x))

nets = {"net": Net(vocabulary).cuda(), "other": 1}
model = Net(vocabulary).cuda()
spare = Net(vocabulary).cuda()
INITIALIZE
for x in loader:
    REGION:
        loss = model(x).sum()
    STEP
CODE
"""


def found(code: str, level: str = "O2", head: str = "", part: str = "") -> list[tuple[int, str]]:
    """Verdicts and texts of the calls of which a migration says that they were half, where `code` follows the loop."""
    initialize = f'nets["net"], optimizer = amp.initialize(nets["net"], optimizer, opt_level="{level}")\n'
    initialize += f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")'
    whole = PROGRAM.replace("CODE", code).replace("class Net", head + "class Net")
    whole = whole.replace("        self.words = words\n", f"        self.words = words\n{part}")
    before = (
        whole.replace("HEAD", "from apex import amp").replace("INITIALIZE", initialize).replace("REGION", "if True")
    )
    before = before.replace(
        "STEP", "with amp.scale_loss(loss, optimizer) as s:\n        s.backward()\n    optimizer.step()"
    )
    after = whole.replace("HEAD", "").replace("INITIALIZE", "scaler = torch.amp.GradScaler()")
    after = after.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16)')
    after = after.replace("STEP", "scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()")
    return [(d.verdict, d.message.split(" ran ")[0]) for d in doubts(before, after) if " ran in half" in d.message]


@pytest.mark.parametrize(
    ("code", "called"),
    [
        ("enc = model.encoder\ny = enc(x)", "enc"),
        ("body = model.layers['body']\ny = body(x)", "body"),
        ("y = model.layers['body'](x)", "model.layers['body']"),
        ("y = nets['net'].layers['body'](x)", "nets['net'].layers['body']"),
        ("parts = list(model.children())\ny = parts[0](x)", "parts[0]"),
        ("for part in model.children():\n    x = part(x)", "part"),
        ("for name, part in model.named_modules():\n    x = part(x)", "part"),
        ("for i, part in enumerate(model.layers.values()):\n    x = part(x)", "part"),
        ("a, b = model.encoder, 1\ny = a(x)", "a"),
        ("inner = model\nenc = inner.encoder\nys = [enc(v) for v in x]", "enc"),
    ],
)
def test_a_part_by_itself(code: str, called: str) -> None:
    assert found(code) == [("review", called)]


@pytest.mark.parametrize(
    "code",
    [
        "enc = spare.encoder\ny = enc(x)",  # which O2 was not given
        "enc = Encoder()\ny = enc(x)",
        "words = model.words\ny = words(x)",  # no network
        "measure = model.criterion\ny = measure(x, x)",  # nothing with weights
        "for p in model.parameters():\n    f(p)",
        "for name, part in model.named_modules():\n    y = name(x)",  # the name of a part
        'enc = model.encoder\nwith torch.autocast("cuda", dtype=torch.float16):\n    y = enc(x)',
    ],
)
def test_what_is_no_part_or_has_its_region(code: str) -> None:
    assert not found(code)


def test_what_a_model_runs_itself_is_told_of_the_model_alone() -> None:
    assert found("y = model(x)") == [("review", "model")]
    assert found("y = model(x)\ny = model.encoder(x)") == [("review", "model"), ("review", "model.encoder")]


LABELS = """class Labels(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(4))

    def decode(self, scores):
        best = self.start + scores[0]
        for score in scores[1:]:
            best = torch.max(best, 1)[0] + score
        return best.argmax(1)

    def score(self, scores):
        return scores @ self.start

"""


def test_a_part_that_computes_no_product_is_as_it_was() -> None:
    def told(code: str) -> list[tuple[str, str]]:
        return found(code, head=LABELS, part="        self.labels = Labels()\n")

    assert not told("y = model.labels.decode(x)")
    assert told("y = model.labels.score(x)") == [("review", "model.labels.score")]
