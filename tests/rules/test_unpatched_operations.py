"""einsum, which O1 left to the dtype of its arguments, and which a region runs in half."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

TRAIN = """
    import torch
    from apex import amp
    import networks

    def train(data, name):
        model = networks.__dict__[name]().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        {more}
        model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")
        for x in data:
            optimizer.zero_grad()
            loss = model(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
"""
NETWORKS = """
    import torch
    from torch import nn

    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, w=None):
            x = {before}
            return torch.einsum('ij,jk->ik', x, w).sum()

    class Second(nn.Module):
        def forward(self, x, w):
            return torch.einsum('ij,jk->ik', x, w).sum() + torch.matmul(x, w).sum()
"""


@pytest.mark.parametrize(
    ("level", "more", "before", "told"),
    [
        ("O1", "pass", "x + 1", 1),  # once a file: what its arguments are is not known
        ("O1", "amp.register_half_function(torch, 'einsum')", "x + 1", 0),
        ("O2", "pass", "x + 1", 0),
        ("O1", "pass", "self.linear(x)", 1),  # half in the first network, not known in the second
    ],
)
def test_what_may_have_been_float32_is_told_once_a_file(level: str, more: str, before: str, told: int) -> None:
    texts = {"train.py": TRAIN.format(level=level, more=more), "networks.py": NETWORKS.format(before=before)}
    results = rewrite_files(texts)
    assert results["train.py"].after is not None
    found = [f for f in results["networks.py"].findings if f.code == "AMP535"]
    assert [(f.status, f.review) for f in found] == [("note", "look")] * told
    assert all("O1 did not patch einsum. Where its arguments are float32" in f.message for f in found)
    assert not found or found[0].line == (15 if "linear" in before else 11)


@pytest.mark.parametrize(
    ("before", "asked", "told"),
    [
        ("x + 1", "w.float()", True),
        ("x.softmax(-1)", "w.float()", True),
        ("x.softmax(-1)", "w.to(torch.float32)", True),
        ("self.linear(x)", "w.float()", False),
        ("self.linear(x)", "w.half()", False),
        ("x + 1", "w", False),
    ],
)
def test_the_line_that_asks_for_float32_is_the_one_that_is_told(before: str, asked: str, told: bool) -> None:
    """Beside what the program makes float32 itself, half raised under O1: it was computed in float32."""
    first = "einsum('ij,jk->ik', x, {}).sum()\n\n"
    networks = NETWORKS.format(before=before).replace(first.format("w"), first.format(asked))
    texts = {"train.py": TRAIN.format(level="O1", more="pass"), "networks.py": networks}
    found = [f for f in rewrite_files(texts)["networks.py"].findings if "its arguments were float32" in f.message]
    assert [(f.line, f.review) for f in found] == ([(11, "review")] if told else [])
