"""What a rewrite says of the texts beside the code: what still speaks of Apex, and where, in every form a person reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from amp_migrate.findings import FileResult, Finding, Report
from amp_migrate.leftovers import leftovers
from amp_migrate.reports import inventory
from amp_migrate.texts import Kind
from tests.cli_testing import HARD, NOTE, SITE, fake_engine, run, run_json, write_tree

README = (
    "# Model\nTrains with apex or without.\n\nSee https://github.com/NVIDIA/apex, `/opt/apex/` and apex@example.org.\n"
)
SETTINGS = "lr: 0.1\namp: true  # through Apex, O1\nname: apex\n"


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("amp_migrate.engine.migrate", fake_engine)


def mentions(text: str, kind: Kind, *, free: bool = True) -> list[int]:
    return [f.line for f in leftovers(text, kind, migrated=True, free=free) if f.code == "AMP854"]


def test_the_word_alone_counts_once_nothing_needs_apex() -> None:
    assert mentions(README, "prose") == [4, 2]
    assert mentions(README, "prose", free=False) == [4]


@pytest.mark.parametrize("line", ["apex/train.py", "see /opt/apex", "apex.py", "apexes", "a-b/apex", "apex-legends"])
def test_parts_of_other_names_say_nothing(line: str) -> None:
    assert mentions(f"Run {line} now\n", "prose") == []


def test_comments_of_settings_and_scripts_speak_of_it_too() -> None:
    assert mentions(SETTINGS, "commands") == [2]
    assert mentions("# apex needs one process a GPU\npython train.py --fp16\n", "commands") == [1]
    assert mentions(SETTINGS, "commands", free=False) == []


def test_a_comment_on_a_command_that_goes_is_not_told_twice() -> None:
    assert mentions("# build apex\nRUN git clone https://github.com/NVIDIA/apex\n", "commands") == []


def test_the_closing_lines_say_where() -> None:
    write_tree(Path(), {"a.py": SITE, "README.md": README, "docs/use.md": "apex\n"})
    lines = run("rewrite", ".").stdout.splitlines()
    assert (
        "Next: README.md:2, 4; docs/use.md:1 still speak of Apex (lines as they are now): tell of torch.amp instead."
        in lines
    )


def test_many_texts_are_counted() -> None:
    write_tree(Path(), {"a.py": SITE, **{f"d{i}.md": "apex\n" * 9 for i in range(5)}})
    (line,) = [line for line in run("rewrite", ".").stdout.splitlines() if "speak" in line]
    assert line.startswith("Next: d0.md:1, 2, 3, 4, 5, 6, 7, 8, ...; d1.md:1,")
    assert line.endswith(" and 2 more files still speak of Apex (lines as they are now): tell of torch.amp instead.")


@pytest.mark.parametrize("beside", [{"b.py": HARD}, {}])
def test_where_apex_is_still_needed_nothing_is_said_of_the_word(beside: dict[str, str]) -> None:
    write_tree(Path(), {"a.py": SITE, "README.md": "Trains with apex.\n", **beside})
    assert ("speaks of Apex" in run("rewrite", ".").stdout) == (not beside)


def test_what_changes_nothing_has_no_closing_lines() -> None:
    write_tree(Path(), {"a.py": "x = 1\n", "README.md": "Trains with apex.\n"})
    assert "speaks" not in run("rewrite", ".").stdout
    assert run("check", ".").stdout == "No Apex found in 2 files\n"


def test_the_summary_lists_what_is_outside_the_code() -> None:
    write_tree(Path(), {"a.py": SITE, "README.md": README, "requirements.txt": "apex\ntorch==1.5\n"})
    run("rewrite", "--summary", "out.md", ".")
    section = Path("out.md").read_text().split("## Also to do\n")[1].split("\n## ")[0]
    assert [line[: line.index(":", line.index("`") + 1) + 2] for line in section.split("\n") if line] == [
        "- [ ] `README.md:2",
        "- [ ] `requirements.txt:1",
        "- [ ] `requirements.txt:2",
    ]
    assert "(and 1 more: line 4)" in section
    assert "needs torch\\>=2.4" in section


def test_the_page_has_them_and_what_deserves_a_look_by_file() -> None:
    write_tree(Path(), {"a.py": SITE + NOTE, "b.py": SITE, "c.py": NOTE, "requirements.txt": "torch==1.5\n"})
    page = run("rewrite", "--format", "html", ".").stdout
    assert "<h2>Also to do</h2><details><summary><code>requirements.txt</code>" in page
    looks = page.split("<h2>Worth a look</h2>")[1]
    assert "<summary><code>a.py</code> <span class='soft'>(1)</span></summary>" in looks
    assert "<code>b.py</code>" not in looks
    assert "What needs a hand" not in page


def test_a_text_is_about_the_code_of_the_nearest_folder_that_has_some() -> None:
    tree = {"a/train.py": SITE, "b/other.py": "x = 1\n", "docs/conf.py": "x = 1\n"}
    texts = ("README.md", "a/README.md", "a/conf/x.yaml", "b/README.md", "b/conf/x.yaml", "docs/use.md")
    write_tree(Path(), {**tree, **dict.fromkeys(texts, "# apex\n")})
    lines = "\n".join(run("rewrite", "--format", "html", ".").stdout.split("<h2>")[-1:])
    assert [text for text in texts if f"<code>{text}</code>" in lines] == [t for t in texts if t[0] != "b"]


def test_json_and_exit_codes_are_as_they_were() -> None:
    write_tree(Path(), {"a.py": SITE, "README.md": README, "requirements.txt": "torch==1.5\n"})
    code, report = run_json("rewrite", ".")
    assert code == 0
    assert [file["path"] for file in report["files"]] == ["a.py"]


def test_paths_from_the_root_of_the_system() -> None:
    write_tree(Path(), {"p/a.py": SITE, "p/docs/use.md": "apex\n"})
    assert "use.md:1 still speaks of Apex" in run("rewrite", str(Path("p").absolute())).stdout


def test_comments_of_migrated_files_are_named_by_the_lines_they_have_now() -> None:
    code = (
        SITE
        + '# after apex\nx = 1  # O1 of Apex\n\n\ndef f():\n    """Runs.\n\n    In apex terms."""\n    y = "apex"\n'
        + "# copied from NVIDIA apex\n"
    )
    write_tree(Path(), {"a.py": code, "b.py": "# apex\n"})
    run("rewrite", "--summary", "out.md", ".")
    section = Path("out.md").read_text().split("## Also to do\n")[1].split("\n## ")[0]
    assert "`a.py:2` AMP854: a comment still speaks of Apex" in section
    assert "(and 2 more: lines 3, 9)" in section
    assert "b.py" not in section


def test_nothing_is_said_of_comments_where_apex_is_still_needed() -> None:
    write_tree(Path(), {"a.py": SITE + "# apex\n", "b.py": HARD})
    assert "speaks of Apex" not in run("rewrite", ".").stdout


NATIVE = (
    'parser.add_argument("--fp16", help="16-bit precision (through NVIDIA apex)")\n# adapted from apex/examples\n'
    'scaler = torch.amp.GradScaler("cuda")\nprint("apex")\n'
)


def test_what_was_migrated_before_is_told_of_its_texts_and_of_torch() -> None:
    """Nothing of Apex is left in the code, so that nothing else of this says more than `No Apex found`."""
    texts = {"README.md": "Trained with apex.\n", "requirements.txt": "torch==1.4.0\n"}
    write_tree(Path(), {"train.py": NATIVE, **texts})
    lines = run("check", ".").stdout.splitlines()
    assert "train.py:1:1 AMP854 lines 1, 4 still speak of Apex, which nothing here uses: change the text" in lines
    assert any(line.startswith("README.md:1:14 AMP854 refers to NVIDIA Apex") for line in lines)
    assert any(line.startswith("requirements.txt:1:1 AMP856") for line in lines)


@pytest.mark.parametrize(
    "text",
    [
        NATIVE.replace('--fp16", help="16-bit precision (through NVIDIA apex)', '--angle", help="at the apex'),
        NATIVE.replace("torch.amp.GradScaler", "Scaler"),
    ],
)
def test_an_apex_of_another_kind_is_none(text: str) -> None:
    write_tree(Path(), {"train.py": text, "README.md": "To the apex.\n", "requirements.txt": "torch==1.4.0\n"})
    assert run("check", ".").stdout == "No Apex found in 3 files\n"


def test_both_pages_count_the_same_files() -> None:
    """What is no Python is read by both."""
    write_tree(
        Path(), {"a.py": SITE, "b.py": "x = 1\n", "README.md": README, "config.yaml": "lr: 1\n", "run.sh": "ls\n"}
    )
    rows = [
        re.search(r"<td><code>\.</code></td><td>(\d+)</td>", run(command, "--format", "html", ".").stdout)
        for command in ("check", "rewrite")
    ]
    assert [row and row[1] for row in rows] == ["5", "5"]


@pytest.mark.parametrize(("pin", "told"), [("torch==1.4.0", False), ("torch>=2.4", True), ("numpy", True)])
def test_the_torch_that_the_result_needs_is_told_once(pin: str, told: bool) -> None:
    write_tree(Path(), {"a.py": SITE, "requirements.txt": f"{pin}\n"})
    lines = run("rewrite", ".").stdout.splitlines()
    assert ("What is written needs torch>=2.4." in lines) is told
    assert any("requirements.txt:1" in line and "torch>=2.4" in line for line in lines) is not told


def test_texts_are_to_do_on_the_page_as_in_the_summary() -> None:
    told = Finding(7, 1, "AMP854", "add_argument", "note", "look", "the help says Apex")
    page = inventory.html(Report([FileResult("a.py", "migrated", [told], "x", "y")], 1), "1 file")
    assert "Also to do" in page
    assert "Worth a look" not in page
