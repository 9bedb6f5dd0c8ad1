"""A function that only asks whether mixed precision is on: a switch where its callers can tell, a scaler where they cannot."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found

SOURCE = """
import argparse
import torch
from apex import amp
from project import Net, criterion, loader


def validate(model, loader):
    with torch.no_grad():
        return [model(x) for x, _ in loader]


def train(model, optimizer):
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    VALIDATED


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--level", default="O1", choices=["O0", "O1"])
    args = parser.parse_args()
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, OPTIONS)
    train(model, optimizer)
    CALLED


if __name__ == "__main__":
    main()
"""


def source(
    options: str = 'opt_level="O1", enabled=args.fp16', called: str = "validate(model, loader)", within: str = ""
) -> str:
    text = SOURCE.replace("OPTIONS", options).replace("CALLED", called)
    return text.replace("VALIDATED", within or "print(loss)")


def test_where_the_switch_is_at_hand_it_is_handed_over() -> None:
    result = rewrite(source())
    assert result.after is not None
    assert "def validate(model, loader, use_amp=False):\n" in result.after
    assert 'with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=use_amp):\n' in result.after
    assert "    validate(model, loader, use_amp=args.fp16)\n" in result.after
    assert "def train(model, optimizer, scaler):\n" in result.after  # which scales
    (finding,) = (f for f in found(result, "AMP220") if "use_amp" in f.message)
    assert "every call in sight" in finding.message


@pytest.mark.parametrize(
    ("options", "within"),
    [
        ('opt_level="O1", enabled=args.fp16', "validate(model, loader)"),  # called where only the scaler is
        ("opt_level=args.level, enabled=args.fp16", ""),  # a condition of two parts is not written again at each call
    ],
)
def test_elsewhere_the_scaler_is_asked(options: str, within: str) -> None:
    result = rewrite(source(options, within=within))
    assert result.after is not None
    assert "def validate(model, loader, scaler):\n" in result.after
    assert "enabled=scaler.is_enabled()" in result.after
    assert "use_amp" not in result.after
