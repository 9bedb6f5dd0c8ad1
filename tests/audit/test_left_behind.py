"""A migrated program that loads a file which was left with Apex."""

from __future__ import annotations

import textwrap

import pytest

from amp_migrate.audit import audit

LEFT = (
    "import torch\nfrom apex import amp\n\n\ndef scaled(loss, optimizer):\n    return amp.scale_loss(loss, optimizer)\n"
)
GUARDED = "try:\n    from apex import amp\nexcept ImportError:\n    amp = None"
TRAIN = """
    import torch
    {own}
    {loads}

    model = torch.nn.Linear(4, 2).cuda()
    {prepared}
    print(model(torch.ones(2, 4).cuda()))
"""
APEX = {"own": "from apex import amp", "prepared": 'model = amp.initialize(model, opt_level="O1")'}
NATIVE = {"own": "", "prepared": "pass"}


def program(loads: str, files: dict[str, str], **how: str) -> dict[str, str]:
    return {**files, "train.py": textwrap.dedent(TRAIN).format(loads=loads, **how).lstrip("\n")}


def said(loads: str, files: dict[str, str], after: dict[str, str] | None = None) -> list[str]:
    found = audit(program(loads, files, **APEX), {**program(loads, files, **NATIVE), **(after or {})})
    return [f"{d.path}:{d.line} {d.message}" for d in found if "asks for Apex's" in d.message]


@pytest.mark.parametrize(
    ("loads", "files"),
    [
        ("import losses", {"losses.py": LEFT}),
        ("from losses import scaled", {"losses.py": LEFT}),
        ("from lib.losses import scaled", {"lib/__init__.py": "", "lib/losses.py": LEFT}),
        (
            "import lib.tools",
            {"lib/__init__.py": "from .losses import scaled\n", "lib/losses.py": LEFT, "lib/tools.py": ""},
        ),
        (
            "import first",
            {"first.py": "import second\n", "second.py": "import first\nimport losses\n", "losses.py": LEFT},
        ),
        ("import losses", {"losses.py": LEFT.replace("from apex import amp", "import apex.amp as amp")}),
        (
            "import losses",
            {"losses.py": LEFT.replace("from apex import amp", "from apex.optimizers import FP16_Optimizer as amp")},
        ),
        ("import losses", {"losses.py": LEFT.replace("from apex import amp", GUARDED.replace("amp = None", "raise"))}),
        ("import lib.tools", {"lib/__init__.py": "from . import losses\n", "lib/losses.py": LEFT, "lib/tools.py": ""}),
        (
            "from lib.parts import *",
            {
                "lib/__init__.py": "",
                "lib/parts/__init__.py": "__all__ = ['losses']\n",
                "lib/parts/losses.py": LEFT,
            },
        ),
        ("import importlib\nlosses = importlib.import_module('losses')", {"losses.py": LEFT}),
        ("class Losses:\n    import losses\n", {"losses.py": LEFT}),
        (
            "import second",
            {
                "other.py": "import first\n",
                "first.py": "import second\nimport losses\n",
                "second.py": "import first\n",
                "losses.py": LEFT,
            },
        ),
    ],
)
def test_a_file_left_with_apex_that_is_loaded_is_told_where_it_is(loads: str, files: dict[str, str]) -> None:
    (message,) = said(loads, files)
    assert message.startswith(f"train.py:{4 if loads.startswith(('import importlib', 'class')) else 3} ")
    assert "losses.py:" in message


@pytest.mark.parametrize(
    ("loads", "left"),
    [
        ("import losses", LEFT.replace("from apex import amp", GUARDED)),
        ("import losses", LEFT.replace("from apex import amp", "from apex.optimizers import FusedLAMB as amp")),
        (
            "import losses",
            "def scaled(loss, optimizer):\n    from apex import amp\n    return amp.scale_loss(loss, optimizer)\n",
        ),
        ("import other", LEFT),
        ("try:\n    import losses\nexcept ImportError:\n    losses = None", LEFT),
    ],
)
def test_what_does_without_apex_or_is_not_loaded_is_not(loads: str, left: str) -> None:
    assert not said(loads, {"losses.py": left, "other.py": ""})


def test_a_file_that_was_migrated_itself_is_not() -> None:
    assert not said(
        "import losses", {"losses.py": LEFT}, {"losses.py": LEFT.replace("from apex import amp", "amp = None")}
    )


def test_several_that_load_one_are_told_once() -> None:
    other = {"test.py": program("import losses", {}, **APEX)["train.py"], "losses.py": LEFT}
    after = {"test.py": program("import losses", {}, **NATIVE)["train.py"]}
    (message,) = said("import losses", other, after)
    assert "as in train.py" in message


def test_a_part_of_a_package_that_is_loaded_runs_the_files_of_the_packages_above_it() -> None:
    """The file that was migrated is no script: whoever imports it has loaded the package it lies in."""
    package = {"lib/__init__.py": "from . import losses\n", "lib/losses.py": LEFT}
    before, after = (
        textwrap.dedent(TRAIN).format(loads="", **how).lstrip("\n").replace("print(", "str(") for how in (APEX, NATIVE)
    )
    found = audit({**package, "lib/train.py": before}, {"lib/train.py": after})
    assert [d.path for d in found if "asks for Apex's amp still" in d.message] == ["lib/train.py"]
    script = "\nif __name__ == '__main__':\n    print(model)\n"
    found = audit({**package, "lib/train.py": before + script}, {"lib/train.py": after + script})
    assert not [d for d in found if "asks for Apex's" in d.message]
