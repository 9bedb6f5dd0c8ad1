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
    return [f"{d.path}:{d.line} {d.message}" for d in found if "asks for Apex's amp still" in d.message]


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
    ],
)
def test_a_file_left_with_apex_that_is_loaded_is_told_where_it_is(loads: str, files: dict[str, str]) -> None:
    (message,) = said(loads, files)
    assert message.startswith("train.py:3 ")
    assert "losses.py:2" in message


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
