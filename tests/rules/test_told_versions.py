"""A line that only tells which Apex is installed goes with it; what tells more, or is asked, stays and is reported."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import apex, found, native

TOLD = [
    "print(apex.__version__)",
    "print('apex', apex.amp.__version__)",
    "print(f'apex {apex.__version__}')",
    "print('Apex: {}'.format('.'.join([str(i) for i in apex.amp.__version__.VERSION])))",
    "logging.info('apex %s', apex.__version__)",
]


def program(line: str, imports: str = "import logging\nimport apex") -> str:
    return (
        apex(imports=imports)
        .replace("amp.initialize", "apex.amp.initialize")
        .replace("amp.scale_loss", "apex.amp.scale_loss")
        + f"{line}\n"
    )


@pytest.mark.parametrize("line", TOLD)
def test_a_line_that_only_tells_it_goes(line: str) -> None:
    result = rewrite(program(line))
    assert result.after is not None
    assert result.status == "migrated"
    assert "apex" not in result.after
    (told,) = found(result, "AMP107")
    assert (told.status, told.review) == ("done", "look")


def test_what_was_imported_for_it_goes_too() -> None:
    imports = "from apex import amp\nfrom apex.amp import __version__"
    result = rewrite(apex(imports=imports, tail="if verbose:\n    print('APEX', __version__.VERSION)\n"))
    assert result.after == native(tail="if verbose:\n    pass\n") or result.after == native()


@pytest.mark.parametrize(
    "line",
    [
        "print(torch.__version__, apex.__version__)",
        "print(model, apex.__version__)",
        "report['apex'] = apex.__version__",
        "if apex.__version__ < '0.2':\n    raise RuntimeError('too old')",
        "check(apex.__version__)",
    ],
)
def test_what_tells_more_or_asks_is_left_and_reported(line: str) -> None:
    result = rewrite(program(line))
    assert [f.code for f in result.findings if f.status == "manual"] == ["AMP102"]
    assert line.splitlines()[0] in (result.after or result.before)


def test_it_stays_where_something_else_stays_with_apex() -> None:
    result = rewrite(program("print(apex.__version__)\napex.amp.unheard_of()"))
    assert "print(apex.__version__)" in (result.after or result.before)
    assert not found(result, "AMP107")


def test_it_stays_beside_one_that_tells_more() -> None:
    more = "print(torch.__version__, apex.__version__)"
    result = rewrite(program(f"print('apex', apex.__version__)\n{more}"))
    after = result.after or result.before
    assert "print('apex', apex.__version__)" in after
    assert more in after
    assert not found(result, "AMP107")
