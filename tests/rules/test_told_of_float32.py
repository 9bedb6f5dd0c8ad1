"""What is said to stay outside of any region: code that a program with Apex may come by, none that ran in float32 as it was."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

COUNT = """
    import torch

    def count(model, size):
        batch = torch.FloatTensor(1, 3, *size)
        counted = with_hooks(model)
        counted.eval().start()
        out = counted(batch)
        return counted.total()

    def with_hooks(net):
        net.start = start.__get__(net)
        net.total = total.__get__(net)
        return net

    def start(self):
        self.seen = 0

    def total(self):
        return self.seen
    """
NET = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 3, 3)

        def forward(self, x):
            return self.conv(x)
    """
TRAIN = """
    import torch
    from apex import amp
    from count import count
    from data import args, loader
    from net import Net

    def main():
        model = Net()
        print(count(model, (24, 24)))
        model.cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", enabled=args.amp)
        LATER
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()

    if __name__ == "__main__":
        main()
    """
LOADED = """
    from count import count
    from net import Net

    net = Net()
    print(count(net, (24, 24)))
    """


def _told(later: str = "pass", loaded: str = LOADED) -> list[str]:
    files = {"count.py": COUNT, "net.py": NET, "train.py": TRAIN.replace("LATER", later), "tried.py": loaded}
    results = rewrite_files(files)
    assert results["train.py"].after is not None
    assert results["count.py"].after is None or "autocast" in results["count.py"].after
    return [f.message for f in results["count.py"].findings if f.code in ("AMP502", "AMP531")]


@pytest.mark.parametrize("loaded", [LOADED, LOADED.replace("print", "if __name__ == '__main__': print")])
def test_what_runs_before_the_set_up_or_in_a_file_without_one_is_not_told_of(loaded: str) -> None:
    assert not _told(loaded=loaded)


def test_what_a_file_runs_that_is_loaded_after_the_set_up_is_told_of() -> None:
    assert any("stays outside of any region" in message for message in _told(later="import tried"))
