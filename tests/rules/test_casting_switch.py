"""A region's switch is that of casting: O3 casts and does not scale, so its scaler is off and its regions are on."""

from __future__ import annotations

from tests.audit.helpers import doubts_of
from tests.rules.helpers import check_files

STEPS = """
import torch
from apex import amp


def step(model, x, optimizer):
    optimizer.zero_grad()
    loss = model(x).mean()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
SCRIPT = """
import torch
from apex import amp
from project import args, build, loader
from steps import step

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, {})
for x in loader:
    step(model, x, optimizer)
"""
FILES = {
    "steps.py": STEPS,
    "train.py": SCRIPT.format('opt_level="O1", enabled=args.apex'),
    "half.py": SCRIPT.format('opt_level="O3", keep_batchnorm_fp32=True'),
}


def test_a_program_that_does_not_scale_beside_one_that_does() -> None:
    after = check_files(FILES)
    assert 'with torch.autocast("cuda", dtype=torch.float16, enabled=use_amp):' in after["steps.py"]
    assert "    step(model, x, optimizer, scaler, use_amp=True)\n" in after["half.py"]
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=False)\n' in after["half.py"]
    assert "    step(model, x, optimizer, scaler, use_amp=bool(args.apex))\n" in after["train.py"]


def test_programs_that_scale_ask_their_scaler() -> None:
    after = check_files({**FILES, "half.py": SCRIPT.format('opt_level="O1"')})
    assert 'with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):' in after["steps.py"]


def test_the_audit_tells_of_regions_that_ask_a_scaler_which_is_off() -> None:
    after = {p: t.replace("enabled=use_amp", "enabled=scaler.is_enabled()") for p, t in check_files(FILES).items()}
    found = [d for d in doubts_of(FILES, after) if d.code == "AMP531"]
    assert [d.verdict for d in found] == ["review"]
    assert "the autocast region around it is off there now (scaler.is_enabled())" in found[0].message
