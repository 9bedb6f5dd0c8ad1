"""A plain backward beside a scaled one, both into one step: Apex had unscaled the other gradients, native has not yet."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import apex, check_refused, found, native
from tests.rules.trained import check_trained

SCALED = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()\n"
NATIVE = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\n"
REGION = 'with torch.autocast("cuda", dtype=torch.float16):\n'


def test_a_plain_backward_above_a_scaled_one_is_scaled_too() -> None:
    before = "loss = criterion(model(x), y)\nother = criterion(model(-x), y)\nother.backward()\n" + SCALED
    after = (
        f"{REGION}    loss = criterion(model(x), y)\n    other = criterion(model(-x), y)\n"
        "scaler.scale(other).backward()\n" + NATIVE
    )
    result = check_rewrite(apex(before), native(after))
    (finding,) = found(result, "AMP217")
    assert finding.review == "review"


def test_a_plain_backward_whose_gradients_are_cleared_stays() -> None:
    before = "other = criterion(model(-x), y)\nother.backward()\noptimizer.zero_grad()\nloss = criterion(model(x), y)\n"
    result = rewrite(apex(before + SCALED))
    assert result.after is not None
    assert "    other.backward()\n" in result.after
    assert not found(result, "AMP217")


def test_a_plain_backward_whose_gradients_are_read_before_the_scaled_one_is_refused() -> None:
    before = "other = criterion(model(-x), y)\nother.backward()\nx = x + x.grad.sign()\nloss = criterion(model(x), y)\n"
    check_refused(apex(before + SCALED), "AMP217")


OTHER = """
other = build()
second = torch.optim.SGD(other.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    penalty = criterion(model(x), -y)
    penalty.backward()
    {cleared}.zero_grad()
    loss = criterion(model(x) + other(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()
"""


@pytest.mark.parametrize("cleared", ["second", "other"])
def test_clearing_the_gradients_of_another_optimizer_clears_none_of_these(cleared: str) -> None:
    assert "scaler.scale(penalty).backward()" in check_trained(OTHER.format(cleared=cleared))


@pytest.mark.parametrize("cleared", ["optimizer", "model"])
def test_clearing_these_gradients_leaves_a_backward_plain(cleared: str) -> None:
    assert "    penalty.backward()" in check_trained(OTHER.format(cleared=cleared))


HELPER = """
def forward_backward(model, optimizer, x, y):
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()

def penalty(model):
    return sum((p * p).sum() for p in model.parameters())

model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    forward_backward(model, optimizer, x, y)
    if len(x) > 0:
        extra = penalty(model)
        extra.backward()
    clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()
"""


def test_a_backward_between_a_call_that_scales_and_the_step_is_scaled_too() -> None:
    assert "        scaler.scale(extra).backward()" in check_trained(HELPER)


SCALED_THERE = "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"


@pytest.mark.parametrize(
    ("branches", "scaled"),
    [
        (f"if args.double:\n    other.backward()\nelse:\n{SCALED_THERE}", False),
        (f"if args.double:\n{SCALED_THERE}    other.backward()\n", True),
    ],
)
def test_a_backward_in_the_other_branch_is_alone_and_one_in_the_same_is_not(branches: str, scaled: bool) -> None:
    losses = "loss = criterion(model(x), y)\nother = criterion(model(-x), y)\n"
    after = rewrite(apex(f"{losses}{branches}optimizer.step()\n")).after or ""
    assert ("scaler.scale(other).backward()" in after) is scaled


TPU = """
import torch
import torch_xla.core.xla_model as xm
from apex import amp
from project import build, loader, on_tpu, penalty

def train(args):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for i, x in enumerate(loader):
        forward_backward(args, model, x, optimizer)
        if i % 2 == 1:
            extra = penalty(model)
            extra.backward()
            if args.fp16:
                torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
            else:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if on_tpu():
                xm.optimizer_step(optimizer)
            else:
                optimizer.step()
            optimizer.zero_grad()

def forward_backward(args, model, x, optimizer):
    loss = model(x).mean()
    if args.fp16:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()

train(parse())
"""


def test_a_clip_before_the_steps_of_two_back_ends_stays_before_both() -> None:
    result = rewrite(TPU)
    assert result.after is not None, result.findings
    lines = [line.strip() for line in result.after.splitlines()]
    clip = lines.index("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
    assert lines[clip - 2 : clip] == ["scaler.scale(extra).backward()", "scaler.unscale_(optimizer)"]
    assert lines[clip + 1 : clip + 6] == [
        "if on_tpu():",
        "xm.optimizer_step(optimizer)",
        "else:",
        "scaler.step(optimizer)",
        "scaler.update()",
    ]
    assert not found(result, "AMP302")
