"""A field that something sets under a name that is computed is not its one literal: a level that may be asked for."""

from __future__ import annotations

import pytest

from amp_migrate.findings import FileResult
from tests.rules.helpers import rewrite_files

SETTINGS = """
    class Settings:
        def __init__(self):
            self.half = False
            self.level = "O1"
"""
FILL = """
    from argparse import ArgumentParser

    def fill(target):
        parser = ArgumentParser()
        for name, value in target.__dict__.items():
            parser.add_argument("--" + name, default=value)
        given = parser.parse_args().__dict__
        hand(target, given)

    def hand(target, given):
        for name, value in given.items():
            SET
"""
TRAIN = """
    import torch
    from apex import amp
    from fill import fill
    from project import build, loader
    from settings import Settings

    def main():
        args = Settings()
        fill(args)
        model, optimizer = build()
        if args.half:
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
        for x in loader:
            loss = model(x).sum()
            if args.half:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()

    main()
"""


def result(setting: str) -> FileResult:
    files = {"settings.py": SETTINGS, "fill.py": FILL.replace("SET", setting), "train.py": TRAIN}
    return rewrite_files(files)["train.py"]


@pytest.mark.parametrize(
    "setting",
    [
        "target.__dict__[name] = value",
        "setattr(target, name, value)",
        "vars(target)[name] = value",
        "vars(target).update({name: value})",
        "target.__dict__.update({name: value})",
    ],
)
def test_a_level_that_may_be_set_so_is_asked_for(setting: str) -> None:
    found = result(setting)
    assert found.after is not None, found.findings
    assert 'GradScaler("cuda", enabled=args.half and args.level != "O0")' in found.after
    assert any(f.code == "AMP112" for f in found.findings)


@pytest.mark.parametrize(
    "setting", ["print(name, value)", "vars(parser)[name] = value", 'setattr(target, "other", value)']
)
def test_one_that_nothing_sets_is_its_literal(setting: str) -> None:
    found = result(setting)
    assert found.after is not None, found.findings
    assert 'GradScaler("cuda", enabled=args.half)' in found.after


@pytest.mark.parametrize("declared", ["half", "other"])
def test_what_a_script_beside_gives_its_own_option_says_nothing_of_this_one(declared: str) -> None:
    """No process loads both: `args.half` of the other file is another thing, also where functions are given it."""
    options = """
        import argparse

        def read():
            parser = argparse.ArgumentParser()
            parser.add_argument("--half", action="store_true")
            return parser.parse_args()
    """
    train = TRAIN.replace("    from settings import Settings\n", options.replace("\n    ", "\n")).replace(
        "from fill import fill\n    ", ""
    )
    train = train.replace("args = Settings()\n        fill(args)", "args = read()").replace("args.level", '"O1"')
    other = (
        options.replace("half", declared)
        + """
        import torch

        def agree(args):
            args.half = torch.ones(1).item()

        if __name__ == "__main__":
            agree(read())
    """
    )
    found = rewrite_files({"train.py": train, "other.py": other})["train.py"]
    assert found.after is not None, found.findings
    assert 'GradScaler("cuda", enabled=args.half)' in found.after
