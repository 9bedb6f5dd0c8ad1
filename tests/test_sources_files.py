from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_migrate.sources.failures import SourceError
from amp_migrate.sources.files import BOM, decode, position, read, read_bytes
from amp_migrate.sources.replace import Change, WriteError, replace_together

HERE = Path("x.py")


def decoded(data: bytes) -> str:
    return decode(data, HERE, "x.py").text


class TestDecoding:
    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"x = 1",
            b"x = 1\n",
            b"x = 1\r\ny = 2\rz = 3\n",
            b"\x0cx = 1\n\tif x:\n",
            BOM + b"x = '\xc3\xa9'\n",
            BOM + b"# coding: utf-8\nx = 1\n",
            b"# -*- coding: latin-1 -*-\nx = '\xe9'\n",
            b"#!/usr/bin/python\n# vim: set fileencoding=cp1251 :\nx = '\xcf'\n",
            b"# coding: shift_jis\nx = '\x83\x65'\n",
            b"'''\n\xc2\x85 \xe2\x80\xa8'''\n",
        ],
    )
    def test_bytes_survive(self, data: bytes) -> None:
        source = decode(data, HERE, "x.py")
        assert source.encode(source.text) == data
        assert source.bom == data.startswith(BOM)
        assert not source.text.startswith("\ufeff")

    @given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",))), st.booleans())
    def test_any_utf_8_survives(self, text: str, bom: bool) -> None:
        data = (BOM if bom else b"") + text.encode()
        try:
            source = decode(data, HERE, "x.py")
        except SourceError:  # the text happens to declare an encoding
            assert "coding" in text
            return
        assert source.encode(source.text) == data

    @pytest.mark.parametrize(
        ("data", "code", "line", "column"),
        [
            (b"x\n\xff", "AMP002", 2, 1),
            (b"x\r\nab\xffc", "AMP002", 2, 3),
            (b"x\ry\r\xff", "AMP002", 3, 1),
            (b"x\ny = \0", "AMP002", 2, 5),
            (b"# coding: ascii\n\xe9", "AMP002", 2, 1),
            (b"# coding: no-such-thing\n", "AMP003", 1, 1),
            (BOM + b"# coding: latin-1\n", "AMP003", 1, 1),
        ],
    )
    def test_what_is_not_what_it_claims(self, data: bytes, code: str, line: int, column: int) -> None:
        with pytest.raises(SourceError) as caught:
            decoded(data)
        assert (caught.value.code, caught.value.line, caught.value.column) == (code, line, column)

    def test_an_encoding_that_loses_bytes_is_refused(self) -> None:
        # A redundant escape to ASCII decodes to nothing, and is not written again.
        with pytest.raises(SourceError) as caught:
            decoded(b"# coding: iso-2022-jp\n\x1b(Bx = 1\n")
        assert caught.value.code == "AMP002"

    def test_cookie_counts_in_the_first_two_lines_only(self) -> None:
        assert decoded("\n\n# coding: latin-1\nx = 'é'\n".encode()).endswith("é'\n")

    def test_positions_count_all_kinds_of_lines(self) -> None:
        assert position(b"a\r\nb\rc\nd", 7) == (4, 1)


class TestReading:
    def test_no_regular_file(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.py")
        with pytest.raises(SourceError, match="not a regular file"):
            read_bytes(tmp_path / "pipe.py")
        with pytest.raises(SourceError, match="not a regular file"):
            read_bytes(tmp_path)

    @pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 300_000])
    def test_all_bytes(self, tmp_path: Path, size: int) -> None:
        data = os.urandom(size)
        (tmp_path / "a").write_bytes(data)
        assert read_bytes(tmp_path / "a") == data

    def test_files_of_unknown_size(self) -> None:
        assert read_bytes("/proc/self/status").startswith(b"Name:") if Path("/proc/self/status").exists() else True


def change(path: Path, after: str) -> Change:
    return Change(read(path, path.name), after)


class TestReplacing:
    def test_together(self, tmp_path: Path) -> None:
        for name in "abc":
            (tmp_path / name).write_text(f"{name} = 1\n")
        replace_together([change(tmp_path / name, f"{name} = 2\n") for name in "abc"])
        assert [(tmp_path / name).read_text() for name in "abc"] == ["a = 2\n", "b = 2\n", "c = 2\n"]
        assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]

    @pytest.mark.parametrize("failing", [1, 2, 3])
    @pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), KeyboardInterrupt(), SystemExit(143)])
    def test_failure_at_any_replacement_puts_all_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, error: BaseException
    ) -> None:
        for name in "abc":
            (tmp_path / name).write_text(f"{name} = 1\n")
        changes = [change(tmp_path / name, f"{name} = 2\n") for name in "abc"]
        original, calls = os.replace, []

        def replace(source: str, target: object) -> None:
            calls.append(target)
            if len(calls) == failing:
                raise error
            original(source, str(target))

        monkeypatch.setattr("os.replace", replace)
        with pytest.raises(WriteError if isinstance(error, OSError) else type(error)):
            replace_together(changes)
        assert [(tmp_path / name).read_text() for name in "abc"] == ["a = 1\n", "b = 1\n", "c = 1\n"]
        assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]

    def test_failure_while_staging_touches_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in "ab":
            (tmp_path / name).write_text("x = 1\n")
        changes = [change(tmp_path / name, "x = 2\n") for name in "ab"]
        calls: list[int] = []

        def fsync(descriptor: int) -> None:
            calls.append(descriptor)
            if len(calls) == 2:
                raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", fsync)
        with pytest.raises(WriteError, match="b: cannot be written: no space left on device"):
            replace_together(changes)
        assert (tmp_path / "a").read_text() == "x = 1\n"
        assert sorted(os.listdir(tmp_path)) == ["a", "b"]

    def test_a_file_changed_meanwhile_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("x = 1\n")
        stale = change(tmp_path / "a", "x = 2\n")
        (tmp_path / "a").write_text("x = 3\n")
        with pytest.raises(WriteError, match="changed by another program"):
            replace_together([stale])
        assert (tmp_path / "a").read_text() == "x = 3\n"

    def test_a_file_gone_meanwhile(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("x = 1\n")
        stale = change(tmp_path / "a", "x = 2\n")
        (tmp_path / "a").unlink()
        with pytest.raises(WriteError):
            replace_together([stale])
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("mode", [0o644, 0o600, 0o755])
    def test_mode(self, tmp_path: Path, mode: int) -> None:
        path = tmp_path / "a"
        path.write_text("x = 1\n")
        path.chmod(mode)
        replace_together([change(path, "x = 2\n")])
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert path.read_text() == "x = 2\n"

    def test_a_read_only_file_is_left_alone_with_its_unit(self, tmp_path: Path) -> None:
        for name in "ab":
            (tmp_path / name).write_text(f"{name} = 1\n")
        (tmp_path / "b").chmod(0o444)
        with pytest.raises(WriteError, match="read-only"):
            replace_together([change(tmp_path / name, f"{name} = 2\n") for name in "ab"])
        assert [(tmp_path / name).read_text() for name in "ab"] == ["a = 1\n", "b = 1\n"]
        assert sorted(os.listdir(tmp_path)) == ["a", "b"]

    def test_links_are_written_through(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "a").write_text("x = 1\n")
        (tmp_path / "one").symlink_to("real/a")
        (tmp_path / "two").symlink_to("one")
        replace_together([change(tmp_path / "two", "x = 2\n")])
        assert (tmp_path / "real" / "a").read_text() == "x = 2\n"
        assert (tmp_path / "two").is_symlink()
        assert (tmp_path / "one").is_symlink()

    def test_owner_is_kept_as_far_as_we_may(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "a"
        path.write_text("x = 1\n")
        asked: list[tuple[int, int]] = []

        def fchown(descriptor: int, user: int, group: int) -> None:
            asked.append((user, group))
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr("os.geteuid", lambda: 123456)
        monkeypatch.setattr("os.fchown", fchown)
        replace_together([change(path, "x = 2\n")])
        assert asked == [(path.stat().st_uid, path.stat().st_gid)]
        assert path.read_text() == "x = 2\n"


def test_a_kill_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    """A writer killed over and over: at any moment the file is whole."""
    import signal
    import subprocess
    import sys

    path = tmp_path / "a.py"
    old, new = "old = 1\n" * 20_000, "new = 2\n" * 20_000
    path.write_text(old)
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from amp_migrate.sources.files import read\n"
        "from amp_migrate.sources.replace import Change, replace_together\n"
        f"path = Path({str(path)!r})\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    source = read(path, 'a.py')\n"
        "    text = source.text\n"
        "    replace_together([Change(source, text.replace('old = 1', 'new = 2') if text[0] == 'o'"
        " else text.replace('new = 2', 'old = 1'))])\n"
    )
    for round_ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        for _ in range(20 * round_):
            assert path.read_text() in (old, new)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        assert path.read_text() in (old, new)
