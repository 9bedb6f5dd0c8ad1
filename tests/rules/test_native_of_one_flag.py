"""A native side that asks for the flag of Apex, and for more, is no other side of it: it stays, and Apex's is migrated."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

SOURCE = """\
import torch


def train(args, model, opt, batches):
    native = {}
    if args.fp16 and native:
        scaler = torch.cuda.amp.GradScaler()
    elif args.fp16:
        from apex import amp
        model, opt = amp.initialize(model, opt, opt_level="O1")
    for x in batches:
        opt.zero_grad()
        if args.fp16 and native:
            with torch.cuda.amp.autocast():
                loss = model(x).sum()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        elif args.fp16:
            loss = model(x).sum()
            with amp.scale_loss(loss, opt) as scaled:
                scaled.backward()
            opt.step()
        else:
            loss = model(x).sum()
            loss.backward()
            opt.step()
"""


@pytest.mark.parametrize("native", ["args.native", 'hasattr(torch.cuda, "amp")', "args.backend == 'native'"])
def test_the_native_side_stays(native: str) -> None:
    result = rewrite(SOURCE.format(native))
    assert result.after is not None
    assert "if args.fp16 and native:\n        scaler = torch.amp.GradScaler" in result.after
    assert "        scaler.scale(loss).backward()" in result.after
    assert "grad_scaler.scale(loss).backward()" in result.after
    assert "apex" not in result.after
