"""Gradients that are clipped with those of an optimizer, which it does not have."""

from __future__ import annotations

import pytest
import torch

from tests.audit.helpers import doubts, sides

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    def main(args, loader):
        model = torch.nn.ModuleDict({"body": torch.nn.Linear(2, 2)})
        model.head = torch.nn.Linear(2, 1)
        MADE
        optimizer = torch.optim.SGD(groups, lr=0.1)
  -     model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda")
        for x in loader:
  -         loss = model.head(model["body"](x)).sum()
  -         with amp.scale_loss(loss, optimizer) as scaled:
  -             scaled.backward()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = model.head(model["body"](x)).sum()
  +         scaler.scale(loss).backward()
  +         scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(CLIPPED, 1.0)
  -         optimizer.step()
  +         scaler.step(optimizer)
  +         scaler.update()
""")
ARMS = """if args.all:
            named = list(model.named_parameters())
            groups = [p for n, p in named]
        else:
            named = list(model.head.named_parameters())
            groups = [{"params": [p for n, p in named]}]"""

SHORT = """if args.head:
            groups = model.head.parameters()
        else:
            groups = model.parameters()"""


@pytest.mark.parametrize(
    ("made", "clipped", "told"),
    [
        ("groups = model.head.parameters()", "model.parameters()", True),
        ("groups: object = model.head.parameters()", "model.parameters()", True),
        ("with opened(model.head.parameters()) as groups:\n            pass", "model.parameters()", False),
        (ARMS, "model.parameters()", True),
        (SHORT, "model.parameters()", True),
        ("pass", "model.parameters()", False),  # nothing in sight gives it a value
        (ARMS + "\n            print(len(list(model.parameters())))", "model.parameters()", True),  # once it has them
        (ARMS, "model.head.parameters()", False),
        (ARMS.replace("model.head", "model"), "model.parameters()", False),
        ("groups = model.parameters()", "model.parameters()", False),
        ("groups = [*model.head.parameters(), *model.body.parameters()]", "model.parameters()", False),
        (ARMS + "\n        model.body.requires_grad_(False)", "model.parameters()", False),
        (ARMS, "[p for g in optimizer.param_groups for p in g['params']]", False),
    ],
)
def test_more_is_clipped_than_is_stepped(made: str, clipped: str, told: bool) -> None:
    before, after = (t.replace("MADE", made).replace("CLIPPED", clipped) for t in (BEFORE, AFTER))
    assert [d.verdict for d in doubts(before, after) if d.code == "AMP310"] == ["review"] * told


@pytest.mark.parametrize(("given", "told"), [("model.head.parameters()", True), ("model.parameters()", False)])
def test_an_optimizer_that_is_given_them_where_it_is_made(given: str, told: bool) -> None:
    texts = (t.replace("SGD(groups", f"SGD({given}").replace("MADE", "pass") for t in (BEFORE, AFTER))
    before, after = (t.replace("CLIPPED", "model.parameters()") for t in texts)
    assert [d.verdict for d in doubts(before, after) if d.code == "AMP310"] == ["review"] * told


def test_what_such_a_clip_leaves_of_the_gradients() -> None:
    """As the finding says: the rest makes the norm."""
    body, head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    scaler.scale(head(body(torch.ones(1, 2))).sum()).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_([*body.parameters(), *head.parameters()], 1.0)
    assert norm > 1000
    assert head.weight.grad is not None
    assert head.weight.grad.norm() < 0.01
