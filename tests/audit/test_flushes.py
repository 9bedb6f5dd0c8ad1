"""Steps behind a loop for what its last turns left: where nothing is left, the scaler has no gradients to step on."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
    import torch
    IMPORT

    def train(model, optimizer, loader, n):
        SETUP
        FIRST
        for i, x in enumerate(loader):
            loss = model(x).sum()
            SCALED
            COUNT
            if DUE:
                STEP
                optimizer.zero_grad()
                FIRST
            ELSE
        if LEFT:
            STEP
            optimizer.zero_grad()
    """
BEFORE = {
    "IMPORT": "from apex import amp",
    "SETUP": "model, optimizer = amp.initialize(model, optimizer)",
    "SCALED": "with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()",
    "STEP": "optimizer.step()",
}
AFTER = {
    "IMPORT": "",
    "SETUP": 'scaler = torch.amp.GradScaler("cuda")',
    "SCALED": "scaler.scale(loss).backward()",
    "STEP": "scaler.step(optimizer); scaler.update()",
}


def told(first: str, count: str, due: str, left: str, otherwise: str = "pass") -> list[str]:
    def text(words: dict[str, str]) -> str:
        found = PROGRAM.replace("            ELSE\n", f"            else:\n                {otherwise}\n")
        own = {"FIRST": first, "COUNT": count, "DUE": due, "LEFT": left}
        for name, value in {**words, **own}.items():
            found = found.replace(name, value)
        return found

    return [d.verdict for d in doubts(text(BEFORE), text(AFTER)) if "no backward came since zero_grad" in d.message]


@pytest.mark.parametrize(
    ("first", "count", "due", "left"),
    [
        ("pass", "pass", "(i + 1) % n == 0", "(i + 1) % n != 0"),
        ("held = 0", "held += 1", "held == n", "held > 0"),
        ("held = 0", "held += 1", "held == n", "held >= 1"),
        ("held = 0", "held += 1", "held == n", "held != 0"),
        ("held = 0", "held += 1", "held == n", "held"),
        ("held = 0", "held += 1", "held >= n", "0 < held"),
        ("held = False", "held = True", "x.last", "held"),
    ],
)
def test_what_asks_whether_anything_is_left(first: str, count: str, due: str, left: str) -> None:
    assert not told(first, count, due, left)


@pytest.mark.parametrize(
    ("first", "count", "due", "left", "otherwise"),
    [
        ("held = 1", "pass", "held == n", "held != n", "held += 1"),
        ("held = 0", "held += 1", "held == n", "held < n", "pass"),
        ("held = 0", "held += 1", "held == n", "n > 1", "pass"),
    ],
)
def test_what_asks_for_something_else(first: str, count: str, due: str, left: str, otherwise: str) -> None:
    """Behind the loop nothing is left where its last turn made a step."""
    assert told(first, count, due, left, otherwise) == ["review"]
