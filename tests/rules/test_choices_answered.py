"""A choice between Apex and the native side that the program only reads: whoever asks for Apex gets the native side. AMP120."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import rewrite_files, run_alone
from tests.rules.programs import found

PROGRAM = """
import sys
from functools import partial
from types import SimpleNamespace

import torch


class Nothing:
    def __enter__(self):
        pass

    def __exit__(self, *raised):
        pass


def train(config, model, optimizer):
    if config.mixed.on:
        if config.mixed.by == "native":
            scaler = torch.amp.GradScaler("cpu", enabled=True)
            region = partial(torch.autocast, "cpu")
        elif config.mixed.by == "apex":
            region = Nothing
    else:
        region = Nothing
    for x in [torch.ones(2, 4)]:
        optimizer.zero_grad()
        with region():
            out = model(x)
            loss = out.float().sum()
        print(out.dtype)
        if config.mixed.on:
            if config.mixed.by == "apex":
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
                optimizer.step()
            elif config.mixed.by == "native":
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        else:
            loss.backward()
            optimizer.step()


def main(config):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if config.mixed.on and config.mixed.by == "apex":
        from apex import amp
        model, optimizer = amp.initialize(model, optimizer, opt_level=LEVEL)
    train(config, model, optimizer)
    MORE


if __name__ == "__main__":
    main(load(sys.argv[1]))
"""
RUN = """

main(SimpleNamespace(mixed=SimpleNamespace(on=True, by="apex")))
"""


def migrated(level: str = '"O2"', more: str = "pass") -> tuple[str, list[str], list[str]]:
    text = PROGRAM.replace("LEVEL", level).replace("MORE", more)
    text = text.replace("import torch\n", "import torch\nfrom apex import amp\n", 1).replace(
        "        from apex import amp\n", ""
    )
    result = rewrite_files({"train.py": text}, device="cpu")["train.py"]
    said = [f"{f.review} {f.message}" for f in found(result, "AMP120")]
    return result.after or "", said, [f.message for f in found(result, "AMP531")]


def test_its_tests_ask_for_both_values(tmp_path: Path) -> None:
    after, said, lost = migrated()
    assert after.count('config.mixed.by in ("apex", "native")') == 2
    assert "config.mixed.by ==" not in after
    assert {*said} == {"look the native branch beside it stays, and is taken where Apex was asked for, too"}
    assert not lost
    assert run_alone(tmp_path, after.replace("main(load(sys.argv[1]))", RUN.strip())) == ("torch.bfloat16", "")


@pytest.mark.parametrize(
    ("level", "more"),
    [
        ("config.level", "pass"),  # at O0 the native side would be another precision
        ('"O1"', "report(config.mixed)\n    build(config.mixed.by)"),  # which may ask for itself
        ('"O1"', 'config.mixed.by = "apex" if torch.cuda.is_available() else "native"'),
        ('"O1"', 'other = config\n    print(other.mixed.by == "native")'),
        ('"O1"', 'other = config.mixed\n    print(getattr(other, "by") == "native")'),
        ('"O1"', 'print(config.mixed["by"] == "native")'),
        ('"O1"', "build(**vars(config.mixed))"),
    ],
)
def test_it_is_told_where_more_depends_on_the_choice(level: str, more: str) -> None:
    after, said, _ = migrated(level, more)
    assert 'config.mixed.by in ("apex", "native")' not in after
    assert [s for s in said if s.startswith("review")]
