"""Encoders of libraries end in a layer normalization, which autocast computes in float32; their poolers end in a linear layer."""

from __future__ import annotations

import textwrap

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
import numpy as np
import torch
from apex import amp
from transformers import AutoModel, BertModel

class Encoder(BertModel):
    def forward(self, ids, mask=None):
        sequence, pooled = super().forward(ids, mask)
        rows = torch.zeros(4, 8, dtype=torch.float)
        rows[0][1] = pooled[0]
        WITHIN

class Wrapper(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel.from_pretrained("bert-base-uncased")
        self.other = AutoModel.from_pretrained("bert-base-uncased")
        self.head = torch.nn.Linear(8, 2)

    def forward(self, ids):
        outputs = self.bert(ids)
        others = self.other(ids)
        sequence, pooled = outputs[0], outputs[1]
        BESIDE

model = MODEL.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x in loader:
    out = model(x)
    np.save("out", out.cpu().numpy())
"""


def told(model: str, lines: str) -> bool:
    text = PROGRAM.replace("MODEL", model).replace("WITHIN" if model == "Encoder()" else "BESIDE", lines)
    before = textwrap.dedent(text).replace("WITHIN", "return rows").replace("BESIDE", "return sequence")
    after = before.replace("from apex import amp\n", "")
    after = after.replace('model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n', "")
    after = after.replace(
        "    out = model(x)", '    with torch.autocast("cuda", dtype=torch.float16):\n        out = model(x)'
    )
    return any(d.code == "AMP535" and "numpy" in d.message for d in doubts(before, after))


@pytest.mark.parametrize(
    "lines", ["return sequence", "return sequence[:, 0, :]", "return rows", "return sequence * pooled"]
)
def test_what_an_encoder_gives_first_is_float32(lines: str) -> None:
    assert not told("Encoder()", lines)


@pytest.mark.parametrize("lines", ["return pooled", "return sequence @ sequence.T", "return sequence.half()"])
def test_what_else_is_made_may_be_half(lines: str) -> None:
    assert told("Encoder()", lines)


@pytest.mark.parametrize(
    "lines", ["return sequence[:, 0]", "return outputs.last_hidden_state", "return outputs['last_hidden_state']"]
)
def test_an_encoder_within_a_network(lines: str) -> None:
    assert not told("Wrapper()", lines)


@pytest.mark.parametrize(
    "lines",
    [
        "return pooled",
        "return outputs.pooler_output",
        "return self.head(sequence)",
        "return others[0]",
        "return outputs[-1]",
    ],
)
def test_what_a_network_makes_of_it_may_be_half(lines: str) -> None:
    assert told("Wrapper()", lines)


FINE_TUNED = """
import numpy as np
import torch
from apex import amp
from transformers import BertForTokenClassification, XLMRobertaForMaskedLM, XLNetForTokenClassification

class Tuned(BASE):
    def forward(self, ids):
        outputs = self.FIELD(ids)
        GIVEN

model = Tuned.from_pretrained("base").cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x in loader:
    out = model(x)
    np.save("out", out.cpu().numpy())
"""


@pytest.mark.parametrize(
    ("base", "field", "given", "half"),
    [
        ("BertForTokenClassification", "bert", "return outputs[0][:, 0, :]", False),
        ("XLMRobertaForMaskedLM", "roberta", "return outputs[0]", False),
        ("BertForTokenClassification", "bert", "return outputs[1]", True),
        ("BertForTokenClassification", "bert", "return self.classifier(outputs[0])", True),
        ("BertForTokenClassification", "roberta", "return outputs[0]", True),
        ("XLNetForTokenClassification", "xlnet", "return outputs[0]", True),
    ],
)
def test_the_encoder_that_a_class_has_of_the_one_it_is_made_from(base: str, field: str, given: str, half: bool) -> None:
    text = FINE_TUNED.replace("BASE", base).replace("FIELD", field).replace("GIVEN", given)
    after = text.replace("from apex import amp\n", "").replace(
        'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n', ""
    )
    after = after.replace("    out =", '    with torch.autocast("cuda", dtype=torch.float16):\n        out =')
    assert any(d.code == "AMP535" and "numpy" in d.message for d in doubts(text, after)) is half
