"""What belongs together is migrated whole or not at all, over functions and files; what does not is decided alone."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from amp_migrate.engine import Program, migrate
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile

GOOD = """
def train():
    net, opt = build()
    net, opt = amp.initialize(net, opt)
    for x in data:
        with amp.scale_loss(net(x), opt) as loss:
            loss.backward()
        opt.step()
"""
BAD = GOOD.replace("def train", "def search").replace("opt.step()", "opt.step(closure)")

PREPARE = """
from apex import amp


def prepare(model, optimizer):
    return amp.initialize(model, optimizer, opt_level="O1")
"""
USE = """
import torch
from apex import amp

from tools import prepare


def main(model, optimizer, batches):
    model, optimizer = prepare(model, optimizer)
    for x in batches:
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""


def results(targets: dict[str, str], context: dict[str, str] | None = None) -> dict[str, FileResult]:
    """Results by path for a project that lies in one folder."""

    def sources(files: dict[str, str]) -> list[SourceFile]:
        return [SourceFile(Path("/p") / name, name, textwrap.dedent(text).lstrip("\n")) for name, text in files.items()]

    found = migrate(Program(sources(targets), sources(context or {}), Path("/p")), Options())
    return {result.path: result for result in found}


def test_a_unit_that_cannot_be_migrated_does_not_hold_up_another() -> None:
    result = results(
        {"train.py": "import torch\nfrom apex import amp\n\nfrom project import build, closure, data\n" + GOOD + BAD}
    )
    text = result["train.py"].after
    assert text is not None
    assert result["train.py"].status == "partial"
    assert "def search" + BAD.partition("def search")[2].rstrip() in text
    assert "amp.initialize" not in text[: text.index("def search")]
    assert "from apex import amp\n" in text


@pytest.mark.parametrize("order", [("tools.py", "train.py"), ("train.py", "tools.py")])
def test_a_unit_over_two_files_is_migrated_in_both(order: tuple[str, str]) -> None:
    texts = {"tools.py": PREPARE, "train.py": USE}
    found = results({name: texts[name] for name in order})
    tools, train = found["tools.py"].after, found["train.py"].after
    assert tools is not None
    assert train is not None
    assert "apex" not in tools + train
    assert "    return model, optimizer\n" in tools
    assert "scaler.step(optimizer)" in train


@pytest.mark.parametrize(("target", "other"), [("tools.py", "train.py"), ("train.py", "tools.py")])
def test_half_of_a_unit_is_never_written_and_the_other_file_is_named(target: str, other: str) -> None:
    texts = {"tools.py": PREPARE, "train.py": USE}
    found = results({target: texts[target]}, {other: texts[other]})
    assert found[target].after is None
    assert found[target].status == "blocked"
    assert any(other in finding.message for finding in found[target].findings)


def test_every_site_of_a_refused_unit_is_reported() -> None:
    found = results({"tools.py": PREPARE, "train.py": USE.replace("optimizer.step()", "optimizer.step(lambda: 1)")})
    assert [r.after for r in found.values()] == [None, None]
    assert {f.construct for f in found["tools.py"].findings} == {"amp.initialize"}
    assert {f.construct for f in found["train.py"].findings} == {"amp.scale_loss", "optimizer.step"}


def test_files_that_have_nothing_to_do_with_apex_are_unchanged() -> None:
    found = results({"tools.py": PREPARE, "train.py": USE, "data.py": "def batches():\n    return []\n"})
    assert found["data.py"].status == "unchanged"
    assert not found["data.py"].findings
