"""A name that a function imports from Apex in one branch and from torch in another: what is left of the other where the one goes."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

WRAPS = """
import torch


def main(args, loader):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if torch.cuda.is_available():
        model.cuda()
        if args.half:
            from apex import amp
            from apex.parallel import DistributedDataParallel as DDP
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        else:
            from torch.nn.parallel import DistributedDataParallel as DDP
            MORE
        model = DDP(model)
    for x in loader:
        optimizer.zero_grad()
        loss = model(x).sum()
        if args.half:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        optimizer.step()
"""


def test_the_other_import_goes_with_its_last_use_and_so_does_its_branch() -> None:
    after = rewrite(WRAPS.replace("            MORE\n", "")).after or ""
    assert (
        "    if torch.cuda.is_available():\n        model.cuda()\n"
        "        model = torch.nn.parallel.DistributedDataParallel(model)\n    for" in after
    )
    assert "import DistributedDataParallel" not in after


@pytest.mark.parametrize("more", ["print(DDP)", "wrap = lambda net: DDP(net)"])
def test_one_that_is_used_still_stays(more: str) -> None:
    after = rewrite(WRAPS.replace("MORE", more)).after or ""
    assert "            from torch.nn.parallel import DistributedDataParallel as DDP\n" in after
    assert f"            {more}\n" in after


def test_what_stands_beside_it_stays() -> None:
    after = rewrite(WRAPS.replace("MORE", "args.plain()")).after or ""
    assert "        if not args.half:\n            args.plain()\n" in after
    assert "import DistributedDataParallel" not in after
