"""A half value is told where it is first computed with, not again where what that gives is used; tokens are told nowhere: AMP535."""

from __future__ import annotations

import textwrap

from tests.audit.helpers import doubts

PROGRAM = """
import torch
import torch.nn.functional as F
IMPORT

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(x)

    def generate(self, x, lengths):
        found = lengths.new(4, 4)
        for i in range(4):
            found[i] = self.forward(x).topk(1)[1].squeeze(1)
        return found, lengths.clone()

    def generate_scores(self, x):
        return self.head(x)

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
SETUP
for x, y in loader:
    STEP
with torch.no_grad():
    REGION
USE
"""
STEP = """
    loss = F.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
AFTER_STEP = """
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def said(forward: str, use: str, level: str) -> list[str]:
    """The code of each AMP535, for a forward in a region."""
    text = PROGRAM.replace("USE", textwrap.dedent(use))
    initialize = f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")'
    before = text.replace("IMPORT", "from apex import amp").replace("SETUP", initialize).replace("    STEP\n", STEP)
    scaler = 'scaler = torch.amp.GradScaler("cuda")'
    after = text.replace("IMPORT", "").replace("SETUP", scaler).replace("    STEP\n", AFTER_STEP)
    region = f'with torch.autocast("cuda", dtype=torch.float16):\n        {forward}'
    found = doubts(before.replace("REGION", forward), after.replace("REGION", region))
    return [d.message.partition(": ")[0] for d in found if d.code == "AMP535"]


def test_an_entry_of_a_mapping_is_what_it_was_given() -> None:
    use = """
    batch = {}
    batch["out"] = out
    batch["probs"] = torch.softmax(batch["out"], 1)
    print(batch["probs"].cpu().numpy())
    """
    assert said("out = model(x)", use, "O2") == ["torch.softmax(batch['out'], 1)"]
    assert said("out = model(x)", f"{use}print(batch['out'].cpu().numpy())", "O2") == [
        "torch.softmax(batch['out'], 1)",
        "batch['out'].cpu().numpy()",
    ]


def test_another_mapping_of_the_name_has_entries_of_its_own() -> None:
    use = "batch = {}\nbatch['out'] = out\nbatch = {'out': x}\nprint(torch.softmax(batch['out'], 1))"
    assert not said("out = model(x)", use, "O2")


def test_what_a_reduction_gives_is_told_with_it() -> None:
    assert said("out = model(x)", "print(torch.exp((out * out).sum(1) / 0.5))", "O1") == ["(out * out).sum(1)"]
    assert said("out = model(x)", "print(torch.exp(out))", "O1") == ["torch.exp(out)"]


def test_tokens_are_no_half_values() -> None:
    use = "print(tokens.cpu().numpy(), count.cpu().numpy())"
    for level in ("O1", "O2"):
        assert not said("tokens, count = model.generate(x, lengths)", use, level)
    assert said("scores = model.generate_scores(x)", "print(scores.cpu().numpy())", "O1") == ["scores.cpu().numpy()"]
