"""Binary cross entropy, which autocast refuses: its statement leaves the region, its forwards and inputs do not."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, check_rewrite, rewrite
from tests.rules.programs import apex, initialize, native
from tests.rules.trained import check_trained

MODEL = "model = build()\nbce = torch.nn.BCELoss()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
AUTOCAST = 'with torch.autocast("cuda", dtype=torch.float16):'
BACKWARD = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()"
SCALED = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loss = bce(model(x), y)", f"{AUTOCAST}\n    output = model(x)\nloss = bce(output.float(), y)"),
        (
            "loss = bce(torch.sigmoid(model(x)), y)",
            f"{AUTOCAST}\n    output = model(x)\nloss = bce(torch.sigmoid(output.float()), y)",
        ),
        (
            "guess = torch.sigmoid(model(x))\nloss = bce(guess, y)",
            f"{AUTOCAST}\n    guess = torch.sigmoid(model(x))\nloss = bce(guess.float(), y)",
        ),
        (
            "parts = model(x)\nloss = bce(parts[0].view(-1), y)",
            f"{AUTOCAST}\n    parts = model(x)\nloss = bce(parts[0].float().view(-1), y)",
        ),
        (
            "guess = model(x)\none = bce(guess, y)\ntwo = criterion(guess, y)\nloss = one + two",
            f"{AUTOCAST}\n    guess = model(x).float()\none = bce(guess, y)\n{AUTOCAST}\n"
            "    two = criterion(guess, y)\n    loss = one + two",
        ),
    ],
)
def test_the_loss_stands_outside_of_the_region_on_float32(before: str, after: str) -> None:
    check_rewrite(apex(f"{before}\n{BACKWARD}", model=MODEL), native(f"{after}\n{SCALED}", model=MODEL))


def test_evaluation_is_taken_apart_too() -> None:
    tail = "with torch.no_grad():\n    for x, y in loader:\n        loss = bce(model(x), y)\n"
    after = tail.replace(
        "        loss = bce(model(x), y)\n",
        f"        {AUTOCAST}\n            output = model(x)\n        loss = bce(output.float(), y)\n",
    )
    check_rewrite(apex(model=MODEL, tail=tail), native(model=MODEL, tail=after))


def test_a_loss_deep_inside_a_region_is_left_to_a_person() -> None:
    loop = "guess = model(x)\nloss = criterion(guess, y)\nif y.any():\n    loss = loss + bce(guess, y)\n"
    loop += f"loss = loss + criterion(guess, x)\n{BACKWARD}"
    check_manual(apex(loop, model=MODEL), "AMP505")


def test_what_a_tensor_says_of_itself_is_no_tensor() -> None:
    program = """
        from torch.nn import functional as F
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            scores = model(x)
            labels = y.gt(0)
            loss = F.binary_cross_entropy(
                torch.sigmoid(scores), labels.to(dtype=scores.dtype).view(scores.shape), reduction="sum"
            ) / len(scores)
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            seen.append(clip_grad_norm_(model.parameters(), 100))
            optimizer.step()
    """
    after = check_trained(program)
    assert "scores = model(x).float()" in after
    assert "labels.to(dtype=scores.dtype).view(scores.shape), reduction" in after
    program = program.replace("scores = model(x)", "(scores,) = [model(x)]")
    after = check_trained(program)
    assert "torch.sigmoid(scores.float()), labels.to(dtype=scores.float().dtype).view(scores.shape)" in after
    assert "/ len(scores)\n" in after


def test_a_length_needs_no_float() -> None:
    tail = "with torch.no_grad():\n    for x, y in loader:\n        score, other = model(x)\n"
    tail += "        count = len(score)\n        print(score.softmax(-1).sum().item() / count)\n"
    result = rewrite(apex(model=MODEL, prepare=initialize('opt_level="O2"'), tail=tail))
    assert result.after is not None
    assert "count = len(score)" in result.after
    assert "score.float().softmax(-1)" in result.after
