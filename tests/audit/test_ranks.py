"""Parameters without gradients, under torch's DistributedDataParallel."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

BEFORE = """
    import torch
    from apex.parallel import DistributedDataParallel as DDP

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(2, 2)
            self.pool = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.body(x)

    model = Net()
    model = DDP(model)
    """


def native(text: str) -> str:
    return text.replace("from apex.parallel", "from torch.nn.parallel").replace(
        "DDP(model)", "DDP(model, device_ids=[0])"
    )


def test_a_layer_that_nothing_uses() -> None:
    found = doubts(BEFORE, native(BEFORE))
    assert told(found, "AMP651") == [(14, "review")]
    assert "Net makes self.pool" in found[0].message


@pytest.mark.parametrize("use", ["self.body(self.pool(x))", 'self.body(getattr(self, "pool")(x))'])
def test_a_layer_that_is_used(use: str) -> None:
    before = BEFORE.replace("self.body(x)", use)
    assert not told(doubts(before, native(before)), "AMP651")


def test_torch_is_asked_to_look() -> None:
    after = native(BEFORE).replace("device_ids=[0]", "device_ids=[0], find_unused_parameters=True")
    assert not told(doubts(BEFORE, after), "AMP651")


def test_the_program_says_it_itself() -> None:
    before = BEFORE.replace("self.body(x)", "self.body(self.pool(x))").replace(
        "    model = Net()\n", "    model = Net()  # some parameters get None grad here\n"
    )
    assert told(doubts(before, native(before)), "AMP651") == [(14, "review")]


def test_a_sibling_passes_the_option() -> None:
    before = """
        import torch
        from apex.parallel import DistributedDataParallel as DDP

        def wrap(args, model):
            if args.fp16:
                return DDP(model)
            return torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        """
    assert told(doubts(before, native(before)), "AMP651") == [(6, "review")]
