"""Second derivatives: the inner gradient is taken of a scaled loss and divided back, the penalty is under autocast."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.rules.helpers import check_rewrite, check_untouched, rewrite
from tests.rules.programs import apex, found, native

LOOP = """
x.requires_grad_()
out = model(x)
inner_loss = criterion(out, y)
{}
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
optimizer.step()
"""


def test_the_inner_gradient_is_scaled_and_divided_by_the_scale() -> None:
    before = LOOP.format(
        "grad = torch.autograd.grad(inner_loss, x, create_graph=True)[0]\nloss = inner_loss + grad.norm()"
    )
    after = """
        x.requires_grad_()
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            inner_loss = criterion(out, y)
        grad = torch.autograd.grad(scaler.scale(inner_loss), x, create_graph=True)[0] / scaler.get_scale()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = inner_loss + grad.norm()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        """
    result = check_rewrite(apex(before), native(after))
    assert found(result, "AMP206")


@pytest.mark.parametrize(
    "call",
    [
        "torch.autograd.grad(outputs=inner_loss, inputs=x, create_graph=True)[0]",
        "torch.autograd.grad(outputs=inner_loss, inputs=x, grad_outputs=torch.ones_like(inner_loss), create_graph=True)[0]",
    ],
)
def test_outputs_given_by_keyword_are_scaled_too(call: str) -> None:
    before = LOOP.format(f"grad = {call}\nloss = inner_loss + grad.norm()")
    after = rewrite(apex(before)).after
    assert after is not None
    assert "outputs=scaler.scale(" in after
    assert "/ scaler.get_scale()" in after


def test_the_penalty_is_never_left_inside_the_scaled_backward_unscaled() -> None:
    before = LOOP.format(
        "grad = torch.autograd.grad(inner_loss, x, create_graph=True)[0]\nloss = inner_loss + grad.norm()"
    )
    after = rewrite(apex(before)).after
    assert after is not None
    assert after.count("scaler.scale(") == 2
    assert "autocast" not in after[after.index("grad = ") : after.index("]", after.index("grad = "))]


def test_bfloat16_needs_no_division() -> None:
    before = LOOP.format(
        "grad = torch.autograd.grad(inner_loss, x, create_graph=True)[0]\nloss = inner_loss + grad.norm()"
    )
    after = rewrite(apex(before), dtype="bfloat16").after
    assert after is not None
    assert "grad = torch.autograd.grad(inner_loss, x, create_graph=True)[0]\n" in after
    assert "scale" not in after


def test_gradients_of_a_program_without_apex_are_left_alone() -> None:
    check_untouched(
        "import torch\ngrad = torch.autograd.grad(inner_loss, x, create_graph=True)[0]  # apex of the graph\n"
    )


ATTACK = """
import torch
from apex import amp

SEEN = []
{helper}

def main(half):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if half:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=128.0)
    x, y = torch.ones(2, 4).requires_grad_(), torch.ones(2, 1)
    loss = torch.nn.functional.mse_loss(model(x), y)
    if half:
        with amp.scale_loss(loss, optimizer) as scaled:
            {inner}
            grad = grad / (scaled / loss)
    else:
        grad = torch.autograd.grad(loss, x, create_graph=True)[0]
    SEEN.append(grad.detach())
    loss = torch.nn.functional.mse_loss(model(x.detach()), y) + grad.pow(2).mean()
    optimizer.zero_grad()
    if half:
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
    else:
        loss.backward()
    optimizer.step()
"""
HELPER = """
def inner_gradient(loss, x, optimizer):
    grad = torch.autograd.grad(loss, x, create_graph=True)[0]
    with amp.scale_loss(x.sum() * 0, optimizer) as none:
        none.backward(retain_graph=True)
    return grad
"""


@pytest.mark.parametrize(
    ("inner", "helper"),
    [
        ("grad = torch.autograd.grad(scaled, x, create_graph=True)[0]", ""),
        ("target = scaled * 1.0\n            grad = torch.autograd.grad([target], x, create_graph=True)[0]", ""),
        ("main.kept = scaled\n            grad = torch.autograd.grad(main.kept, x, create_graph=True)[0]", ""),
        ("grad = inner_gradient(scaled, x, optimizer)", HELPER),
    ],
)
def test_what_is_scaled_already_is_not_scaled_again(inner: str, helper: str) -> None:
    after = rewrite(ATTACK.format(inner=inner, helper=helper), device="cpu").after
    assert after is not None
    assert "autograd.grad(scaler.scale(scaled" not in after
    gradients = []
    for half in (True, False):
        space: dict[str, Any] = {}
        exec(after, space)
        space["main"](half)
        gradients += space["SEEN"]
    assert torch.allclose(*gradients, rtol=0.01)


def test_a_loss_that_is_scaled_below_under_its_own_name_is_scaled_for_the_inner_gradient() -> None:
    before = LOOP.format(
        "loss = criterion(out, y)\ngrad = torch.autograd.grad(loss, x, create_graph=True)[0]\nloss = loss + grad.norm()"
    ).replace("scaled_loss", "loss")
    after = rewrite(apex(before)).after
    assert after is not None
    assert "grad = torch.autograd.grad(scaler.scale(loss), x, create_graph=True)[0] / scaler.get_scale()" in after
