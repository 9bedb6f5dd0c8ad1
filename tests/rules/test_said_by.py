"""A function whose own parameter says what a global of the script does asks that: whoever imports it has no such global."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite

SCRIPT = """
    import argparse
    import torch
    from apex import amp
    from project import loader, make


    def evaluate(model, loader, mixed):
        with torch.no_grad():
            return [model(x).argmax(1) for x in loader]


    def train(model, optimizer, loader, mixed=False):
        {first}
        for x, y in loader:
            optimizer.zero_grad()
            loss = model(x).sum()
            if mixed:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
        evaluate(model, loader, mixed)


    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--mixed-precision", action="store_true")
        args = parser.parse_args()
        model, optimizer = make()
        if args.mixed_precision:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        {calls}
    """
TOLD = "train(model, optimizer, loader, mixed=args.mixed_precision)"


def regions(calls: str, first: str = "model.train()") -> tuple[list[str], list[str]]:
    result = rewrite(SCRIPT.format(calls=calls, first=first))
    lines = (result.after or "").splitlines()
    enabled = [line.rpartition("enabled=")[2].rstrip("):") for line in lines if "autocast(" in line]
    return enabled, [f.code for f in result.findings if f.code == "AMP131"]


def test_the_parameter_is_asked_and_nothing_is_read_that_an_importer_lacks() -> None:
    assert regions(TOLD) == (["mixed", "mixed"], [])
    check_files({"train.py": SCRIPT.format(calls=TOLD, first="model.train()")})


@pytest.mark.parametrize(
    ("calls", "first"),
    [
        (TOLD, "mixed = mixed and len(loader) > 1"),  # another value by then
        (f"{TOLD}\n        train(model, optimizer, loader)", "model.train()"),
        ("train(model, optimizer, loader, mixed=not args.mixed_precision)", "model.train()"),
        ("args_ = dict(mixed=args.mixed_precision)\n        train(model, optimizer, loader, **args_)", "model.train()"),
    ],
)
def test_a_parameter_that_may_say_something_else_is_not(calls: str, first: str) -> None:
    enabled, _ = regions(calls, first)
    assert "mixed" not in enabled
