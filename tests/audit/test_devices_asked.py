"""A set-up that asks for the type of a device, and a branch that asks for the flag that the device was made from."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files
from tests.rules.programs import found

SETTINGS = """
    import torch
    from apex import amp

    def devices(args):
        env = torch.device("cuda", args.gpu) if args.use_env else torch.device("cpu")
        {made}
        return env, device

    def prepare(args, model, device):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if device.type == "cuda":
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level)
        return model, optimizer
    """
TRAIN = """
    import argparse
    import torch
    from apex import amp
    from settings import devices, prepare

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--cpu", action="store_true")
        parser.add_argument("--use-env", action="store_true")
        parser.add_argument("--gpu", type=int, default=0)
        parser.add_argument("--opt-level", default="O1")
        args = parser.parse_args()
        env, device = devices(args)
        model, optimizer = prepare(args, torch.nn.Linear(4, 4).to(device), device)
        for x in [torch.zeros(2, 4)]:
            loss = model(x.to(device)).pow(2).mean()
            optimizer.zero_grad()
            if {asked}:
                loss.backward()
            else:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            optimizer.step()

    main()
    """
CHOSEN = 'device = torch.device("cuda", args.gpu) if not args.cpu else torch.device("cpu")'
BRANCHED = """if args.cpu:
            device = torch.device("cpu")
        else:
            device = torch.device("cuda:0")"""


@pytest.mark.parametrize(
    ("made", "asked", "told"),
    [
        (CHOSEN, "args.cpu", False),
        (BRANCHED, "args.cpu", False),
        (CHOSEN, "args.use_env", True),
        (CHOSEN.replace("not args.cpu", "not args.use_env"), "args.cpu", True),
        ('device = torch.device("cuda", args.gpu)', "args.cpu", True),
    ],
)
def test_both_are_compared(made: str, asked: str, told: bool) -> None:
    results = rewrite_files({"settings.py": SETTINGS.format(made=made), "train.py": TRAIN.format(asked=asked)})
    assert results["train.py"].after is not None
    assert bool([f for r in results.values() for f in found(r, "AMP532")]) is told
