"""What only a wrapped forward runs, a method with regions of its own, and tests of a library are not told of (AMP531)."""

from __future__ import annotations

from tests.audit.helpers import doubts_of

MAIN = """
import torch
from apex import amp
from nets import Net

def main(args, loader):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()

if __name__ == "__main__":
    main(parse(), load())
"""
NOW = """
import torch
from nets import Net

def main(args, loader):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    WRAP
    for x in loader:
        loss = model(x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

if __name__ == "__main__":
    main(parse(), load())
"""
NETS = """
import torch
from torch.utils.checkpoint import checkpoint

class Block(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.inner = norm
        self.inner.train()

    def forward(self, x):
        def run(x):
            return self.inner(x)
        return checkpoint(run, x)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(Block(torch.nn.Linear(4, 4)))

    def forward(self, x):
        return self.blocks(x)
"""
WRAP = 'model.forward = torch.autocast("cuda", dtype=torch.float16)(model.forward)'


def found(wrap: str, more: dict[str, str] | None = None) -> list[str]:
    before = {"main.py": MAIN, "nets.py": NETS, **(more or {})}
    return [d.path for d in doubts_of(before, {"main.py": NOW.replace("WRAP", wrap)}) if d.code == "AMP531"]


def test_a_block_that_only_a_wrapped_forward_runs() -> None:
    assert not found(WRAP)
    assert "main.py" in found("pass")


def test_a_test_of_the_library_comes_by_no_set_up() -> None:
    test = """
    import torch
    from nets import Block

    def test_block():
        block = Block(torch.nn.Linear(4, 4))
        block.eval()
        block(torch.ones(1, 4))
    """
    assert not found(WRAP, {"tests/test_nets.py": test})
