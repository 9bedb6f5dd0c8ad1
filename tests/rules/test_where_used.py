"""What stays of Apex is imported where it is used, if that is in one branch: other runs need no Apex any more."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, rewrite, rewrite_files, texts_of

BEFORE = """
import torch
from project import args, build, loader

if args.half:
    from apex import amp, optimizers

def chosen(model):
    kinds = {"sgd": torch.optim.SGD}
    if args.optimizer == "lamb":
        assert args.half
        kinds["lamb"] = optimizers.FusedLAMB
    return kinds[args.optimizer](model.parameters(), lr=0.1)

model = build()
optimizer = chosen(model)
if args.half:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x in loader:
    optimizer.zero_grad()
    loss = model(x).sum()
    if args.half:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()
    optimizer.step()
"""
AFTER = """
import torch
from project import args, build, loader

def chosen(model):
    kinds = {"sgd": torch.optim.SGD}
    if args.optimizer == "lamb":
        assert args.half
        from apex import optimizers
        kinds["lamb"] = optimizers.FusedLAMB
    return kinds[args.optimizer](model.parameters(), lr=0.1)

model = build()
optimizer = chosen(model)
scaler = torch.amp.GradScaler("cuda", enabled=bool(args.half))
for x in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16, enabled=bool(args.half)):
        loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
KEPT = "\nfrom apex import optimizers\n"
PLAIN = BEFORE.replace(
    "if args.half:\n    from apex import amp, optimizers", "from apex import amp\nfrom apex import optimizers"
)
USE = '        kinds["lamb"] = optimizers.FusedLAMB'


def test_the_import_goes_to_the_branch_that_uses_it() -> None:
    result = check_rewrite(BEFORE, AFTER)
    (told,) = [f.message for f in result.findings if "where it is used" in f.message]
    assert told == "optimizers imported where it is used, in line 11: no other run needs Apex for it"
    check_rewrite(PLAIN, AFTER)


@pytest.mark.parametrize(
    ("old", "new", "moved"),
    [
        (USE, f"{USE}\n        kinds['novo'] = optimizers.FusedNovoGrad", True),
        ("    return kinds", "    print(optimizers)\n    return kinds", False),
        (
            "    return kinds",
            '    if args.optimizer == "novo":\n        kinds["novo"] = optimizers.FusedNovoGrad\n    return kinds',
            False,
        ),
        ('    if args.optimizer == "lamb":', "    with torch.no_grad():", False),
        ('    if args.optimizer == "lamb":', "    for kind in kinds:", False),
        (
            USE,
            "        for _ in range(2):\n            if args.old:\n                kinds['lamb'] = optimizers.FusedLAMB",
            True,
        ),
        (
            "from apex import optimizers",
            "try:\n    from apex import optimizers\nexcept ImportError:\n    optimizers = None",
            False,
        ),
        ("from apex import optimizers", "from apex import optimizers\n__all__ = ['optimizers']", False),
        ("from apex import optimizers", "from apex import optimizers\nif args.old:\n    optimizers = None", False),
        ("from apex import optimizers", "from apex import optimizers  # amp-migrate: keep", True),
    ],
)
def test_where_one_branch_alone_uses_it(old: str, new: str, moved: bool) -> None:
    after = rewrite(PLAIN.replace(old, new)).after or ""
    assert (KEPT in after or "try:" in after) is not moved
    assert ("        from apex import optimizers\n" in after) is moved


def test_what_was_asked_for_the_import_is_no_reason() -> None:
    after = rewrite(BEFORE.replace('args.optimizer == "lamb"', "args.half")).after or ""
    assert "if args.half:\n    from apex import optimizers\n" in after


def test_nor_is_it_moved_from_where_another_file_reads_it() -> None:
    files = {"train.py": PLAIN, "other.py": "from train import optimizers\n\nprint(optimizers)\n"}
    assert KEPT in texts_of(rewrite_files(files))["train.py"]
