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


HOOKS = """
    import torch

    class Hook:
        def after(self, runner, batch):
            runner.model.eval()
            with torch.no_grad():
                return runner.model(batch).sum()

    def process(model, batch):
        return model(batch).sum()
"""


def test_whoever_runs_a_wrapped_model_runs_it_in_its_region() -> None:
    """The model is handed on through wrappers out of sight, and run by functions of whose arguments nothing is seen."""
    before = MAIN.replace("from nets import Net\n", "from nets import Net\nfrom hooks import Hook, process\n")
    before = before.replace("    for x in loader", "    run(model, process, Hook())\n    for x in loader")
    after = NOW.replace("from nets import Net\n", "from nets import Net\nfrom hooks import Hook, process\n")
    after = after.replace("    for x in loader", "    run(model, process, Hook())\n    for x in loader")
    before = before.replace("import torch\n", "import torch\nfrom library import run\n", 1)
    after = after.replace("import torch\n", "import torch\nfrom library import run\n", 1)
    files = {"main.py": before, "nets.py": NETS, "hooks.py": HOOKS}
    wrapped = doubts_of(files, {"main.py": after.replace("WRAP", WRAP)})
    assert not [d.message for d in wrapped if d.code == "AMP531"]
    bare = doubts_of(files, {"main.py": after.replace("WRAP", "pass")})
    assert "hooks.py" in [d.path for d in bare if d.code == "AMP531"]
