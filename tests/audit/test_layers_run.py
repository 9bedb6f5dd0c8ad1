"""Layers of torch's that run outside of any module after Apex was set up: O1 ran them in half, under whatever name."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
    import torch
    from apex import amp

    def check({name}, loader):
        with torch.no_grad():
            for x in loader:
                print({name}(x).sum())

    def main(args, optimizer, loader):
        first = {made}
        both = torch.nn.Sequential(first, torch.nn.Linear(4, 2)).cuda()
        if args.apex:
            both, optimizer = amp.initialize(both, optimizer, opt_level="{level}")
        for x in loader:
            print(both(x))
        check(first, loader)

    main(parse(), None, [])
"""
AFTER = (
    BEFORE.replace("    from apex import amp\n", "")
    .replace(
        '        if args.apex:\n            both, optimizer = amp.initialize(both, optimizer, opt_level="{level}")\n',
        "",
    )
    .replace(
        "            print(both(x))",
        '            with torch.autocast("cuda", dtype=torch.float16, enabled=args.apex):\n                print(both(x))',
    )
)
MADE = "torch.nn.Linear(4, 4)"


def found(name: str, made: str = MADE, level: str = "O1") -> list[str]:
    before, after = (text.format(name=name, made=made, level=level) for text in (BEFORE, AFTER))
    return [d.message for d in doubts(before, after) if d.code == "AMP531" and "check" not in d.message[:5]]


@pytest.mark.parametrize("name", ["model", "held", "f"])
@pytest.mark.parametrize("made", [MADE, "torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3))", f"{MADE}.cuda()"])
def test_it_is_told_that_such_a_one_is_float32_now(name: str, made: str) -> None:
    (message,) = found(name, made)
    assert message.startswith(f"{name} ran in half precision under Apex where apex")


@pytest.mark.parametrize("made", ["torch.nn.ReLU()", "torch.nn.MSELoss()", "torch.nn.Softmax(1)", "load()"])
def test_nothing_is_told_of_what_o1_did_not_run_in_half(made: str) -> None:
    assert not found("held", made)
