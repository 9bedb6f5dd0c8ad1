"""A program with a back end of its own beside Apex: its region is on for both, its readers of gradients stay where they are."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import apex, check_refused, found, initialize
from tests.rules.trained import PRELUDE, run

PROGRAM = """
fp16, kind = True, "{kind}"
if fp16:
    if kind == "apex":
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    else:
        own = torch.amp.GradScaler("cpu")

for x, y in loader:
    with torch.autocast("cpu", dtype=torch.float16, enabled=fp16 and kind == "native"):
        output = model(x)
        loss = criterion(output, y)
    seen.append(float(output.dtype == torch.float16))
    optimizer.zero_grad()
    if fp16:
        if kind == "apex":
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            own.scale(loss).backward()
    else:
        loss.backward()
    if fp16:
        if kind == "native":
            own.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        else:
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.05)
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    if fp16 and kind == "native":
        own.step(optimizer)
        own.update()
    else:
        optimizer.step()
"""


@pytest.mark.parametrize("kind", ["apex", "native"])
def test_each_back_end_runs_in_half_and_clips(kind: str) -> None:
    result = rewrite(PRELUDE + PROGRAM.format(kind=kind), device="cpu")
    assert result.after is not None, result.findings
    assert 'enabled=fp16 and kind == "native" or ' in result.after
    assert not found(result, "AMP302")
    values, _ = run(result.after)
    norms, halves = values[:6], values[6:]
    assert halves == [1.0] * 6
    assert norms == pytest.approx(run(PRELUDE.replace("from apex import amp", "") + PLAIN)[0], rel=2e-2)


PLAIN = """
for x, y in loader:
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()
"""
LOOP = """
optimizer.zero_grad()
with {}:
    loss = criterion(model(x), y)
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
optimizer.step()
"""
FLAG = initialize('opt_level="O1", enabled=flag')


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ('torch.autocast("cuda", enabled=mine)', 'torch.autocast("cuda", enabled=mine or flag)'),
        ("torch.cuda.amp.autocast(mine)", 'torch.autocast("cuda", enabled=mine or flag)'),
        ('torch.autocast("cuda", enabled=False)', 'torch.autocast("cuda", enabled=flag)'),
        (
            'torch.autocast("cuda", torch.float16, a if b else c)',
            'torch.autocast("cuda", torch.float16, (a if b else c) or flag)',
        ),
    ],
)
def test_a_region_under_a_switch_is_on_for_what_apex_cast(region: str, expected: str) -> None:
    after = rewrite(apex(LOOP.format(region), FLAG)).after
    assert after is not None
    with_flag = after.replace("scaler.is_enabled()", "flag").replace("bool(flag)", "flag")
    assert f"    with {expected}:\n        loss = criterion(model(x), y)\n    scaler.scale" in with_flag


def test_a_region_is_always_on_where_apex_was() -> None:
    after = rewrite(apex(LOOP.format('torch.autocast("cuda", enabled=mine)'))).after
    assert after is not None
    assert '    with torch.autocast("cuda", enabled=True):\n' in after


@pytest.mark.parametrize(
    "region", ['torch.autocast("cuda", **options)', 'torch.autocast("cuda", dtype=torch.bfloat16, enabled=mine)']
)
def test_a_region_that_may_be_off_or_of_another_type_is_refused(region: str) -> None:
    check_refused(apex(LOOP.format(region)), "AMP501")
