"""Each step that a clip came before on its path, has one before it still (AMP231)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

TPU = """
import torch
from project import args, loader, model

if args.tpu:
    import torch_xla.core.xla_model as xm

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
SETUP
for i, x in enumerate(loader):
    loss = model(x).sum()
    BACKWARD
    if i % args.steps == 0 and not args.tpu:
        STEP
        optimizer.zero_grad()
    if args.tpu:
        CLIP
        xm.optimizer_step(optimizer)
        optimizer.zero_grad()
"""


@pytest.mark.parametrize("clipped", [True, False])
def test_each_step_that_a_clip_came_before_has_one(clipped: bool) -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    before = TPU.replace("import torch", "import torch\nfrom apex import amp", 1)
    before = before.replace("SETUP", 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")')
    scaled = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
    before = (
        before.replace("BACKWARD", f"{scaled}    {clip}").replace("STEP", "optimizer.step()").replace("CLIP", "pass")
    )
    after = TPU.replace("SETUP", 'scaler = torch.amp.GradScaler("cuda")')
    after = after.replace("BACKWARD", "scaler.scale(loss).backward()").replace("CLIP", clip if clipped else "pass")
    step = f"scaler.unscale_(optimizer)\n        {clip}\n        scaler.step(optimizer)\n        scaler.update()"
    found = [d.message for d in doubts(before, after.replace("STEP", step)) if d.code == "AMP231"]
    assert found == ([] if clipped else ["on a path that steps, clipping would be left out"])
