"""Several FP16_Optimizers with different loss scales: the one scaler in their place has the scale of each run."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, names_of, rewrite
from tests.rules.programs import found

PROGRAM = """
import torch
from apex.fp16_utils import FP16_Optimizer


def main(old, scale, other=False):
    model = torch.nn.Linear(4, 1)
    if old:
        model.half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{wrap}
    for _ in range(3):
        loss = model(torch.ones(2, 4)).float().sum() * 0.001
        optimizer.zero_grad()
        if old:
            optimizer.backward(loss)
        else:
            loss.backward()
        optimizer.step()
    {last}
"""
NESTED = """
    if scale == 0:
        if old:
            optimizer = FP16_Optimizer(optimizer, {one})
    else:
        if old:
            optimizer = FP16_Optimizer(optimizer, {two})
"""
CHAINED = """
    if old and scale == 0:
        optimizer = FP16_Optimizer(optimizer, {one})
    elif old:
        optimizer = FP16_Optimizer(optimizer, {two})
"""
DYNAMIC, STATIC = "dynamic_loss_scale=True", "static_loss_scale=scale"


@pytest.mark.parametrize("shape", [NESTED, CHAINED])
@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (DYNAMIC, STATIC, {0.0: (65536.0, True), 4.0: (4.0, False)}),
        ("static_loss_scale=8.0", STATIC, {0.0: (8.0, False), 4.0: (4.0, False)}),
        ("static_loss_scale=8.0", DYNAMIC, {0.0: (8.0, False), 4.0: (65536.0, True)}),
    ],
)
def test_each_run_has_the_scale_that_it_asked_for(
    shape: str, one: str, two: str, expected: dict[float, tuple[float, bool]]
) -> None:
    program = PROGRAM.format(wrap=shape.format(one=one, two=two), last="return optimizer")
    after = rewrite(program, device="cpu").after
    assert after is not None
    after = after.replace("GradScaler(", "GradScaler(growth_interval=1, device=").replace(
        "return optimizer", "return scaler"
    )
    for scale, (start, moves) in expected.items():
        assert names_of(after)["main"](True, scale).get_scale() == (start * 2**3 if moves else start)


def test_a_scale_of_each_function_goes_with_its_scaler() -> None:
    text = """
        import torch
        from apex.fp16_utils import FP16_Optimizer


        def step(model, optimizer):
            loss = model(torch.ones(2, 4).half()).float().sum() * 0.001
            optimizer.zero_grad()
            optimizer.backward(loss)
            optimizer.step()


        def one(scale):
            model = torch.nn.Linear(4, 1).half()
            optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), static_loss_scale=scale)
            step(model, optimizer)
            return optimizer


        def two():
            model = torch.nn.Linear(4, 1).half()
            optimizer = FP16_Optimizer(torch.optim.Adam(model.parameters()), dynamic_loss_scale=True)
            step(model, optimizer)
            return optimizer
        """
    after = rewrite(text, device="cpu").after
    assert after is not None
    after = after.replace("GradScaler(", "GradScaler(growth_interval=1, device=").replace(
        "return optimizer", "return scaler"
    )
    space = names_of(after)
    assert (space["one"](4.0).get_scale(), space["two"]().get_scale()) == (4.0, 2.0**17)


def test_dynamic_scales_that_differ_are_left_to_the_user() -> None:
    moving = "dynamic_loss_scale=True, dynamic_loss_args={'init_scale': 1024.0}"
    program = PROGRAM.format(wrap=NESTED.format(one=moving, two=STATIC), last="return optimizer")
    (finding,) = found(check_manual(program, "AMP707"), "AMP707")
    assert "ask for different dynamic loss scales" in finding.message


def test_scales_that_are_the_same_are_told_as_before() -> None:
    program = PROGRAM.format(wrap=NESTED.format(one=STATIC, two=STATIC), last="return optimizer")
    after = rewrite(program).after
    assert after is not None
    assert "scaler.update(float(scale))" in after
