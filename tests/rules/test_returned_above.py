"""A function that sets up and hands the optimizer out, and returns before that in some runs: the scaler is off in those."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
    import argparse
    import torch
    from apex import amp

    def prepare(net, args):
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        LEAVES
        net, opt = amp.initialize(net, opt, opt_level="O1", loss_scale=args.loss_scale)
        return net, opt

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        parser.add_argument("--loss-scale", type=float, default=128.0)
        args = parser.parse_args()
        net, opt = prepare(torch.nn.Linear(4, 2).cuda(), args)
        for _ in range(3):
            loss = net(torch.randn(2, 4).cuda()).mean()
            opt.zero_grad()
            if args.fp16:
                with amp.scale_loss(loss, opt) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            opt.step()

    main()
    """


@pytest.mark.parametrize(
    "leaves",
    [
        "if not args.fp16:\n            return net, opt",
        "if not args.fp16:\n            print('float32')\n            return net, opt",
        "if args.loss_scale < 0:\n            raise ValueError\n        if not args.fp16:\n            return net, opt",
    ],
)
def test_the_scaler_and_the_regions_are_off_in_runs_that_returned_above(leaves: str) -> None:
    result = rewrite(PROGRAM.replace("LEAVES", leaves))
    assert result.after is not None
    assert "init_scale=loss_scale or 2.0**16, enabled=args.fp16)" in result.after
    assert 'torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16)' in result.after
    assert not [f for f in result.findings if f.code == "AMP531"]


def test_what_cannot_be_asked_where_the_scaler_would_be_made_is_asked_where_it_is_known() -> None:
    leaves = "ready = len(opt.param_groups) > 1\n        if not ready:\n            return net, opt"
    result = rewrite(PROGRAM.replace("LEAVES", leaves))
    assert result.after is not None
    assert "global scaler" in result.after
    (told,) = [f for f in result.findings if f.code == "AMP531"]
    assert "now where not len(opt.param_groups) > 1" in told.message
