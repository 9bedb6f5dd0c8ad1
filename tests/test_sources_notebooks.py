from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_migrate.findings import Finding
from amp_migrate.sources.failures import SourceError
from amp_migrate.sources.files import decode
from amp_migrate.sources.notebooks import Notebook
from tests.cli_testing import fake_engine, run, run_json, write_tree


def code(*lines: str) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [], "source": list(lines)}


def text(*lines: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": list(lines)}


def notebook(*cells: dict[str, Any], indent: int | None = 1, **metadata: Any) -> str:
    return json.dumps({"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}, indent=indent)


def sources(raw: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(raw)["cells"]]


def edit(raw: str, old: str, new: str) -> str:
    parsed = Notebook.parse(raw)
    assert old in parsed.program
    return parsed.with_program(parsed.program.replace(old, new))


class TestProgram:
    def test_code_cells_in_order(self) -> None:
        raw = notebook(text("# Title"), code("import a\n", "x = 1"), code(), code("y = x\n"))
        lines = Notebook.parse(raw).program.split("\n")
        assert [line for line in lines if line and "amp-migrate" not in line] == ["import a", "x = 1", "y = x"]

    @pytest.mark.parametrize(
        "line",
        [
            "%matplotlib inline",
            "!pip install x",
            "?print",
            "print?",
            "model.fit??",
            "%timeit f(x)",
            "files = !ls",
            "x, y = %time f()",
            "    %time f()",
            "!echo a \\\n  b",
            "%%time",
            "ls -l data.txt",
            "python -m torch.distributed.launch --nproc_per_node=4 train.py --opt-level O2 /data/",
            "CUDA_VISIBLE_DEVICES=0 python3 train.py -a x",
            "pip install apex",
            "cd /content/project",
            "rm -rf x",
            "mv ../data/a.txt ./b",
        ],
    )
    def test_ipython_lines_are_masked_and_come_back(self, line: str) -> None:
        head = "if True:\n    pass\n" if line.startswith(" ") else ""
        raw = notebook(code(f"{line}\n", "x = 1") if line == "%%time" else code(f"{head}{line}\n", "x = 1"))
        parsed = Notebook.parse(raw)
        compile(parsed.program, "nb", "exec")
        assert sources(edit(raw, "x = 1", "x = 2"))[0] == f"{head}{line}\nx = 2"

    def test_python_that_looks_like_magic_is_left(self) -> None:
        raw = notebook(code("x = (a\n", "  %b)\n", "s = '''\n", "!ls\n", "'''"))
        assert "!ls" in Notebook.parse(raw).program
        assert "%b" in Notebook.parse(raw).program

    def test_cells_of_other_languages_are_left_out(self) -> None:
        raw = notebook(code("%%bash\n", "echo x"), code("%%html\n", "<b>"), code("x = 1"))
        assert "echo" not in Notebook.parse(raw).program
        assert sources(edit(raw, "x = 1", "x = 2")) == ["%%bash\necho x", "%%html\n<b>", "x = 2"]

    def test_one_magic_above_another(self) -> None:
        raw = notebook(code("%%time\n", "%%bash\n", "cd .. && ls"), code("%%time\n", "%%capture\n", "x = 1"))
        assert "cd .." not in Notebook.parse(raw).program
        assert sources(edit(raw, "x = 1", "x = 2"))[1] == "%%time\n%%capture\nx = 2"

    def test_other_kernels_have_no_program(self) -> None:
        assert Notebook.parse(notebook(code("x <- 1"), kernelspec={"language": "R", "name": "ir"})).program == ""

    @pytest.mark.parametrize("raw", ["", "{", "[]", "{}", '{"worksheets": []}', "1"])
    def test_no_notebooks(self, raw: str) -> None:
        with pytest.raises(SourceError):
            Notebook.parse(raw)


class TestWritingBack:
    @pytest.mark.parametrize("indent", [None, 0, 1, 4])
    def test_only_changed_cells_change(self, indent: int | None) -> None:
        raw = notebook(
            text("é 日本"),
            code("a = 1\n", "b = 2\n", "c = '\u00e9'"),
            code("d = 4"),
            indent=indent,
            x={"y": [1.0, 1e5]},
        )
        changed = edit(raw, "b = 2", "b = 22\nbb = 3")
        assert changed == raw.replace(
            json.dumps("b = 2\n"),
            json.dumps("b = 22\n") + _between(indent) + json.dumps("bb = 3\n"),
        )

    def test_style_of_escapes_is_kept(self) -> None:
        raw = json.dumps(json.loads(notebook(code("a = '\u00e9'\n", "b = 2"))), ensure_ascii=False)
        assert edit(raw, "b = 2", "b = 'ü'") == raw.replace("b = 2", "b = 'ü'")
        raw = notebook(code("a = '\u00e9'\n", "b = 2"))
        assert edit(raw, "b = 2", "b = 'ü'") == raw.replace("b = 2", "b = '\\u00fc'")

    def test_source_as_one_string(self) -> None:
        cell = code() | {"source": "a = 1\nb = 2"}
        raw = notebook(cell)
        assert edit(raw, "b = 2", "b = 3") == raw.replace("b = 2", "b = 3")

    def test_cell_emptied_and_filled(self) -> None:
        raw = notebook(code("import apex\n"), code("b = 2"))
        assert sources(edit(raw, "import apex\n", "")) == ["", "b = 2"]
        assert sources(edit(notebook(code(), code("x")), "x\n", "x\ny\n")) == ["", "x\ny"]

    def test_what_is_put_before_the_first_marker_goes_into_the_first_cell(self) -> None:
        raw = notebook(text("#"), code("a = 1"), code("b = 2"))
        parsed = Notebook.parse(raw)
        assert sources(parsed.with_program("import torch\n" + parsed.program)) == ["#", "import torch\na = 1", "b = 2"]

    def test_a_lost_marker_is_an_error_never_a_lost_cell(self) -> None:
        parsed = Notebook.parse(notebook(code("a = 1"), code("b = 2")))
        with pytest.raises(SourceError, match="cannot be told apart"):
            parsed.with_program("\n".join(parsed.program.split("\n")[2:]))

    @given(
        st.lists(
            st.lists(
                st.sampled_from(["x = 1\n", "\n", "%time f()\n", "# é\n", "if x:\n", "    y = 'a'\n", "!ls", "z"]),
                max_size=5,
            ),
            max_size=4,
        ),
        st.sampled_from([None, 1, 2]),
    )
    def test_unchanged_programs_and_edits_elsewhere_keep_every_byte(
        self, cells: list[list[str]], indent: int | None
    ) -> None:
        raw = notebook(*(code(*cell) for cell in cells), code("LAST"), indent=indent)
        parsed = Notebook.parse(raw)
        assert parsed.with_program(parsed.program) == raw
        assert edit(raw, "LAST", "NEXT") == raw.replace("LAST", "NEXT")


def _between(indent: int | None) -> str:
    return ", " if indent is None else ",\n" + " " * indent * 4


class TestPlaces:
    def test_findings_point_at_the_line_of_the_file(self) -> None:
        raw = notebook(text("#"), code("!echo \\\n", "  a\n", "x = 1"), code("a\n", "target"))
        parsed = Notebook.parse(raw)
        for wanted, cell, line in (("x = 1", 2, 3), ("target", 3, 2)):
            number = parsed.program.split("\n").index(wanted) + 1
            placed = parsed.place(Finding(number, 1, "AMP201", "c", "done", "as-is", "m"))
            assert wanted in raw.split("\n")[placed.line - 1]
            assert placed.message == f"cell {cell}, line {line}: m"

    @pytest.mark.parametrize(
        ("message", "placed"),
        [
            ("amp is used (lines 3, 5)", "amp is used (cell 2, line 3; cell 3, line 1)"),
            ("made at line 5", "made at cell 3, line 1"),
            ("lines 3 and 6, those", "cell 2, line 3 and cell 3, line 2, those"),
            ("the optimizer of line 6 of lib/train.py", "the optimizer of line 6 of lib/train.py"),
            ("at lib/train.py:6", "at lib/train.py:6"),
        ],
    )
    def test_lines_that_a_message_names_are_those_of_cells(self, message: str, placed: str) -> None:
        parsed = Notebook.parse(notebook(text("#"), code("!echo \\\n", "  a\n", "x = 1"), code("a\n", "target")))
        assert parsed.program.split("\n")[2:6] == ["x = 1", '"amp-migrate: cell 3"', "a", "target"]
        found = parsed.place(Finding(3, 1, "AMP102", "c", "manual", "review", message))
        assert found.message == f"cell 2, line 3: {placed}"

    def test_lines_that_findings_name_are_those_of_the_file(self, tmp_path: Path) -> None:
        raw = notebook(
            text("#", "#", "#"),
            code("from apex import amp\n"),
            code("with amp.scale_loss(loss, optimizer) as scaled_loss:\n", "    scaled_loss.backward()\n"),
            code("amp.state_dict()\n"),
        )
        (tmp_path / "nb.ipynb").write_text(raw)
        _, report = run_json("rewrite", "--check", str(tmp_path))
        root, waiting = report["files"][0]["findings"]
        assert "scale_loss" in raw.split("\n")[root["line"] - 1]
        assert waiting["message"].endswith(f"nb.ipynb:{root['line']} ({root['code']})")
        shown = run("rewrite", "--check", str(tmp_path)).stdout
        assert f"(and 1 more site of this unit: line {waiting['line']})" in shown


class TestCommands:
    @pytest.fixture(autouse=True)
    def _in_tmp(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("amp_migrate.engine.migrate", fake_engine)

    def test_rewrite(self) -> None:
        raw = notebook(text("apex"), code("%cd x\n", "OLD = 'apex'\n", "y"), code("HARD"))
        write_tree(Path(), {"nb.ipynb": raw})
        code_, report = run_json("rewrite", "nb.ipynb")
        assert code_ == 1
        assert Path("nb.ipynb").read_text() == raw.replace("OLD", "NEW")
        lines = raw.split("\n")
        assert [
            "OLD" in lines[f["line"] - 1] or "HARD" in lines[f["line"] - 1] for f in report["files"][0]["findings"]
        ] == [True, True]

    def test_diff_is_of_the_file(self) -> None:
        raw = notebook(code("OLD = 'apex'\n", "y"))
        write_tree(Path(), {"nb.ipynb": raw})
        diff = run("rewrite", "--diff", ".").stdout
        assert "-    \"OLD = 'apex'\\n\"," in diff
        assert "+    \"NEW = 'apex'\\n\"," in diff

    def test_syntax_errors_name_cell_and_line(self) -> None:
        raw = notebook(code("import apex"), code("x = 1\n", "print 'x'"))
        write_tree(Path(), {"nb.ipynb": raw})
        code_, report = run_json("rewrite", "nb.ipynb")
        assert code_ == 2
        (finding,) = report["files"][0]["findings"]
        assert finding["code"] == "AMP004"
        assert finding["message"].startswith("cell 2, line 2: Python 2 syntax: print statement")
        assert "print 'x'" in raw.split("\n")[finding["line"] - 1]

    def test_no_json(self) -> None:
        write_tree(Path(), {"nb.ipynb": "{'apex': 1}"})
        assert run("rewrite", "nb.ipynb").exit_code == 2

    def test_bytes_around_the_cells_survive(self) -> None:
        raw = (
            notebook(code("OLD = 'apex'")).replace('"metadata": {}', '"metadata" :  { }').replace("\n", "\r\n")
            + "\r\n\r\n"
        )
        assert (
            decode(raw.encode(), Path("a.ipynb"), "a.ipynb").encode(decode(raw.encode(), Path("a.ipynb"), "").text)
            == raw.encode()
        )
        write_tree(Path(), {"nb.ipynb": raw})
        assert run("rewrite", ".").exit_code == 0
        assert Path("nb.ipynb").read_bytes() == raw.replace("OLD", "NEW").encode()
