"""Regions that are handed in: a call that hands none leaves what stands for none, and one by any name is one."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
    import torch
    from contextlib import nullcontext, suppress
    from apex import amp

    def run(model, data, region={default}):
        for x in data:
            with region():
                print(model(x))

    def main(args, model, optimizer, data):
        model = torch.nn.Linear(4, 4).cuda()
        if args.apex:
            model = amp.initialize(model, opt_level="O1")
        run(model, data{given})

    main(parse(), None, None, [])
"""
AFTER = BEFORE.replace("    from apex import amp\n", "")
AFTER = AFTER.replace(
    '        if args.apex:\n            model = amp.initialize(model, opt_level="O1")\n', "        {made}\n"
)


def found(default: str, given: str, made: str) -> list[str]:
    before = BEFORE.format(default=default, given="")
    return [
        d.message for d in doubts(before, AFTER.format(default=default, given=given, made=made)) if d.code == "AMP531"
    ]


@pytest.mark.parametrize("default", ["suppress", "nullcontext"])
def test_a_call_that_hands_none_is_in_none(default: str) -> None:
    (message,) = found(default, "", "pass")
    assert "no autocast region is around it now" in message


@pytest.mark.parametrize(
    "made",
    [
        'region = partial(torch.autocast, "cuda") if args.apex else suppress',
        'region = suppress; region = partial(torch.autocast, "cuda")',
        "region = torch.cuda.amp.autocast",
    ],
)
def test_one_of_any_name_is_around_what_stands_in_it(made: str) -> None:
    imports = "from functools import partial; "
    assert not found("suppress", ", region=region", imports + made)
