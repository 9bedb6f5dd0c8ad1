"""What a run puts out (reports, summaries, programs): whole where it goes, or named where it cannot go."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from amp_migrate.sources import beside, outputs
from tests.cli_testing import run, write_tree
from tests.test_precommit import APEX

ROOT = Path(__file__).parent.parent
EARLIER = "<!-- amp-migrate: report -->\nearlier\n"
FULL = Path("/dev/full")

needs_a_full_device = pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tree(Path(), {"train.py": APEX})


def started(*arguments: str, stdin: str = "", **streams: Any) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own; `stdout` and `stderr` are read unless they are given."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    command = [sys.executable, "-m", "amp_migrate", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, input=stdin, text=True, env=environment, timeout=120, check=False, **streams)


@needs_a_full_device
class TestFull:
    @pytest.mark.parametrize("output", ["text", "sarif"])
    def test_a_report_that_cannot_be_printed_names_where_it_was_to_go(self, output: str) -> None:
        with FULL.open("w") as full:
            done = started("check", "--format", output, ".", stdout=full)
        assert done.returncode == 2
        assert "standard output" in done.stderr
        assert "could not be written: no space left on device; what stands there is not whole\n" in done.stderr
        assert "Errno" not in done.stderr

    @pytest.mark.skipif(sys.platform != "linux", reason="only there does the system tell what a stream leads to")
    def test_by_its_path(self) -> None:
        with FULL.open("w") as full:
            assert "standard output (/dev/full) could not" in started("check", ".", stdout=full).stderr

    def test_what_a_rewrite_has_written_is_told_and_summed_up_all_the_same(self) -> None:
        with FULL.open("w") as full:
            done = started("rewrite", "--summary", "out.md", ".", stdout=full)
        assert done.returncode == 2
        assert done.stderr.endswith("what stands there is not whole; 1 file is migrated all the same\n")
        assert "from apex" not in Path("train.py").read_text()
        assert "train.py" in Path("out.md").read_text()

    @pytest.mark.parametrize("arguments", [("--diff", "."), ("-",)])
    def test_a_diff_and_a_program(self, arguments: tuple[str, ...]) -> None:
        with FULL.open("w") as full:
            done = started("rewrite", *arguments, stdin=APEX, stdout=full)
        assert done.returncode == 2
        assert "standard output" in done.stderr
        assert "all the same" not in done.stderr
        assert Path("train.py").read_text() == APEX

    def test_a_summary_that_cannot_be_written_is_no_mistake_in_the_command(self) -> None:
        done = started("rewrite", "--summary", str(FULL), ".")
        assert done.returncode == 2
        assert (
            done.stderr
            == "amp-migrate: --summary /dev/full: no space left on device; 1 file is migrated all the same\n"
        )
        assert "1 file" in done.stdout

    @pytest.mark.parametrize("arguments", [("check", "--no-such-option"), ("rewrite", "--diff", ".")])
    def test_what_goes_to_a_standard_error_that_is_full(self, arguments: tuple[str, ...]) -> None:
        with FULL.open("w") as full:
            assert started(*arguments, stderr=full).returncode == 2


class TestSummary:
    @pytest.mark.parametrize("appended", [False, True])
    def test_to_the_standard_output_stands_below_the_report(self, appended: bool) -> None:
        if not Path("/dev/stdout").exists():
            pytest.skip("this system has no such name for it")
        Path("all.txt").write_text("mine\n")
        with open("all.txt", "a" if appended else "w") as file:
            done = started("rewrite", "--summary", "/dev/stdout", ".", stdout=file)
        assert (done.returncode, done.stderr) == (0, "")
        text = Path("all.txt").read_text()
        assert text.startswith("mine\n") == appended
        assert text.index("migrated in 1 file\n\nNext:") < text.index("<!-- amp-migrate: report -->")
        assert sorted(os.listdir()) == ["all.txt", "train.py"]

    @pytest.mark.skipif(os.name == "nt", reason="there is no such signal there")
    def test_one_that_is_killed_leaves_the_earlier_one_and_the_next_cleans_up(self) -> None:
        Path("out.md").write_text(EARLIER)
        Path("out.md").chmod(0o640)
        killed = (
            "import os, signal\n"
            "from pathlib import Path\n"
            "from amp_migrate.sources import outputs\n"
            "def half(path, data):\n"
            "    with open(path, 'wb') as file:\n"
            "        file.write(data[:40])\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            "Path.write_bytes = outputs._put = half\n"
            "outputs.write('out.md', 'x' * 4000)\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", killed], env=environment, check=False)
        assert done.returncode == -signal.SIGKILL
        assert Path("out.md").read_text() == EARLIER
        assert len(os.listdir()) == 3
        assert run("rewrite", "--summary", "out.md", ".").exit_code == 0
        assert "NVIDIA Apex" in Path("out.md").read_text()
        assert Path("out.md").stat().st_mode & 0o777 == 0o640
        assert sorted(os.listdir()) == ["out.md", "train.py"]

    @pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
    def test_a_link_stays_one(self) -> None:
        write_tree(Path(), {"there/out.md": EARLIER})
        os.symlink("there/out.md", "out.md")
        assert run("rewrite", "--summary", "out.md", ".").exit_code == 0
        assert Path("out.md").is_symlink()
        assert "NVIDIA Apex" in Path("there/out.md").read_text()

    @pytest.mark.parametrize("full", [False, True])
    def test_one_that_cannot_be_moved_over_is_written_in_place(
        self, full: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a file that is mounted by itself, or one in a folder that takes no new file."""

        def busy(target: Path) -> NoReturn:
            raise OSError(errno.EBUSY, "Device or resource busy")

        monkeypatch.setattr(beside, "replacing", busy)
        Path("out.md").write_text(EARLIER)
        if full:
            put = outputs._put

            def fails(path: Path, data: bytes) -> None:
                put(path, data[:7])
                if data != EARLIER.encode():
                    raise OSError(errno.ENOSPC, "No space left on device")
                put(path, data)

            monkeypatch.setattr(outputs, "_put", fails)
        result = run("rewrite", "--summary", "out.md", ".")
        assert result.exit_code == (2 if full else 0)
        assert (Path("out.md").read_text() == EARLIER) == full
        assert ("the summary that was there is as it was; 1 file is migrated all the same" in result.stderr) == full


def test_the_code_of_a_report_that_is_printed_is_its_own() -> None:
    done = started("check", "--format", "json", ".")
    assert done.returncode == 1
    assert json.loads(done.stdout)["summary"]["files"] == 1
