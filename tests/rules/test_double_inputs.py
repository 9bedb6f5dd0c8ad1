"""Models that are given float64, which Apex cast and autocast leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_rewrite, rewrite, run_files
from tests.rules.programs import APEX_LOOP, MODEL, NATIVE_LOOP, apex, found, initialize, native


def loops(old: str, new: str, before: str = "") -> tuple[str, str]:
    """The loop that gives the model something, under Apex and now."""
    return before + APEX_LOOP.lstrip().replace("model(x)", old), before + NATIVE_LOOP.lstrip().replace("model(x)", new)


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model(x.double())", "model(x.float())"),
        ("model(x.cuda().to(torch.float64))", "model(x.cuda().float())"),
        ("model(x.to(dtype=torch.double))", "model(x.float())"),
        ("model(y, x=x.type(torch.float64))", "model(y, x=x.float())"),
    ],
)
def test_a_cast_at_the_call_casts_to_float32(old: str, new: str, level: str) -> None:
    loop, _ = loops(old, new)
    result = rewrite(apex(loop, initialize(f'opt_level="{level}"')))
    assert result.after is not None
    assert new in result.after
    (finding,) = found(result, "AMP524")
    assert "float64, which Apex cast" in finding.message


@pytest.mark.parametrize(
    "made",
    [
        "x = x.double()\n",
        "x = x.to(torch.float64).cuda()\n",
        "x = x.double().to(device)\n",
        "x = torch.tensor(x, dtype=torch.float64)\n",
    ],
)
def test_a_name_that_holds_float64_is_cast_where_it_is_given(made: str) -> None:
    loop, now = loops("model(x)", "model(x.float())", made)
    check_rewrite(apex(loop), native(now))


@pytest.mark.parametrize(
    "made",
    [
        "x = x.float()\n",
        "if double:\n    x = x.double()\n",
        "x = x.double()\nx = prepare(x)\n",
        "x = x.to(torch.float64, copy=True).half()\n",
        "x = x.double().to(other)\n",
        "y = y.double()\n",
        "x, z = x.double(), y\n",
    ],
)
def test_what_may_be_something_else_is_left_alone(made: str) -> None:
    loop, _ = loops("model(x)", "model(x)", made)
    result = rewrite(apex(loop))
    assert result.after is not None
    assert "model(x)" in result.after
    assert not found(result, "AMP524")


@pytest.mark.parametrize(
    "line", ["model.double()", "torch.set_default_dtype(torch.float64)", "model.to(torch.float64)"]
)
def test_a_model_in_float64_is_given_what_it_was(line: str) -> None:
    loop, _ = loops("model(x.double())", "")
    result = rewrite(apex(loop, model=f"{MODEL}\n{line}"))
    assert "model(x.double())" in (result.after or result.before)
    assert not found(result, "AMP524")


PROGRAM = """
import json
import torch
from torch import nn
{imports}
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{initialize}
losses = []
for step in range(3):
    x = torch.ones(2, 4, dtype=torch.float64)
    loss = model(x).float().pow(2).mean() + model(x.to(torch.float64)).float().pow(2).mean()
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps(losses))
"""


def test_what_is_written_trains(tmp_path: Path) -> None:
    program = PROGRAM.format(
        imports="from apex import amp", initialize='model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    )
    result = rewrite(program, device="cpu")
    assert result.after is not None
    assert result.after.count(".float()) .float()") == 0
    assert "model(x.float())" in result.after
    losses = run_files(tmp_path, {"train.py": result.after}, "train.py")
    assert losses[-1] < losses[0]
    kept = result.after.replace("model(x.float())", "model(x)")
    with pytest.raises(AssertionError, match=r"(?i)double"):
        run_files(tmp_path, {"train.py": kept}, "train.py")
