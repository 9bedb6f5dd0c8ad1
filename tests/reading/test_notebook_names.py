"""A notebook beside a file of its name: what is imported by that name is the file."""

from __future__ import annotations

from tests.rules.helpers import rewrite_files

READY = """
    try:
        from apex import amp
        HAS_APEX = True
    except ImportError:
        HAS_APEX = False
"""
TRAIN = """
    import torch
    from ready import HAS_APEX
    from apex import amp


    def has_apex():
        return HAS_APEX


    def prepare(model, optimizer):
        return amp.initialize(model, optimizer, opt_level="O1")


    def fit(model, optimizer, x, y):
        model, optimizer = prepare(model, optimizer)
        with amp.scale_loss(torch.nn.functional.mse_loss(model(x), y), optimizer) as scaled:
            scaled.backward()
        optimizer.step()
"""
START = """
    import torch
    from train import fit

    model = torch.nn.Linear(4, 2).cuda()
    fit(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(3, 4).cuda(), torch.ones(3, 2).cuda())
"""


def test_what_a_file_asks_for_is_seen_beside_a_notebook_of_its_name() -> None:
    alone = rewrite_files({"ready.py": READY, "train.py": TRAIN, "start.py": START})
    # Named as a notebook's file would be, and read before `train.py`.
    beside = rewrite_files({"ready.py": READY, "train.ipynb": "print('seen')\n", "train.py": TRAIN, "start.py": START})
    assert alone["ready.py"].after == "HAS_APEX = True\n"
    for path, result in alone.items():
        assert beside[path].after == result.after
        assert not [f for f in beside[path].findings if f.status == "manual"]
