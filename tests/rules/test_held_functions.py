"""`part.forward = amp.half_function(part.forward)`: what stands in for it casts what Apex cast, where Apex did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files
from tests.rules.programs import found

NETS = """
    import torch
    from apex import amp

    class Pool(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []

        def forward(self, features, boxes, sizes, more=None):
            kinds = [features["0"].dtype, boxes[0].dtype, more.dtype]
            self.seen.append([str(k) for k in kinds] + [sizes])
            return boxes[0].float()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)
            self.pool = Pool()
            self.pool.forward = amp.half_function(self.pool.forward)

        def forward(self, x):
            x = self.layer(x)
            return self.pool({"0": x.float()}, [x.float(), x.float()], [(4, 4)], more=x.float())
    """
TRAIN = """
    import json
    import sys

    import torch
    from apex import amp

    from nets import Net

    def evaluate(model, x):
        with torch.no_grad():
            return model(x)

    def main(only):
        model = Net()
        x = torch.ones(2, 4)
        if only:
            evaluate(model, x)
            print(json.dumps(model.pool.seen))
            sys.exit(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        evaluate(model, x)
        print(json.dumps(model.pool.seen))

    main({only})
    """
HALF = ["torch.float32", "torch.bfloat16", "torch.bfloat16", [[4, 4]]]
FLOAT = ["torch.float32", "torch.float32", "torch.float32", [[4, 4]]]


@pytest.mark.parametrize(("only", "seen"), [(False, [HALF, HALF]), (True, [FLOAT])])
def test_lists_are_cast_dictionaries_are_not_and_nothing_where_apex_was_not_set_up(
    only: bool, seen: list[object], tmp_path: Path
) -> None:
    texts = check_files({"nets.py": NETS, "train.py": TRAIN.format(only=only)}, device="cpu", dtype="bfloat16")
    assert run_files(tmp_path, texts, "train.py") == seen


def test_what_is_cast_is_told() -> None:
    results = rewrite_files({"nets.py": NETS, "train.py": TRAIN.format(only=True)})
    (told,) = found(results["nets.py"], "AMP511")
    assert "also in lists and tuples, but not in dictionaries" in told.message
