"""What wraps the model that a set-up gave is that model, whatever either is called. AMP531."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides

BEFORE, AFTER = sides("""
    import argparse
    import torch
    from torch.nn.parallel import DistributedDataParallel
  - from apex import amp

    def main(batches):
        parser = argparse.ArgumentParser()
        parser.add_argument("--level", default="O2")
        parser.add_argument("--fp16", action="store_true")
        parser.add_argument("--many", action="store_true")
        args = parser.parse_args()
        net = torch.nn.Linear(4, 1).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
  -     if args.fp16:
  -         prepared, optimizer = amp.initialize(net, optimizer, opt_level=args.level)
  -     else:
  -         prepared = net
  +     prepared = net
  +     scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
        if args.many:
            whole = {wrapped}
        else:
            whole = prepared
        for x in batches:
  -         loss = whole(x).sum()
  -         with amp.scale_loss(loss, optimizer) as scaled:
  -             scaled.backward()
  +         with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
  +             loss = whole(x).sum()
  +         scaler.scale(loss).backward()
    """)


@pytest.mark.parametrize(
    ("wrapped", "told"),
    [
        ("DistributedDataParallel(prepared)", False),
        ("torch.nn.DataParallel(prepared)", False),
        ("torch.nn.DataParallel(torch.nn.Linear(4, 1).cuda())", True),
    ],
)
def test_a_wrapper_of_what_was_initialized_is_not_made_anew(wrapped: str, told: bool) -> None:
    texts = (t.format(wrapped=wrapped) for t in (BEFORE, AFTER))
    found = [d.message for d in doubts(*texts) if d.code == "AMP531" and "made anew" in d.message]
    assert bool(found) is told
