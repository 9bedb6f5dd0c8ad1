"""Methods of a network that are called for what they do: which of them runs a forward is read in them, not in their names."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, sides, told

NET = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.body = torch.nn.Linear(width, width)
            self.last = torch.nn.Linear(width, width)

        def forward(self, x):
            return self.last(self.body(x))

        def METHOD(self, batches):
            BODY
    """
BEFORE, AFTER = sides("""
    import torch
    import torch.nn.functional as F
  - from apex import amp
    from net import Net

    def train(loader, args):
        model = torch.nn.DataParallel(Net(args.width).cuda())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  -     model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda")
        model.module.METHOD(loader)
        for x, y in loader:
            optimizer.zero_grad()
  -         loss = F.cross_entropy(model(x), y)
  -         with amp.scale_loss(loss, optimizer) as scaled_loss:
  -             scaled_loss.backward()
  -         optimizer.step()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = F.cross_entropy(model(x), y)
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()
    """)
COPIES = "self.last.weight.data.copy_(self.body.weight.data)"


@pytest.mark.parametrize("method", ["init_last", "init_new_classifier", "fill_head", "update_last"])
@pytest.mark.parametrize(
    ("body", "runs"),
    [
        (COPIES, False),
        ("for x, _ in batches: self.last.bias.data.copy_(self.forward(x).mean(0))", True),
        ("for x, _ in batches: self.last.bias.data.copy_(self(x).mean(0))", True),
    ],
)
def test_what_runs_the_network_is_a_forward(method: str, body: str, runs: bool) -> None:
    net = NET.replace("METHOD", method).replace("BODY", body)
    before = {"train.py": BEFORE.replace("METHOD", method), "net.py": net}
    found = doubts_of(before, {"train.py": AFTER.replace("METHOD", method)})
    called = [d for d in found if d.path == "train.py"]
    assert told(called, "AMP531") == ([(10, "review")] if runs else [])
