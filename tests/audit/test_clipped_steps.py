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


ARMS = """
import torch
from project import args, loader, model, optimizers

optimizer = optimizers[0]
SETUP
for x in loader:
    loss = model(x).sum()
    BACKWARD
    if args.careful:
        FIRST
        STEP
    elif args.mild:
        CLIP
        STEP
    else:
        STEP
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("clipped", [True, False])
def test_a_step_that_is_named_otherwise_has_its_clip_on_each_path(clipped: bool) -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    before = ARMS.replace("import torch", "import torch\nfrom apex import amp", 1)
    before = before.replace("SETUP", 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")')
    scaled = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()"
    before = before.replace("BACKWARD", scaled).replace("FIRST", clip).replace("CLIP", clip)
    before = before.replace("STEP", "optimizer.step()")
    after = ARMS.replace("SETUP", 'scaler = torch.amp.GradScaler("cuda")')
    after = after.replace("BACKWARD", "scaler.scale(loss).backward()\n    scaler.unscale_(optimizers[0])")
    after = after.replace("FIRST", clip if clipped else "pass").replace("CLIP", clip)
    after = after.replace("STEP", "scaler.step(optimizers[0])\n        scaler.update()")
    found = [d.message for d in doubts(before, after) if d.code == "AMP231"]
    assert found == ([] if clipped else ["on a path that steps, clipping would be left out"])


CHOSEN = """
import torch
from project import args, loader, model, reader

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
SETUP
for x in loader:
    loss = model(x).sum()
    BACKWARD
    COLLECT
    reader(GIVEN)
    STEP
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("unscaled", [True, False])
@pytest.mark.parametrize("named", ["given = FOUND", "given = FOUND\n    given = list(given)", ""])
@pytest.mark.parametrize("chosen", [True, False])
def test_who_is_handed_what_has_a_gradient_reads_it(chosen: bool, named: str, unscaled: bool) -> None:
    """Functions out of sight included; not those that are handed parameters as such, which may read weights."""
    program = CHOSEN.replace("GIVEN", "given" if named else "FOUND").replace("COLLECT", named or "pass")
    program = program.replace("FOUND", f"[p for p in PARAMETERS if p.{'grad' if chosen else 'data'} is not None]")
    before = program.replace("import torch", "import torch\nfrom apex import amp", 1)
    before = before.replace("SETUP", 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")')
    scaled = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()"
    before = before.replace("BACKWARD", scaled).replace("PARAMETERS", "amp.master_params(optimizer)")
    after = program.replace("SETUP", 'scaler = torch.amp.GradScaler("cuda")')
    unscale = "\n    scaler.unscale_(optimizer)" if unscaled else ""
    after = after.replace("BACKWARD", f"scaler.scale(loss).backward(){unscale}").replace(
        "PARAMETERS", "model.parameters()"
    )
    found = doubts(
        before.replace("STEP", "optimizer.step()"), after.replace("STEP", "scaler.step(optimizer)\n    scaler.update()")
    )
    assert ("AMP231" in {d.code for d in found}) is (chosen and not unscaled)
    assert "AMP191" not in {d.code for d in found}
