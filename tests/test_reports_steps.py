"""Which of the changed files are started as programs."""

from __future__ import annotations

import pytest

from amp_migrate.findings import FileResult, Report
from amp_migrate.reports.steps import after_dry, programs

DEFINES = """\
import a


class C:
    x = 1


@a.b
def f(
    x,
):
    '''
f()
    '''
    return x


async def g():
    f()
"""


def started(text: str) -> bool:
    return bool(programs(Report([FileResult("x.py", "migrated", before=text, after="")], 1)))


@pytest.mark.parametrize(
    "more",
    [
        "f()\n",
        "f()",
        "a.run(f)\n",
        "args = a.parse_args()\n",
        "if __name__ == '__main__':\n    pass\n",
        "for x in a:\n    pass\n",
        "@a.automain\ndef h():\n    pass\n",
        "# why\nf()\n",
    ],
)
def test_a_file_that_does_more_than_define_is_a_program(more: str) -> None:
    assert started(f"{DEFINES}\n\n{more}")
    assert started(f"{DEFINES}\n\n{more}".replace("\n", "\r\n"))
    assert started(f"{more}\n\n{DEFINES}")


@pytest.mark.parametrize("more", ["", "x = 1\n", "    # f()\n", "C()\n", "def h():\n    f()", "a.f()\n"])
def test_one_that_defines_is_none(more: str) -> None:
    assert not started(f"{DEFINES}{more}")


def test_one_that_does_not_parse_is_asked_for_its_last_lines() -> None:
    assert started("print 1\nif __name__ == '__main__':\n    pass\n")
    assert not started("print 1\n")


def test_no_trial_is_announced_where_only_settings_would_change() -> None:
    settings = FileResult("ds_config.json", "migrated", before="{}", after="[]")
    code = FileResult("x.py", "migrated", before=f"{DEFINES}f()\n", after="")
    assert after_dry(Report([settings], 1), ["."]) == ["Next: `amp-migrate rewrite .` writes this."]
    assert after_dry(Report([settings, code], 2), ["."])[0].endswith("tried in a copy:")
