"""Functions that hand on to Apex what they are given: their callers set it up, and they may go with them."""

from __future__ import annotations

import textwrap

from tests.audit.helpers import doubts_of, program, told

MIXED = """
    import contextlib
    try:
        from apex import amp
    except ImportError:
        amp = None

    def initialize(models, optimizers, *args, **kwargs):
        if amp:
            return amp.initialize(models, optimizers, *args, **kwargs)
        return models, optimizers

    @contextlib.contextmanager
    def plain(loss, *args):
        print(len(args))
        yield loss

    def scale_loss(loss, optimizer):
        return amp.scale_loss(loss, optimizer) if amp else plain(loss, optimizer)
"""
TRAIN = """
    import torch
    from mixed import initialize, scale_loss

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = initialize(model, optimizer, opt_level="{level}")
    for x in data:
        optimizer.zero_grad()
        loss = model(x).sum()
        with scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
NATIVE = """
    import torch

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in data:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
BARE = NATIVE.replace('        with torch.autocast("cuda", dtype=torch.float16):\n    ', "")


def test_they_go_with_what_called_them() -> None:
    found = doubts_of({"mixed.py": MIXED, "train.py": TRAIN.format(level="O1")}, {"mixed.py": "", "train.py": NATIVE})
    assert not [d for d in found if d.code != "AMP133"], found


def test_what_is_still_called_does_not_go() -> None:
    other = "from mixed import plain as wrapped\nwith wrapped(1) as x: print(x)\n"
    files = {"mixed.py": MIXED, "train.py": TRAIN.format(level="O1"), "other.py": other}
    found = doubts_of(files, {"mixed.py": "", "train.py": NATIVE})
    assert "refuse" in {verdict for _, verdict in told(found, "AMP134")}


def test_what_nothing_called_does_not_go() -> None:
    """It may be called from out of sight, and has nothing to do with Apex."""
    mixed = MIXED + "\n    def area(a, b):\n        return a * b\n"
    found = doubts_of({"mixed.py": mixed, "train.py": TRAIN.format(level="O1")}, {"mixed.py": "", "train.py": NATIVE})
    assert told(found, "AMP134")


def test_the_level_is_that_of_the_caller() -> None:
    """Nothing is said of a level that no call asks for; a forward without a region is told."""

    def within(text: str) -> str:
        head, _, body = program(text).partition("\n\n")
        return f"{head}\n\ndef main():\n" + textwrap.indent(body, "    ") + "\nmain()\n"

    files = {"mixed.py": MIXED, "train.py": within(TRAIN.format(level="O1"))}
    native, bare = (doubts_of(files, {"mixed.py": "", "train.py": within(after)}) for after in (NATIVE, BARE))
    assert not told(native, "AMP531")
    assert told(bare, "AMP531")
