"""Products outside of a region of what is half and what is float32, which raise: AMP535."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from amp_migrate.audit.dtypes import ALIKE, ALIKE_NATIVE
from tests.audit.helpers import doubts

PROGRAM = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from apex import amp

model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
INITIALIZE
bank = F.normalize(torch.randn(100, 2).cuda(), dim=1)

class Memory:
    def __init__(self):
        self.bank = torch.zeros(100, 2).cuda()

    def nearest(self, found):
        return torch.mm(found, self.bank.clone().t()).topk(5)[1]

def embed(x):
    REGION:
        return model(x)

for x, y in loader:
    REGION:
        output = model(x)
        loss = F.cross_entropy(output, y)
        INSIDE
    STEP
CODE
"""
STEP = "with amp.scale_loss(loss, optimizer) as scaled:\n        scaled.backward()\n    optimizer.step()"
STEP_NOW = "scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()"
INITIALIZE = 'model, optimizer = amp.initialize(model, optimizer, opt_level="{}")'


def told(code: str, level: str, inside: str = "pass") -> list[tuple[str, str]]:
    """Verdicts of what is said to raise, or to be computed in float16, and of which expression."""
    whole = PROGRAM.replace("CODE", code).replace("INSIDE", inside)
    before = whole.replace("REGION", "if True").replace("STEP", STEP).replace("INITIALIZE", INITIALIZE.format(level))
    after = whole.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16)').replace("STEP", STEP_NOW)
    after = after.replace("INITIALIZE", "scaler = torch.amp.GradScaler()").replace("from apex import amp\n", "")
    found = [d for d in doubts(before, after) if d.code == "AMP535"]
    kinds = {"raises": "raises", "float16 again": "product"}
    return [(d.verdict, kind) for d in found for text, kind in kinds.items() if text in d.message]


PRODUCTS = [
    "def nearest(x):\n    found = embed(x)\n    return torch.mm(found, bank.t())",
    "print(embed(x) @ bank.t())",
    "print(Memory().nearest(embed(x)))",
    "found = torch.cat([embed(x) for x, _ in loader])\nprint(bank.matmul(found.t()))",
    "print(F.linear(embed(x), bank), torch.dot(embed(x)[0], bank[0]))",
]


@pytest.mark.parametrize("code", PRODUCTS)
def test_half_and_float32_together_raise(code: str) -> None:
    for level in ("O1", "O2"):
        assert ("refuse", "raises") in told(code, level)
        assert not told(code.replace("embed(x)", "embed(x).float()"), level)


@pytest.mark.parametrize("code", ["torch.einsum('nc,kc->nk', embed(x), bank)", "torch.allclose(embed(x), bank[:8])"])
def test_what_o1_did_not_patch_raised_there_too(code: str) -> None:
    assert told(code, "O2") == [("refuse", "raises")]
    assert not told(code, "O1")


@pytest.mark.parametrize(
    "code",
    [
        "embed(x) * bank[:8]",
        "torch.where(y > 0, embed(x), bank)",
        "embed(x) @ embed(x).t()",
        "embed(x) @ torch.ones(2, 2).to(y)",
    ],
)
def test_what_promotes_or_is_alike(code: str) -> None:
    for level in ("O1", "O2"):
        assert not [kind for _, kind in told(code, level) if kind == "raises"]


def test_an_output_that_is_given_takes_no_part_in_autocast() -> None:
    made = "bank = torch.empty(8, 8).cuda()\n"
    for level in ("O1", "O2"):
        assert ("refuse", "raises") in told("pass", level, f"{made}        torch.mm(output, output.t(), out=bank)")
    assert not told("pass", "O1", f"{made}        torch.mm(bank, bank.t(), out=bank)")


def test_products_of_what_the_program_made_in_a_region() -> None:
    assert told("pass", "O2", "print(torch.mm(bank, bank.t()))") == [("review", "product")]
    assert not told("pass", "O1", "print(torch.mm(bank, bank.t()))")


CALLS = {
    "mm": lambda a, b: torch.mm(a, b),
    "bmm": lambda a, b: torch.bmm(a[None], b[None]),
    "linear": F.linear,
    "einsum": lambda a, b: torch.einsum("ab,cb->ac", a, b),
    "dot": lambda a, b: torch.dot(a[0], b[0]),
    "inner": torch.inner,
    "tensordot": torch.tensordot,
    "cdist": torch.cdist,
    "bilinear": lambda a, b: F.bilinear(a, b, b[None]),
    "lerp": lambda a, b: torch.lerp(a, b, 0.5),
    "allclose": torch.allclose,
    "isclose": torch.isclose,
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_table_is_that_of_the_torch_installed(name: str) -> None:
    assert name in ALIKE | ALIKE_NATIVE
    a = torch.ones(3, 3)
    with pytest.raises((RuntimeError, NotImplementedError)):
        CALLS[name](a.half(), a)
