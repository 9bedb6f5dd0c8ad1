"""What is added to the gradients of every micro-batch is multiplied by the loss scale that they carry: it adds as much as before."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files
from tests.rules.programs import found
from tests.rules.trained import PRELUDE, check_trained

HELPER = """
def shrink(model, s):
    for p in model.parameters():
        LINE
"""
TRAINING = """
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for i, (x, y) in enumerate(loader):
    with amp.scale_loss(criterion(model(x), y) / 2, optimizer) as scaled_loss:
        scaled_loss.backward()
    BETWEEN
    if i % 2 == 1:
        optimizer.step()
        optimizer.zero_grad()
    seen.append(model[0].weight.norm().item())
"""
SHRINK = "p.grad.data.add_(s * torch.sign(p.data))"


def micro_batches(line: str, between: str = "shrink(model, 0.01)", training: str = TRAINING) -> str:
    training = training.replace("BETWEEN", indent(between, "    ").strip())
    return HELPER.replace("LINE", indent(line, "        ").strip()) + training


@pytest.mark.parametrize(
    ("line", "now"),
    [
        (SHRINK, "p.grad.data.add_(s * torch.sign(p.data) * loss_scale)"),
        ("p.grad.sub_(p, alpha=s)", "p.grad.sub_(p * loss_scale, alpha=s)"),
        ("p.grad += s + p.detach()", "p.grad += (s + p.detach()) * loss_scale"),
        ("p.grad.data -= s * p.data", "p.grad.data -= s * p.data * loss_scale"),
        ("if p.grad is not None:\n    p.grad.add_(s)", "p.grad.add_(s * loss_scale)"),
    ],
)
def test_what_is_added_to_every_micro_batch_adds_as_often(line: str, now: str) -> None:
    after = check_trained(micro_batches(line))
    assert now in after
    assert "def shrink(model, s):\n    loss_scale = scaler.get_scale()\n    for p in" in after
    assert "unscale_" not in after


def test_it_is_told_where_it_is_added() -> None:
    result = rewrite(PRELUDE + micro_batches(SHRINK))
    (told,) = found(result, "AMP309")
    assert (told.status, told.review) == ("note", "look")
    assert "p.grad.data.add_" in result.before.splitlines()[told.line - 1]
    assert not found(result, "AMP302")


def test_it_may_stand_in_the_loop_itself_and_under_a_condition() -> None:
    between = "if s:\n    model[0].weight.grad.data.add_(s * torch.sign(model[0].weight.data))"
    after = check_trained(micro_batches("pass", between, "s = 0.01\n" + TRAINING))
    assert "grad.data.add_(s * torch.sign(model[0].weight.data) * scaler.get_scale())" in after


def test_a_delay_that_is_off_is_none() -> None:
    source = micro_batches(SHRINK).replace("/ 2, optimizer)", "/ 2, optimizer, delay_unscale=False)")
    assert found(rewrite(PRELUDE + source), "AMP309")


def test_a_clip_at_the_step_sees_all_of_it_unscaled() -> None:
    clip = "        clip_grad_norm_(model.parameters(), 0.05)\n"
    training = TRAINING.replace("        optimizer.step()", f"{clip}        optimizer.step()")
    after = check_trained(micro_batches(SHRINK, training=training))
    assert "        scaler.unscale_(optimizer)\n        clip_grad_norm_(" in after


def test_between_the_backwards_of_two_losses() -> None:
    training = TRAINING.partition("    if i % 2")[0] + (
        "    with amp.scale_loss(criterion(model(x), -y), optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
        "    optimizer.step()\n    optimizer.zero_grad()\n    seen.append(model[0].weight.norm().item())\n"
    )
    after = check_trained(micro_batches(SHRINK, training=training))
    assert "torch.sign(p.data) * loss_scale" in after


@pytest.mark.parametrize(
    ("line", "between", "options"),
    [
        ("p.grad.data.add_(s * p.grad.data * p.grad.norm())", "shrink(model, 0.01)", ""),
        ("p.grad.data.copy_(s * p.data)", "shrink(model, 0.01)", ""),
        (SHRINK, "shrink(model, 0.01)\nclip_grad_norm_(model.parameters(), 0.05)", ""),
        (SHRINK, "shrink(model, 0.01)", ", delay_unscale=i % 2 == 0"),
    ],
)
def test_what_cannot_be_multiplied_moves_to_the_step(line: str, between: str, options: str) -> None:
    source = micro_batches(line, between).replace("/ 2, optimizer)", f"/ 2, optimizer{options})")
    result = rewrite(PRELUDE + source)
    assert result.after is not None
    assert "        scaler.unscale_(optimizer)\n        shrink(model, 0.01)\n" in result.after
    (told,) = [f for f in found(result, "AMP302") if "adds" in f.message or "added" in f.message]
    assert told.construct == "grad"
    assert ("delay_unscale left scaled came to next to nothing" in told.message) == bool(options)
    assert not found(result, "AMP309")


def test_a_helper_that_another_program_shares_moves_to_the_step() -> None:
    """There nothing is scaled: what it adds is not multiplied."""
    helper = HELPER.replace("LINE", SHRINK)
    files = {
        "penalty.py": f"import torch\n{helper}",
        "train.py": PRELUDE + "from penalty import shrink\n" + TRAINING.replace("BETWEEN", "shrink(model, 0.01)"),
        "plain.py": """
            from penalty import shrink
            from project import build, loader

            model, optimizer = build()
            for x, y in loader:
                model(x).sum().backward()
                shrink(model, 0.01)
                optimizer.step()
            """,
    }
    texts = check_files(files)
    assert SHRINK in texts["penalty.py"]
    told = [f.code for f in rewrite_files(files)["train.py"].findings]
    assert "AMP302" in told
    assert "AMP309" not in told
