from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from amp_migrate.sources.discover import Discovery, discover, project_root
from amp_migrate.sources.gitignore import Rules
from tests.cli_testing import write_tree


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tree(*names: str) -> None:
    write_tree(Path(), dict.fromkeys(names, ""))


def shown(found: Discovery) -> list[str]:
    assert not found.failures
    return [file.display for file in found.files]


def test_python_and_notebooks_in_a_stable_order() -> None:
    tree("b.py", "a/z.py", "a/n.ipynb", "a/t.txt", "c.pyi", "d.pyc")
    assert shown(discover(["."])) == ["b.py", "a/n.ipynb", "a/z.py"]
    assert shown(discover(["a", "b.py"])) == ["a/n.ipynb", "a/z.py", "b.py"]


def test_paths_are_relative_to_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tree("p/a.py", "q/r/b.py")
    monkeypatch.chdir("q")
    assert shown(discover(["../p", str(tmp_path / "q" / "r")])) == ["../p/a.py", "r/b.py"]


def test_each_file_once() -> None:
    tree("a/b.py")
    os.symlink("b.py", "a/link.py")
    assert shown(discover([".", "a", "a/b.py", "./a/../a/b.py"])) == ["a/b.py"]
    assert shown(discover(["a/link.py", "."])) == ["a/link.py"]
    os.symlink("a/b.py", "run")
    assert shown(discover(["run", "."])) == ["run"]


def test_named_files_need_no_suffix_and_are_never_skipped() -> None:
    write_tree(Path(), {".gitignore": "x.py\n", "x.py": "", "bin/train": "", ".venv/pyvenv.cfg": "", ".venv/y.py": ""})
    found = discover(["x.py", "bin/train", ".venv/y.py"])
    assert shown(found) == ["x.py", "bin/train", ".venv/y.py"]
    assert all(file.named for file in found.files)


@pytest.mark.parametrize(
    "skipped",
    [
        ["venv/lib/a.py"],
        ["env/pyvenv.cfg", "env/lib/a.py"],
        ["conda/conda-meta/history", "conda/a.py"],
        ["lib/site-packages/a.py"],
        [".hidden/a.py"],
        [".git/hooks/a.py"],
        ["node_modules/a.py"],
        ["pkg/__pycache__/a.py"],
        ["build/lib/a.py", "build/bdist.linux-x86_64/x"],
        ["x.egg-info/a.py"],
        ["third_party/apex/amp/frontend.py", "third_party/apex/parallel/a.py"],
        ["third_party/apex/apex/amp/frontend.py", "third_party/apex/setup.py"],
        ["nvidia-apex-master/apex/amp/frontend.py", "nvidia-apex-master/tests/a.py"],
        ["apex/apex/amp/handle.py", "apex/examples/imagenet/a.py"],
        ["torch/nn/modules/module.py", "torch/optim/optimizer.py", "torch/autograd/function.py", "torch/amp/a.py"],
    ],
)
def test_skipped_unless_named(skipped: list[str]) -> None:
    tree("a.py", *skipped)
    assert shown(discover(["."])) == ["a.py"]
    folder = next(name for name in skipped if name.endswith(".py")).rsplit("/", 1)[0]
    assert shown(discover([folder])) != []


@pytest.mark.parametrize(
    "kept",
    ["build/a.py", "env/a.py", "apex/a.py", "apex/amp/other.py", "amp/frontend.py", ".github/a.py", "torch/nn/a.py"],
)
def test_folders_that_only_look_alike_are_read(kept: str) -> None:
    tree(kept)
    assert shown(discover(["."])) == [kept]


def test_an_apex_checkout_without_its_package_is_known_by_its_setup() -> None:
    """Its own tests and examples are no part of the project."""
    write_tree(
        Path(),
        {
            "a.py": "",
            "apex/setup.py": 'ext_modules.append(CUDAExtension(name="amp_C", sources=["csrc/amp_C_frontend.cpp"]))\n',
            "apex/tests/L0/run_amp/test_cache.py": "from apex import amp\n",
            "apex/examples/dcgan/main_amp.py": "from apex import amp\n",
            "apex_tools/setup.py": "from setuptools import setup\nsetup(name='apex_tools')\n",
        },
    )
    assert shown(discover(["."])) == ["a.py", "apex_tools/setup.py"]
    assert len(shown(discover(["apex"]))) == 3


def test_below_a_named_environment_everything_is_read() -> None:
    tree("venv/pyvenv.cfg", "venv/lib/site-packages/p/a.py", "venv/lib/site-packages/apex/amp/frontend.py")
    assert shown(discover(["venv"])) == ["venv/lib/site-packages/p/a.py"]
    assert "apex/amp/frontend.py" in shown(discover(["venv/lib/site-packages/apex"]))[0]


class TestGitignore:
    def test_agrees_with_git(self) -> None:
        write_tree(
            Path(),
            {
                ".gitignore": "/data/\n*.gen.py\n!keep.gen.py\nlogs/**/x.py\n\\#odd.py\n# comment\ndoc?/\nsub/deep\n",
                "sub/.gitignore": "!a.gen.py\nlocal.py\n/only_here.py\n",
            },
        )
        names = [
            *("a.py", "a.gen.py", "keep.gen.py", "data/a.py", "sub/data/a.py", "logs/x.py", "logs/1/2/x.py", "#odd.py"),
            *("docs/a.py", "doc/a.py", "sub/a.gen.py", "sub/b.gen.py", "sub/local.py", "sub/only_here.py"),
            *("sub/x/only_here.py", "sub/x/local.py", "sub/deep/a.py", "other/sub/deep/a.py"),
        ]
        tree(*names)
        subprocess.run(["git", "init", "-q", "."], check=True)
        write_tree(Path(), {".git/info/exclude": "doc/a.py\n"})
        listed = subprocess.run(
            ["git", "ls-files", "--others", "--exclude-standard", "*.py"], check=True, capture_output=True, text=True
        )
        expected = sorted(line.strip('"') for line in listed.stdout.splitlines())
        assert sorted(shown(discover(["."]))) == expected
        assert 0 < len(expected) < len(names)
        assert sorted(shown(discover(["sub"]))) == [name for name in expected if name.startswith("sub/")]

    def test_what_is_committed_is_read_though_it_is_ignored(self) -> None:
        """A folder `models/` of a program's networks, under a rule that is meant for weights."""
        write_tree(Path(), {".gitignore": "models/\n*.gen.py\n"})
        tree("a.py", "models/net.py", "models/deep/net.py", "models/left.py", "sub/models/x.py", "b.gen.py", "c.gen.py")
        subprocess.run(["git", "init", "-q", "."], check=True)
        committed = ["a.py", "b.gen.py", "models/deep/net.py", "models/net.py"]
        subprocess.run(["git", "add", "-f", *committed], check=True)
        assert sorted(shown(discover(["."]))) == committed
        assert shown(discover(["models/deep"])) == ["models/deep/net.py"]

    def test_what_is_committed_is_read_in_a_project_below_the_repository_and_in_a_repository_below(self) -> None:
        write_tree(Path(), {"part/pyproject.toml": "", "part/.gitignore": "models/\n", ".gitignore": "gen/\n"})
        tree(
            "part/models/net.py", "part/models/left.py", "part/gen/a.py", "inner/models/net.py", "inner/models/left.py"
        )
        write_tree(Path(), {"inner/.gitignore": "models/\n"})
        for repository, file in ((".", "part/models/net.py"), ("inner", "models/net.py")):
            subprocess.run(["git", "init", "-q", repository], check=True)
            subprocess.run(["git", "-C", repository, "add", "-f", file], check=True)
        assert sorted(shown(discover(["part"]))) == ["part/gen/a.py", "part/models/net.py"]
        assert sorted(shown(discover(["."]))) == ["inner/models/net.py", "part/models/net.py"]

    def test_a_repositorys_configuration_starts_nothing(self) -> None:
        write_tree(Path(), {".gitignore": "models/\n"})
        tree("models/net.py")
        subprocess.run(["git", "init", "-q", "."], check=True)
        subprocess.run(["git", "add", "-f", "models/net.py"], check=True)
        write_tree(Path(), {"spy": "#!/bin/sh\ntouch started\n"})
        Path("spy").chmod(0o755)
        subprocess.run(["git", "config", "core.fsmonitor", os.path.abspath("spy")], check=True)
        assert shown(discover(["."])) == ["models/net.py"]
        assert not Path("started").exists()

    def test_rules_above_the_path_count_up_to_the_project(self) -> None:
        write_tree(Path(), {".gitignore": "b.py\n", "repo/.git/HEAD": "", "repo/.gitignore": "c.py\n"})
        tree("repo/src/a.py", "repo/src/b.py", "repo/src/c.py")
        assert shown(discover(["repo/src"])) == ["repo/src/a.py", "repo/src/b.py"]

    def test_a_named_folder_that_is_ignored_is_read(self) -> None:
        write_tree(Path(), {"pyproject.toml": "", ".gitignore": "out/\n"})
        tree("out/x/a.py", "b.py")
        assert shown(discover(["."])) == ["b.py"]
        assert shown(discover(["out"])) == ["out/x/a.py"]
        assert shown(discover(["out/x"])) == ["out/x/a.py"]


def test_exclude_wins_over_naming() -> None:
    tree("a.py", "old/b.py", "old/keep.py")
    rules = [Rules(os.path.realpath("."), ["old/*", "!old/keep.py"])]
    assert shown(discover(["."], rules)) == ["a.py", "old/keep.py"]
    assert shown(discover(["old/b.py", "a.py"], rules)) == ["a.py"]
    assert shown(discover(["old"], [Rules(os.path.realpath("."), ["old"])])) == []


class TestLinks:
    def test_loops_end(self) -> None:
        tree("a/b.py")
        os.symlink("..", "a/up")
        os.symlink(".", "a/self")
        assert shown(discover(["."])) == ["a/b.py"]

    def test_folders_are_not_followed_unless_named(self, tmp_path: Path) -> None:
        tree("real/a.py", "project/b.py")
        os.symlink("../real", "project/link")
        assert shown(discover(["project"])) == ["project/b.py"]
        assert shown(discover(["project/link"])) == ["project/link/a.py"]

    def test_a_name_of_another_kind_hides_no_program(self) -> None:
        tree("train.py")
        os.symlink("train.py", "notes.md")
        os.symlink("train.py", "all.json")
        found = discover(["."], wanted=lambda path: path.endswith((".py", ".json", ".md")))
        assert shown(found) == ["all.json", "notes.md", "train.py"]

    def test_to_nothing_is_a_failure(self) -> None:
        os.symlink("gone.py", "link.py")
        for paths in (["."], ["link.py"]):
            (failed,) = discover(paths).failures
            assert (failed.path, failed.status) == ("link.py", "failed")
            assert "symbolic link to nothing" in failed.findings[0].message


def test_pipes_in_a_folder_are_no_files() -> None:
    os.mkfifo("pipe.py")
    tree("a.py")
    assert shown(discover(["."])) == ["a.py"]


def test_a_real_folder_without_permission() -> None:
    tree("locked/a.py", "b.py")
    os.chmod("locked", 0)
    try:
        if os.access("locked", os.R_OK):  # root reads everything; test_cli_rewrite simulates the refusal
            assert shown(discover(["."])) == ["b.py", "locked/a.py"]
        else:
            found = discover(["."])
            assert [file.display for file in found.files] == ["b.py"]
            assert found.failures[0].path == "locked"
    finally:
        os.chmod("locked", 0o755)


def test_project_root(tmp_path: Path) -> None:
    tree("repo/.git/HEAD", "repo/pkg/pyproject.toml", "repo/pkg/src/a.py", "repo/other/b.py")
    assert project_root("repo/pkg/src/a.py") == str(tmp_path / "repo" / "pkg")
    assert project_root("repo/other") == str(tmp_path / "repo")
