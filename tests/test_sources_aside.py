"""Of a long file what concerns nothing of the training is left out while the rest is read and written."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.engine import Program, migrate
from amp_migrate.options import Options
from amp_migrate.sources import aside
from amp_migrate.sources.aside import left_aside
from amp_migrate.sources.files import SourceFile
from amp_migrate.sources.syntax import pieces
from tests.bench.long_programs import lines

HEAD = "import torch\nfrom apex import amp\n"
PLAIN = "\n\ndef plain_{0}(x):\n" + "    x = x + {0}\n" * 45 + "    return x\n"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "LONG", 1_000)


def left(text: str, *others: str) -> str:
    """What stays of a file, less what stands in place of the rest."""
    sources = [SourceFile(Path(f"{i}.py"), f"{i}.py", t) for i, t in enumerate((text, *others))]
    found = next(iter(left_aside(sources)))
    assert found.whole(found.source.text) == text
    assert found.source.text.count("\n") == text.count("\n")
    return found.source.text


def test_what_neither_trains_nor_is_tied_to_what_does_is_left_out() -> None:
    plain = [PLAIN.format(i) for i in range(4)]
    caller = "\n\ndef main(x):\n    return train(plain_2(x))\n"
    train = "\n\n@timed\ndef train(x):\n    loss = plain_1(x)\n    loss.backward()\n"
    found = left(HEAD + "".join(plain) + train + caller)
    assert [f"def plain_{i}(" in found for i in range(4)] == [False, True, True, False]
    assert "@timed\ndef train(" in found
    assert "def main(" in found
    assert "def plain_3(" in left(HEAD + "".join(plain), "from long import plain_3")
    assert "def plain_0(" in left(HEAD + "x = 1\n" + PLAIN.format(0))  # it reads what stands outside of functions


@pytest.mark.parametrize(
    "text",
    [
        HEAD + '\nTEXT = """\n' + PLAIN.format(0) + '\n"""\n',
        HEAD + "\nTEXT = '''\n" + PLAIN.format(0) + "\n'''\n",
        HEAD + PLAIN.format(0) + "    # end\n\nprint(\n1)\n",
        HEAD + "\n\ndef f(\n    y,\n) -> int:\n" + "    y = 1\n" * 80 + "    return y\n",
        (HEAD + PLAIN.format(0)).replace("\n", "\r\n"),
        HEAD + PLAIN.format(0).rstrip(),
    ],
)
def test_every_line_comes_back(text: str) -> None:
    left(text)


def test_the_migration_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = lines(600).values()
    program = Program([SourceFile(Path("train.py"), "train.py", text)])
    (found,) = migrate(program, Options())
    monkeypatch.setattr(aside, "LONG", 1 << 30)
    assert migrate(program, Options()) == [found]
    assert found.status == "migrated"
    assert found.before == text
    assert found.after is not None
    assert found.after.endswith(text[-5_000:])


def test_a_program_is_parsed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amp_migrate.sources.syntax.PIECE", 100)
    (text,) = lines(100).values()
    assert len(list(pieces(text))) > 5
    assert "".join(pieces(text)) == text
    late = f"{text}\n\nfrom __future__ import annotations\n"
    assert list(pieces(late)) == [late]
