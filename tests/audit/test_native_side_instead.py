"""What a machine without Apex did where the program has a native side as well: it took that, as far as that was asked for."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
    import argparse
    import torch
    {imports}

    parser = argparse.ArgumentParser()
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--native-amp", action="store_true")
    {option}
    args = parser.parse_args()
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    use_amp = None
    has_native = hasattr(torch.cuda.amp, "autocast")
    {choice}
    {prepared}
    """
IMPORTS = (
    "try:\n        from apex import amp\n        has_apex = True\n    except ImportError:\n        has_apex = False"
)
CHOICE = """if args.amp:
        if has_apex:
            args.apex_amp = True
        elif has_native:
            args.native_amp = True
    if args.apex_amp and has_apex:
        use_amp = "apex"
    elif args.native_amp{more}:
        use_amp = "native"
"""
AFTER = """if args.amp and has_native:
        args.native_amp = True
    if args.apex_amp or args.native_amp:
        use_amp = "native"
"""
PREPARED = """if use_amp == "apex":
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    scaler = torch.amp.GradScaler("cuda", enabled=use_amp == "native")"""
NATIVE = 'scaler = torch.amp.GradScaler("cuda", enabled=use_amp == "native")'
OPTION = 'parser.add_argument("--apex-amp", action="store_true")'


@pytest.mark.parametrize(
    ("option", "more", "said"),
    [
        (OPTION, "", "took the native side where `args.native_amp`"),
        (OPTION, " and torch.cuda.is_available()", "`args.native_amp and torch.cuda.is_available()`"),
        ('parser.set_defaults(**{"apex_amp": False})', "", "took the native side where"),
        ("args_apex = None", "", None),
    ],
)
def test_the_native_side_is_said_where_it_was_taken(option: str, more: str, said: str | None) -> None:
    before = PROGRAM.format(imports=IMPORTS, option=option, choice=CHOICE.format(more=more), prepared=PREPARED)
    after = PROGRAM.format(imports="", option=option, choice=AFTER, prepared=NATIVE)
    messages = [d.message for d in doubts(before, after) if d.code == "AMP133" and "passed by the set-up" in d.message]
    assert [said is not None and said in m for m in messages] == [True] * (said is not None)
    assert not any("whatever had been asked for" in m for m in messages)
