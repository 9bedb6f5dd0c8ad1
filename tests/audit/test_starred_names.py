"""Names that nothing binds any more in files that import all names of another: only what that has may be bound by it."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, told

BASE = """
    import torch
    from apex import amp
    from elsewhere import *

    def make_handle(fp16):
        return amp.init(enabled=fp16)

    class Base:
        def __init__(self, model, handle=None):
            self.model, self.handle = model, handle
"""
RUN = """
    import torch
    from STAR import *
    from apex import amp

    def main(args, model):
        handle = make_handle(args.fp16)
        return Base(model, handle)
"""


def found(star: str, base: str = BASE, now: str = "handle") -> list[tuple[int, str]]:
    before = {"base.py": base, "run.py": RUN.replace("STAR", star)}
    after = before["run.py"].replace("    from apex import amp\n", "").replace("handle = make", "scaler = make")
    after = after.replace("(model, handle)", f"(model, scaler, {now})")
    return told(doubts_of(before, {"run.py": after}), "AMP131")


@pytest.mark.parametrize("star", ["base", "afar"])
def test_a_local_name_that_went_is_bound_by_no_star(star: str) -> None:
    """Out of sight there may be any name, but the program had its own."""
    assert found(star, BASE.replace("    from elsewhere import *\n", "")) == [(7, "refuse")]
    assert found(star) == [(7, "refuse")]
    assert not found(star, now="scaler")


def test_a_name_that_a_file_of_the_program_has() -> None:
    assert not found("base", BASE + "\n    handle = None\n")


def test_a_name_that_may_come_from_out_of_sight() -> None:
    assert not found("afar", now="default_handle")
    assert not found("base", now="default_handle")
