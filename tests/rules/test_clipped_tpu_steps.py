"""A clip after every backward, and two steps that it served: the optimizer's own at the boundary, and one on a TPU."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found

TWO = """
import torch
from apex import amp
from project import args, loader, model

if args.tpu:
    import torch_xla.core.xla_model as xm
    args.xla_model = xm

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.fp16:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for i, x in enumerate(loader):
    loss = model(x).sum() / args.steps
    if args.fp16:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
    else:
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if (i + 1) % args.steps == 0 and not args.tpu:
        optimizer.step()
        model.zero_grad()
    if args.tpu:
        {}.optimizer_step(optimizer, barrier=True)
        model.zero_grad()
"""
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


@pytest.mark.parametrize("holder", ["args.xla_model", "xm"])
def test_the_other_step_keeps_its_clip(holder: str) -> None:
    result = rewrite(TWO.format(holder))
    lines = [line.strip() for line in (result.after or "").splitlines()]
    at = lines.index(f"{holder}.optimizer_step(optimizer, barrier=True)")
    assert lines[at - 2 : at] == ["if args.tpu:", CLIP]
    at = lines.index("scaler.step(optimizer)")
    assert lines[at - 2 : at] == ["scaler.unscale_(optimizer)", CLIP]
    (finding,) = found(result, "AMP302")
    assert "and before the other step at line 25, as before" in finding.message


def test_a_clip_that_only_ran_with_mixed_precision_is_so_before_both() -> None:
    plain = TWO.format("xm").replace(f"        loss.backward()\n        {CLIP}\n", "        loss.backward()\n")
    after = rewrite(plain).after or ""
    assert f"        if args.fp16:\n            {CLIP}\n        xm.optimizer_step(" in after
