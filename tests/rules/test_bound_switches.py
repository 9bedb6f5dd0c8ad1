"""Tests around `initialize` in odd words, and regions that begin before the `with amp.scale_loss` that goes."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, check_rewrite
from tests.rules.trained import check_trained

LOOP = """
for x, y in loader:
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
HEAD = """
import torch
from apex import amp
from project import args, build, criterion, level_of, loader

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    "setup",
    [
        'if (level := level_of(args)) == "O1":\n    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
        'else:\n    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")\n',
        "if level := level_of(args):\n    model, optimizer = amp.initialize(model, optimizer, opt_level=level)\n",
        "if (level := level_of(args)):\n    model, optimizer = amp.initialize(model, optimizer, opt_level=level)\n"
        'else:\n    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n',
        "model, optimizer = amp.initialize(model, optimizer, opt_level=(level := level_of(args)))\n",
    ],
)
def test_a_switch_that_binds_a_name_is_refused_with_what_to_do(setup: str) -> None:
    result = check_manual(HEAD + setup + LOOP, "AMP113")
    assert result.after is None
    assert any("bind it on a line of its own above" in f.message for f in result.findings)


def test_a_name_bound_elsewhere_is_no_switch() -> None:
    setup = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
    loop = LOOP.replace("for x, y in loader:", "while (batch := next(loader, None)) is not None:\n    x, y = batch")
    result = check_rewrite(
        HEAD + setup + loop,
        HEAD.replace("from apex import amp\n", "")
        + 'scaler = torch.amp.GradScaler("cuda")\n\n'
        + "while (batch := next(loader, None)) is not None:\n"
        "    x, y = batch\n"
        '    with torch.autocast("cuda", dtype=torch.float16):\n'
        "        loss = criterion(model(x), y)\n"
        "    scaler.scale(loss).backward()\n"
        "    scaler.step(optimizer)\n"
        "    scaler.update()\n"
        "    optimizer.zero_grad()\n",
    )
    assert result.status == "migrated"


def test_a_switch_on_several_lines_is_asked_on_one() -> None:
    setup = (
        'if (args.level\n        != "O0"):\n'
        "    model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)\n"
    )
    result = check_rewrite(
        HEAD + setup + LOOP,
        HEAD.replace("from apex import amp\n", "")
        + 'scaler = torch.amp.GradScaler("cuda", enabled=args.level != "O0")\n\n'
        "for x, y in loader:\n"
        '    with torch.autocast("cuda", dtype=torch.float16, enabled=args.level != "O0"):\n'
        "        loss = criterion(model(x), y)\n"
        "    scaler.scale(loss).backward()\n"
        "    scaler.step(optimizer)\n"
        "    scaler.update()\n"
        "    optimizer.zero_grad()\n",
    )
    assert result.status == "migrated"


def test_a_forward_before_the_backward_within_scale_loss_runs_in_a_region() -> None:
    text = check_trained("""
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            loss = criterion(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                again = model(x)
                scaled_loss.backward()
            seen.append(again.float().mean().item())
            optimizer.step()
            optimizer.zero_grad()
        """)
    assert text.count("with torch.autocast(") == 2
    assert "):\n        again = model(x)\n    scaler.scale(loss).backward()" in text


def test_a_forward_after_the_backward_within_scale_loss_runs_in_a_region() -> None:
    text = check_trained("""
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            loss = criterion(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
                after = model(x)
            other = model(x + 1)
            seen.append((after.float() + other.float()).mean().item())
            optimizer.step()
            optimizer.zero_grad()
        """)
    assert text.count("with torch.autocast(") == 3
