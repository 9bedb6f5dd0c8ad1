"""Only what was asked is written, and what a killed run left is finished or named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amp_migrate.sources.journal import SUFFIX, digest
from tests.cli_testing import SITE, fake_engine, run, run_json, write_tree
from tests.test_precommit import APEX

INSTALL = "pip install 'torch>=2.4' beside amp-migrate, or install 'amp-migrate[verify]'"
ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amp_migrate.engine.migrate", fake_engine)


@pytest.mark.usefixtures("faked")
class TestSummary:
    @pytest.mark.parametrize("command", ["check", "rewrite"])
    def test_the_configuration_cannot_ask_for_one(self, command: str) -> None:
        write_tree(Path(), {"a.py": SITE, "pyproject.toml": '[tool.amp-migrate]\nsummary = "../stolen.md"\n'})
        result = run(command, ".")
        assert result.exit_code == 2
        assert (
            "summary in [tool.amp-migrate]: where a summary is written is only said on the command line"
            in result.stderr
        )
        assert not Path("../stolen.md").exists()
        assert Path("a.py").read_text() == SITE

    @pytest.mark.parametrize("option", ["--check", "--diff"])
    def test_none_where_nothing_is_to_be_written(self, option: str) -> None:
        write_tree(Path(), {"a.py": SITE})
        assert run("rewrite", option, "--summary", "out.md", ".").exit_code == 2
        assert not Path("out.md").exists()

    @pytest.mark.parametrize(
        "target",
        [
            *("a.py", "notes.md", "folder", "no/such/out.md", "nowhere.md"),
            *("pkg/__init__.py", "empty.json", "speaks.py", "", "new/", "a.py/out.md"),
        ],
    )
    def test_never_over_anything_else_and_that_is_known_before_any_work(self, target: str) -> None:
        write_tree(Path(), {"a.py": SITE, "notes.md": "# Mine\n", "folder/x.txt": ""})
        write_tree(Path(), {"pkg/__init__.py": "", "empty.json": "", "speaks.py": "# amp-migrate: report\n"})
        os.symlink("gone", "nowhere.md")
        result = run("rewrite", "--summary", target, ".")
        assert result.exit_code == 2
        assert f"--summary: {target} " in result.stderr
        assert Path("a.py").read_text() == SITE
        assert Path("notes.md").read_text() == "# Mine\n"
        assert Path("pkg/__init__.py").read_text() == Path("empty.json").read_text() == ""
        assert Path("speaks.py").read_text() == "# amp-migrate: report\n"

    @pytest.mark.skipif(os.name == "nt", reason="there is no such limit there")
    @pytest.mark.parametrize("earlier", [None, "<!-- amp-migrate: report -->\nearlier\n"])
    def test_a_full_disk_leaves_no_part_of_one(self, earlier: str | None) -> None:
        write_tree(Path(), {"a.py": SITE} | ({} if earlier is None else {"out.md": earlier}))
        full = (
            "import resource, signal, sys\n"
            "from amp_migrate.sources import outputs\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
            "sys.exit(outputs.write('out.md', 'x' * 4000))\n"
        )
        done = subprocess.run([sys.executable, "-c", full], capture_output=True, text=True, check=False)
        assert "file too large" in done.stderr
        assert (Path("out.md").read_text() if Path("out.md").exists() else None) == earlier

    def test_an_earlier_one_is_replaced_and_is_no_leftover(self) -> None:
        write_tree(Path(), {"a.py": SITE, "b.py": SITE})
        assert run("rewrite", "--summary", "out.md", "a.py").exit_code == 0
        assert run("rewrite", "--summary", "out.md", "b.py").exit_code == 0
        assert "b.py" in Path("out.md").read_text()
        assert "NVIDIA Apex" in Path("out.md").read_text()
        code, report = run_json("check", ".")
        assert "out.md" not in [f["path"] for f in report["files"]]
        assert code == 0


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
@pytest.mark.usefixtures("faked")
class TestLinks:
    def test_one_that_leads_out_is_not_written_through(self) -> None:
        write_tree(Path(), {"a.py": SITE, "../elsewhere/b.py": SITE, "../elsewhere/c.py": "x = 1\n"})
        os.symlink("../elsewhere/b.py", "b.py")
        os.symlink("../elsewhere/c.py", "c.py")
        code, report = run_json("rewrite", ".")
        assert code == 1
        assert Path("../elsewhere/b.py").read_text() == SITE
        (told,) = (f for f in report["files"] if f["path"] == "b.py")
        assert (told["status"], told["findings"][0]["code"]) == ("blocked", "AMP008")
        assert "name ../elsewhere/b.py too" in told["findings"][0]["message"]
        assert "c.py" not in [f["path"] for f in report["files"]]

    def test_one_within_the_paths_is(self) -> None:
        write_tree(Path(), {"real/a.py": SITE})
        os.symlink("real/a.py", "a.py")
        assert run("rewrite", ".").exit_code == 0
        assert "NEW" in Path("real/a.py").read_text()
        assert Path("a.py").is_symlink()

    def test_one_that_is_named_is(self) -> None:
        write_tree(Path(), {"../elsewhere/b.py": SITE})
        os.symlink("../elsewhere/b.py", "b.py")
        assert run("rewrite", "b.py").exit_code == 0
        assert "NEW" in Path("../elsewhere/b.py").read_text()

    def test_a_folder_of_code_elsewhere_is_told_and_one_of_data_is_not(self) -> None:
        write_tree(Path(), {"a.py": "x = 1\n", "../code/pkg/b.py": SITE, "../data/images/1.png": b""})
        os.symlink("../code", "code")
        os.symlink("../data", "data")
        code, report = run_json("check", ".")
        assert code == 0
        (told,) = report["files"]
        assert (told["path"], told["findings"][0]["status"]) == ("code", "note")
        assert "leads out, to ../code" in told["findings"][0]["message"]

    @pytest.mark.parametrize("option", [(), ("--check",), ("--diff",)])
    def test_other_names_of_a_file_keep_its_text_which_is_told(self, option: tuple[str, ...]) -> None:
        write_tree(Path(), {"a.py": SITE, "b.py": SITE, "c.py": "x = 1\n"})
        write_tree(Path(), {"ds.json": '{"amp": {"enabled": true, "opt_level": "O1"}, "train_batch_size": 8}\n'})
        for name in ("a.py", "c.py", "ds.json"):
            os.link(name, Path("..") / name)
        _, report = run_json("rewrite", *option, ".")
        told = {file["path"]: [f["code"] for f in file["findings"]] for file in report["files"]}
        assert "AMP011" in told["a.py"]
        assert "AMP011" in told["ds.json"]
        assert "AMP011" not in told["b.py"]
        assert "c.py" not in told
        assert Path("../a.py").read_text() == SITE
        assert (Path("a.py").read_text() == SITE) == bool(option)

    def test_nobody_need_hear_of_other_names(self) -> None:
        write_tree(Path(), {"a.py": SITE})
        os.link("a.py", "../a.py")
        assert "AMP011" not in run("rewrite", "--ignore", "AMP011", ".").stdout
        assert Path("a.py").read_text() != SITE

    def test_settings_too(self) -> None:
        settings = json.dumps({"amp": {"enabled": True, "opt_level": "O1"}, "train_batch_size": 1})
        write_tree(Path(), {"../elsewhere/ds.json": settings})
        os.symlink("../elsewhere/ds.json", "ds.json")
        run("rewrite", ".")
        assert Path("../elsewhere/ds.json").read_text() == settings


KILLED = """
import os, sys
sys.path.insert(0, {root!r})
left, name = int(sys.argv[1]), sys.argv[2]
real = getattr(os, name)
def dying(*given):
    global left
    if not left:
        os._exit(9)
    left -= 1
    return real(*given)
setattr(os, name, dying)
from amp_migrate.cli import main
main(["rewrite", "."])
"""
UNIT = {
    "common.py": "import torch\n\n\ndef build():\n    model = torch.nn.Linear(2, 2).cuda()\n"
    "    return model, torch.optim.SGD(model.parameters(), lr=0.1)\n",
    "steps.py": "from apex import amp\n\n\ndef step(loss, optimizer):\n"
    "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n    optimizer.step()\n",
    "pkg/train.py": "import torch\nfrom apex import amp\nfrom common import build\nfrom steps import step\n\n"
    'model, optimizer = build()\nmodel, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
    "for x in [torch.ones(1, 2).cuda()] * 3:\n    loss = model(x).sum()\n    step(loss, optimizer)\n"
    "    optimizer.zero_grad()\n",
}


def killed_after(calls: int, name: str = "replace") -> None:
    """A rewrite of the project around that is killed outright after so many files, or other calls of `os`."""
    program = KILLED.format(root=str(ROOT))
    done = subprocess.run([sys.executable, "-c", program, str(calls), name], capture_output=True, check=False)
    assert done.returncode == 9, done.stderr


def hidden() -> list[str]:
    return [name for _, _, names in os.walk(".") for name in names if name.startswith(".")]


class TestInterrupted:
    @pytest.fixture(autouse=True)
    def _project(self, _in_tmp: None) -> None:
        write_tree(Path(), UNIT | {"pyproject.toml": ""})

    def texts(self) -> dict[str, str]:
        return {name: Path(name).read_text() for name in UNIT}

    def test_before_the_first_file_nothing_happened(self) -> None:
        killed_after(0)
        assert self.texts() == UNIT
        assert hidden()
        assert "AMP009" not in run("check", ".").stdout
        assert hidden()  # a reader removes nothing
        assert run("rewrite", ".").exit_code == 0
        assert not hidden()
        assert "apex" not in "".join(self.texts().values())

    @pytest.mark.parametrize("files", [0, 2])
    def test_new_texts_that_were_still_being_written_go(self, files: int) -> None:
        killed_after(files, "fsync")
        assert self.texts() == UNIT
        assert len(hidden()) == 2 + bool(files)  # a journal, and what of the two files that change was begun
        assert run("rewrite", ".").exit_code == 0
        assert not hidden()

    def test_a_disk_that_is_full_but_for_some_bytes_is_said_of_every_file(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, room = os.write, [100]

        def write(descriptor: int, data: bytes) -> int:
            if not room:
                raise OSError(28, "No space left on device")
            return real(descriptor, data[: room.pop()])

        monkeypatch.setattr("os.write", write)
        code, report = run_json("rewrite", ".")
        assert code == 2
        assert {file["status"] for file in report["files"]} == {"failed"}
        assert self.texts() == UNIT
        assert not hidden()
        told = run("rewrite", ".").stdout
        assert "steps.py:1:1 AMP006 not written" in told or "steps.py:1:1 AMP006 cannot be written" in told
        assert "more site" in told  # which each file would have had migrated
        assert "like it" not in told

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    @pytest.mark.parametrize("name", ["open", "unlink", "close", "fsync", "replace"])
    def test_asked_to_stop_at_any_call_it_leaves_nothing(
        self, name: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, calls = getattr(os, name), [0]
        die = 0
        before = signal.signal(number, lambda number, frame: sys.exit(128 + number))  # while nothing is written yet

        def asked(*args: Any, **options: Any) -> Any:
            calls[0] += any("amp-migrate" in str(arg) for arg in args) or isinstance(args[0], int)
            if calls[0] == die:
                os.kill(os.getpid(), number)
            return real(*args, **options)

        while calls[0] >= die:  # until the run has fewer of them
            die, calls[0] = die + 1, 0
            write_tree(Path(), UNIT)
            with monkeypatch.context() as patched:
                patched.setattr(os, name, asked)
                code = run("rewrite", ".").exit_code
            assert code in (0, 128 + number), die
            assert not hidden(), die
            assert len({self.texts()[file] == UNIT[file] for file in ("steps.py", "pkg/train.py")}) == 1, die
        signal.signal(number, before)
        assert die > 2

    def test_half_of_a_unit_is_told_and_finished(self) -> None:
        killed_after(1)
        whole = self.texts()
        assert sum("apex" in text for text in whole.values()) == 1
        result = run("check", ".")
        assert result.exit_code == 1
        assert "AMP009 half of a migration: an interrupted run migrated " in result.stdout
        assert "`amp-migrate rewrite .` finishes it" in result.stdout
        result = run("rewrite", ".")
        assert result.exit_code == 0
        assert "and not this file: finished" in result.stdout
        assert not hidden()
        finished = self.texts()
        write_tree(Path(), UNIT)
        assert run("rewrite", ".").exit_code == 0
        assert self.texts() == finished

    def test_half_of_a_unit_that_was_changed_since_is_named(self) -> None:
        killed_after(1)
        (pending,) = (name for name, text in self.texts().items() if "apex" in text)
        Path(pending).write_text(Path(pending).read_text() + "# mine\n")
        result = run("rewrite", ".")
        assert result.exit_code == 1
        assert f"{pending}:1:1 AMP009 half of a migration" in result.stdout
        assert "restore them all from version control" in result.stdout
        assert Path(pending).read_text().endswith("# mine\n")
        assert not hidden()

    def test_only_what_lies_below_the_paths_is_finished(self) -> None:
        killed_after(1)
        (pending,) = (name for name, text in self.texts().items() if "apex" in text)
        other = "common.py"
        assert run("rewrite", other).exit_code == 1
        assert "apex" in Path(pending).read_text()
        assert run("rewrite", pending).exit_code == 0
        assert "apex" not in Path(pending).read_text()

    def test_a_run_that_lives_is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[list[str]] = []
        replace_file = os.replace

        def meanwhile(source: str, target: str) -> None:
            before = sorted(hidden())
            subprocess.run(
                [sys.executable, "-m", "amp_migrate", "rewrite", "common.py"], check=False, capture_output=True
            )
            assert sorted(hidden()) == before
            seen.append(before)
            replace_file(source, target)

        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setattr("os.replace", meanwhile)
        assert run("rewrite", ".").exit_code == 0
        assert seen
        assert not hidden()

    def test_a_temporary_file_of_nobody_goes(self) -> None:
        Path(f".x.py.0123{SUFFIX}").write_text("x")
        Path(f"pkg/.train.py.4567{SUFFIX}").write_text("x")
        run("rewrite", "--diff", ".")
        assert len(hidden()) == 2
        run("rewrite", ".")
        assert not hidden()

    def test_a_journal_names_nothing_outside_of_its_folder(self, tmp_path: Path) -> None:
        """One that somebody put into a repository: no file elsewhere is replaced."""
        (tmp_path / "mine.txt").write_text("mine")
        (tmp_path / f".mine.txt.abc{SUFFIX}").write_text("theirs")
        entry = {
            "target": "../mine.txt",
            "temporary": f".mine.txt.abc{SUFFIX}",
            "before": digest(b"mine"),
            "after": digest(b"theirs"),
        }
        done = {"target": "common.py", "temporary": "x", "before": "", "after": digest(UNIT["common.py"].encode())}
        Path(".amp-migrate.abc.journal").write_text(json.dumps({"version": 1, "files": [entry, done]}))
        run("rewrite", ".", str(tmp_path))
        assert (tmp_path / "mine.txt").read_text() == "mine"

    def test_damaged_journals_are_none(self) -> None:
        entry = {"target": "x.py", "temporary": ".x.py.0.tmp", "before": "", "after": ""}
        odd = [{"target": "a\0b"}, {"target": "\ud800"}, {"target": ""}, {"temporary": "a/b"}, {"temporary": ""}]
        texts = [json.dumps({"files": [{**entry, **part}]}) for part in odd]
        for number, text in enumerate(["", "{", "[]", '{"files": 3}', '{"files": [{}]}', "[" * 100_000, *texts]):
            Path(f".amp-migrate.{number}.journal").write_text(text)
        assert run("rewrite", ".").exit_code == 0
        assert not hidden()


@pytest.mark.usefixtures("faked")
class TestNextStep:
    def test_after_a_rewrite_what_is_left_and_how_to_verify(self) -> None:
        main = "if __name__ == '__main__':\n    main()\n"
        write_tree(
            Path(), {"train.py": SITE + main, "requirements.txt": "apex\n", "Dockerfile": "RUN pip install apex\n"}
        )
        result = run("rewrite", ".")
        assert result.exit_code == 0
        assert (
            "Next: Dockerfile, requirements.txt still name Apex: `amp-migrate check .` lists where.\n"
            "Then prove that the training did not change:\n"
            "  amp-migrate verify --original-rev REV train.py -- ARGS\n"
        ) in result.stdout

    @pytest.mark.parametrize(
        ("more", "started"),
        [
            ("", False),
            ("def run(): ...\nimport warnings\nwarnings.filterwarnings('ignore')\n", False),
            ("class Trainer: ...\nlogger = logging.getLogger()\n", False),
            ("def run(): ...\nrun()\n", True),
            ("def run(): ...\nfire.Fire(run)\n", True),
            ("args = parser.parse_args()\n", True),
            ("for epoch in range(3):\n    pass\n", True),
            ("@ex.automain\ndef run(): ...\n", True),
        ],
    )
    def test_files_that_nobody_starts_are_reached_by_cases_that_init_finds(self, more: str, started: bool) -> None:
        write_tree(Path(), {"src/utils.py": SITE + more})
        told = run("rewrite", "src").stdout
        assert ("  amp-migrate verify --original-rev REV src/utils.py -- ARGS\n" in told) == started
        init = "  amp-migrate verify --init --original-rev REV src  # finds the programs that lead to these files"
        assert (init in told) == (not started)

    def test_of_many_programs_the_first_are_named(self) -> None:
        write_tree(Path(), {f"{n}.py": SITE + "for i in range(3):\n    pass\n" for n in range(5)})
        told = run("rewrite", ".").stdout
        assert "  amp-migrate verify --init --original-rev REV  # finds cases for all 5 programs;" in told
        assert told.count("-- ARGS") == 3

    def test_nothing_where_nothing_was_done(self) -> None:
        write_tree(Path(), {"train.py": "x = 1\n", "requirements.txt": "apex\n"})
        assert run("rewrite", ".").stdout == "No Apex found in 1 file\n"

    def test_not_for_machines_nor_quiet(self) -> None:
        write_tree(Path(), {"train.py": SITE})
        assert "Next" not in run("rewrite", "--check", "--quiet", ".").output
        assert "Next" not in run("rewrite", "--check", "--format", "github", ".").output
        assert "Next" not in run("rewrite", "-", stdin=SITE).output

    @pytest.mark.parametrize("given", [("train.py", "--epochs", "1"), ("--steps", "5", "train.py", "--fp16")])
    def test_verify_without_the_dashes(self, given: tuple[str, ...]) -> None:
        write_tree(Path(), {"train.py": SITE})
        result = run("verify", *given)
        assert result.exit_code == 2
        first = given.index("train.py") + 1
        assert f"amp-migrate verify {' '.join(given[:first])} -- {' '.join(given[first:])}" in result.stderr

    @pytest.mark.parametrize("command", [("verify", "a.py"), ("run", "a.py"), ("checkpoint", "a.pt", "b.pt")])
    def test_without_torch_what_to_install(self, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        result = run(*command)
        assert result.exit_code == 2
        assert result.stderr == f"amp-migrate {command[0]}: needs PyTorch; {INSTALL}.\n"

    def test_without_matplotlib_a_page_is_refused_before_any_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("torch")  # whose want is told first
        write_tree(Path(), {"train.py": "raise SystemExit('it was run')\n"})
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        result = run("verify", "--report", "page.html", "train.py")
        assert (result.exit_code, result.stdout) == (2, "")
        install = INSTALL.replace("torch>=2.4", "matplotlib>=3.8")
        assert result.stderr == f"amp-migrate verify --report: needs matplotlib; {install}.\n"

    @pytest.mark.parametrize("report", ["train.py", "gone/report.html", "."])
    def test_a_report_of_verify_is_looked_at_first(self, report: str) -> None:
        write_tree(Path(), {"train.py": SITE})
        result = run("verify", "--report", report, "train.py")
        assert result.exit_code == 2
        assert Path("train.py").read_text() == SITE


@pytest.mark.parametrize("revision", ["--output=stolen", "-h"])
def test_a_revision_is_no_option_of_git(revision: str) -> None:
    from amp_migrate.verify.case import VerifyError
    from amp_migrate.verify.programs import _take_revision

    write_tree(Path(), {"train.py": SITE})
    subprocess.run(["git", "init", "-q", "."], check=True)
    with pytest.raises(VerifyError, match="is no revision"):
        _take_revision(Path.cwd(), revision, Path.cwd() / "copy")
    assert not Path("stolen").exists()


class TestIgnoreComments:
    def test_an_unknown_code_is_remarked(self) -> None:
        write_tree(Path(), {"a.py": APEX + "x = 1  # amp-migrate: ignore[AMP99x, AMP201 amp3,110]\n"})
        _, report = run_json("check", ".")
        (told,) = [f for f in report["files"][0]["findings"] if f["code"] == "AMP010"]
        assert told["message"] == "AMP99X is no finding code: this ignores nothing"
        assert told["line"] == APEX.count("\n") + 1

    def test_an_unknown_code_in_settings_too(self) -> None:
        write_tree(
            Path(), {"t.yaml": "trainer:\n  amp_backend: apex  # amp-migrate: ignore[AMP999]\n  precision: 16\n"}
        )
        _, report = run_json("check", ".")
        told = [(f["line"], f["message"]) for f in report["files"][0]["findings"] if f["code"] == "AMP010"]
        assert told == [(2, "AMP999 is no finding code: this ignores nothing")]

    @pytest.mark.parametrize("listed", ["AMP201", "amp201", "201", "AMP110,AMP201", "AMP110 AMP201"])
    def test_codes_as_people_write_them(self, listed: str) -> None:
        text = APEX.replace("as scaled_loss:", f"as scaled_loss:  # amp-migrate: ignore[{listed}]")
        write_tree(Path(), {"a.py": text})
        run("rewrite", "a.py")
        assert Path("a.py").read_text() == text
