"""Losses of an evaluation by the name of what they are kept in: they are computed in the region, where Apex had float32."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files

SCRIPT = """
    import json

    import torch
    import torch.nn.functional as F
    from apex import amp

    valid_criterion = valid_loss_fn = torch.nn.MSELoss()
    is_valid_loss = check_valid_loss = torch.isfinite
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


    def train(x, y):
        loss = F.mse_loss(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        optimizer.zero_grad()


    def evaluate(x, y):
        losses = {{}}
        total = 0.0
        out = model(x)
        losses["fit"] = F.mse_loss(out, y)

        out = model(y)
        {stmt}

        for loss in losses.values():
            total += loss.detach().cpu()
        return total


    train(torch.ones(2, 4), torch.ones(2, 4))
    print(json.dumps(evaluate(torch.ones(2, 4), torch.ones(2, 4)).item()))
    """


def region(stmt: str, tmp_path: Path) -> str:
    """What the region of the evaluation holds below the second forward, of a program that runs."""
    text = check_files({"train.py": SCRIPT.format(stmt=stmt)})["train.py"]
    assert isinstance(run_files(tmp_path, {"train.py": text}, "train.py"), float)
    inside = text.partition("out = model(y)\n")[2].partition("\n\n")[0]
    return inside.strip() if inside.startswith("        ") else ""


@pytest.mark.parametrize(
    "stmt",
    [
        'losses["real"] = torch.stack([F.softplus(-s).mean() for s in out]).sum()',
        'losses["real"] = F.softplus(-out).mean()',
        "real_loss = torch.log(out.abs() + 1).mean()",
        "valid_loss = F.softplus(-out).mean()",  # of the validation
        "value = valid_criterion(out, x)",
        "value = valid_loss_fn(out, x)",
        'losses["real"] = F.softplus(1 - out).sum() / 2',
    ],
)
def test_it_is_computed_in_the_region(stmt: str, tmp_path: Path) -> None:
    assert region(stmt, tmp_path) == stmt


@pytest.mark.parametrize(
    "stmt",
    [
        "scores = out.argmax(1)",
        'losses["real"] = losses["fit"] * 2',
        'losses["count"] = out.detach().cpu().exp().sum()',
        "loss_value = F.softplus(out).mean().item()",
        "fine = is_valid_loss(out)",
        "fine = check_valid_loss(out)",
    ],
)
def test_what_is_none_is_not(stmt: str, tmp_path: Path) -> None:
    assert not region(stmt, tmp_path)


def test_what_no_name_tells_is_cast() -> None:
    text = rewrite(SCRIPT.format(stmt="margin = F.softplus(-out).mean()")).after or ""
    assert "margin = F.softplus(-out.float()).mean()\n" in text
    text = (
        rewrite(SCRIPT.format(stmt="margin = torch.stack([F.softplus(1 - s).mean() for s in out]).sum()")).after or ""
    )
    assert "F.softplus(1 - s.float()).mean() for s in out" in text  # what the audit saw
