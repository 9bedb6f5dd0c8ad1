"""Through the command line: what is not rewritten keeps its bytes, whatever the file's encoding and line endings."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from tests.cli_testing import run

BEFORE = """\
import torch
from apex import amp

from project import build, criterion, loader

# The network.
model = build()   # aligned    by   hand
optimizer = torch.optim.SGD( model.parameters(),lr = 0.1 )
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


def unrelated( a,b ) :
    if a : return { 'x':b }
    return (a
        +b)


for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
print("done")
"""
AFTER = """\
import torch

from project import build, criterion, loader

# The network.
model = build()   # aligned    by   hand
optimizer = torch.optim.SGD( model.parameters(),lr = 0.1 )
scaler = torch.amp.GradScaler("cuda")


def unrelated( a,b ) :
    if a : return { 'x':b }
    return (a
        +b)


for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print("done")
"""


def check_file(path: Path, before: bytes, after: bytes) -> None:
    """Assert what a file becomes, and that a second run leaves it so."""
    path.write_bytes(before)
    assert run("rewrite", str(path)).exit_code == 0
    assert path.read_bytes() == after
    assert run("rewrite", "--check", str(path)).exit_code == 0
    assert path.read_bytes() == after


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


def test_untouched_code_keeps_its_own_spacing_and_quotes(path: Path) -> None:
    check_file(path, BEFORE.encode(), AFTER.encode())


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_endings_are_those_of_the_file(path: Path, newline: str) -> None:
    check_file(path, BEFORE.replace("\n", newline).encode(), AFTER.replace("\n", newline).encode())


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n", "\n# the end", "\n    # indented\n", "\n\f\n"])
def test_the_end_of_the_file_stays_as_it_is(path: Path, end: str) -> None:
    before, after = BEFORE.removesuffix("\n"), AFTER.removesuffix("\n")
    check_file(path, (before + end).encode(), (after + end).encode())


def test_a_last_line_that_is_rewritten_gets_no_newline_it_did_not_have(path: Path) -> None:
    before = BEFORE.removesuffix('print("done")\n').removesuffix("\n")
    after = AFTER.removesuffix('print("done")\n').removesuffix("\n")
    check_file(path, before.encode(), after.encode())


@pytest.mark.parametrize("indent", ["\t", "  ", "   ", "        "])
def test_emitted_code_is_indented_like_the_file(path: Path, indent: str) -> None:
    def indented(text: str) -> bytes:
        lines = text.splitlines(keepends=True)
        return "".join(
            indent * ((len(line) - len(line.lstrip())) // 4) + line.lstrip() if line.strip() else line for line in lines
        ).encode()

    check_file(path, indented(BEFORE), indented(AFTER))


def test_form_feeds_between_sections_stay(path: Path) -> None:
    def with_feeds(text: str) -> bytes:
        return text.replace("\n\n\ndef", "\n\n\f\ndef").replace("\n\n\nfor", "\n\f\n\nfor").encode()

    check_file(path, with_feeds(BEFORE), with_feeds(AFTER))


def test_a_byte_order_mark_stays(path: Path) -> None:
    check_file(path, codecs.BOM_UTF8 + BEFORE.encode(), codecs.BOM_UTF8 + AFTER.encode())


def test_a_byte_order_mark_stays_where_the_first_line_goes(path: Path) -> None:
    before = "from apex import amp\n" + BEFORE.replace("from apex import amp\n", "")
    check_file(path, codecs.BOM_UTF8 + before.encode(), codecs.BOM_UTF8 + AFTER.encode())


@pytest.mark.parametrize("encoding", ["latin-1", "iso-8859-15", "cp1252", "utf-8"])
def test_an_encoding_cookie_is_obeyed(path: Path, encoding: str) -> None:
    head = f"# -*- coding: {encoding} -*-\nname = 'Müller, Español'  # ©\n"
    check_file(path, (head + BEFORE).encode(encoding), (head + AFTER).encode(encoding))


def test_names_and_comments_beyond_ascii_do_not_shift_columns(path: Path) -> None:
    def foreign(text: str) -> bytes:
        return (
            text.replace("loss = criterion(model(x), y)", "потеря = criterion(model(x), y)  # 損失 → loss")
            .replace("(loss", "(потеря")
            .encode()
        )

    check_file(path, foreign(BEFORE), foreign(AFTER))


@pytest.mark.parametrize(
    "line",
    [
        "text = 'two' \\\n    'lines'\n",
        'query = """\n  model, optimizer = amp.initialize(model)\n"""\n',
        "value = (1 if True else\n         2)\n",
        "x = 1;  y = 2 ;z=3\n",
        "if x: print(x); print(y)\n",
        "lambda: (yield)\n",
        "total = 0x_ff + 1_000\n",
        "r = rb'\\x00' b'\\n'\n",
        "class A: pass\n",
        "@decorator  # why\ndef f(): ...\n",
        "assert x, (\n    'message'  # note\n)\n",
    ],
)
def test_odd_but_valid_lines_beside_a_migration_stay(path: Path, line: str) -> None:
    before, after = BEFORE.replace("# The network.\n", line), AFTER.replace("# The network.\n", line)
    check_file(path, before.encode(), after.encode())


def test_a_file_without_apex_is_not_even_written_again(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbfx = 1 \r\n\ty = 2\f")
    stamp = path.stat().st_mtime_ns
    run("rewrite", str(path))
    assert path.stat().st_mtime_ns == stamp
    assert path.read_bytes() == b"\xef\xbb\xbfx = 1 \r\n\ty = 2\f"


def test_standard_input_keeps_its_bytes_too(path: Path) -> None:
    result = run("rewrite", "-", stdin=BEFORE.replace("\n", "\r\n").encode())
    assert result.stdout_bytes == AFTER.replace("\n", "\r\n").encode()


@pytest.mark.parametrize("clause", ["except (A, B) :", "except A as e :", "except A  :", "finally :"])
def test_spaces_before_the_colon_of_an_untouched_clause_stay(path: Path, clause: str) -> None:
    lines = f"try :\n    x = 1\n{clause}\n    pass\n"
    before, after = BEFORE.replace("# The network.\n", lines), AFTER.replace("# The network.\n", lines)
    check_file(path, before.encode(), after.encode())


def test_a_backslash_above_the_first_line_stays(path: Path) -> None:
    check_file(path, b"\\\n" + BEFORE.encode(), b"\\\n" + AFTER.encode())
