"""A native branch beside Apex's, of which more is followed once that is gone."""

from __future__ import annotations

import textwrap

import pytest

from amp_migrate.audit.stepping import runs
from tests.audit.helpers import doubts

CHOSEN = """
import torch
from apex import amp


def clip(optimizer, scaler):
    if scaler:
        scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)


def optimize(args, loss, optimizer, scaler, last, stepping):
    if args.apex:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        if stepping:
            clip(optimizer, None)
            optimizer.step()
    else:
        scaler.scale(loss).backward()
        if stepping:
            clip(optimizer, scaler)
            scaler.step(optimizer)
            if last:
                scaler.update()
    if stepping:
        optimizer.zero_grad()


def train(args, model, optimizers, loader):
    scaler = torch.amp.GradScaler("cuda")
    for step, (x, y) in enumerate(loader):
        for i, optimizer in enumerate(optimizers):
            optimize(args, model(x).sum(), optimizer, scaler, i + 1 == len(optimizers), step % args.every == 0)


train(args, model, optimizers, loader)
"""


@pytest.mark.parametrize(("kept", "refused"), [("scaler.update()", False), ("pass", True)])
def test_what_the_native_branch_does_by_itself_is_not_held_against_a_migration(
    monkeypatch: pytest.MonkeyPatch, kept: str, refused: bool
) -> None:
    """More than is followed: where Apex's branch goes, more of the native one's paths are, and what they show is not new."""
    head, _, rest = CHOSEN.replace("from apex import amp\n", "").partition("    if args.apex:\n")
    native, _, tail = rest.partition("    else:\n")[2].partition("    if stepping:\n        optimizer.zero_grad()")
    inner, after = (
        textwrap.dedent(native).replace("scaler.update()", kept),
        "    if stepping:\n        optimizer.zero_grad()",
    )
    alone = head + textwrap.indent(inner, "    ") + after + tail
    found = []
    for visits in range(2, 400, 7):
        monkeypatch.setattr(runs, "VISITS", visits)
        found += [d for d in doubts(CHOSEN, alone) if d.verdict == "refuse"]
    assert bool(found) is refused
