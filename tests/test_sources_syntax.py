from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from amp_migrate.sources.files import SourceFile
from amp_migrate.sources.ignores import ignored_lines, is_ignored
from amp_migrate.sources.project import mentions
from amp_migrate.sources.syntax import parse_error, parse_error_after


def error(text: str) -> tuple[str, int, str] | None:
    finding = parse_error(SourceFile(Path("x.py"), "x.py", text))
    return None if finding is None else (finding.code, finding.line, finding.message)


@pytest.mark.parametrize(
    "text",
    ["", "\n", "x = 1", "\x0c\nx = 1\r\n", "x = '\\d'\n", "if x is 1: pass\n", "async def f():\n    await g()\n"],
)
def test_what_parses_says_nothing(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert error(text) is None


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("print 'x'", "print statement"),
        ("print x, y", "print statement"),
        ("raise ValueError, 'x'", "raise statement"),
        ("exec 'x = 1'", "exec statement"),
        ("if a <> b: pass", "<> operator"),
        ("x = `y`", "backticks"),
        ("x = 0777", "octal"),
        ("x = 10L", "long"),
        ("x = ur'a'", "ur string"),
    ],
)
def test_python_2(line: str, name: str) -> None:
    found = error(f"import os\n{line}\n")
    assert found is not None
    assert found[:2] == ("AMP004", 2)
    assert name in found[2]
    assert found[2].endswith("line 2")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import apex\n<<<<<<< HEAD\nx = 1\n=======\nx = 2\n>>>>>>> other\n", 2),
        ("x = 1\n=======\nx = 2\n", 2),
        ("x = 1\n>>>>>>> 5f2a\n", 2),
    ],
)
def test_markers_of_a_merge(text: str, line: int) -> None:
    found = error(text)
    assert found == ("AMP003", line, f"does not parse: a merge left its marker, line {line}")


@pytest.mark.parametrize(
    "line", ["find data -name '*.png' -exec mv {} train \\;", "cd ../data", "pip install -r requirements.txt", "ls -l"]
)
def test_a_command_for_a_shell_is_no_python_2(line: str) -> None:
    said = "does not parse: a command for a shell (a notebook has ! before it), line 2"
    assert error(f"import os\n{line}\n") == (("AMP003", 2, said) if line != "ls -l" else None)


@pytest.mark.parametrize("line", ["find x = 1", "cat in dogs and 1 x", "run -exec mv", "export and x y"])
def test_what_is_none_is_called_neither(line: str) -> None:
    found = error(f"import os\n{line}\n")
    assert found is not None
    assert "shell" not in found[2]
    assert "Python 2" not in found[2]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = (\n", 1),
        ("def f(:\n", 1),
        ("x = 1\n  y = 2\n", 2),
        ("print('a' 1)\n", 1),
        ("'''\nabc\n", 1),
        ("x = 1 +\n", 1),
    ],
)
def test_other_errors(text: str, line: int) -> None:
    found = error(text)
    assert found is not None
    assert found[:2] == ("AMP003", line)


@pytest.mark.parametrize(
    "line",
    ["     x = `y`", "  print x", "\u00a0print('`a` and `b`', x)", "x = 'a `b` c' 1", "f(1 2)  # <> and 0777"],
)
def test_what_stands_in_the_line_is_not_why(line: str) -> None:
    found = error(f"import os\nif os:\n    pass\nelse:\n    pass\n{line}\n")
    assert found is not None
    assert found[:2] == ("AMP003", 6)


def test_nesting_beyond_the_parser() -> None:
    found = error("x = " + "(" * 100_000)
    assert found is not None
    assert found[0] == "AMP003"
    found = error("x = " + "-" * 200_000 + "1\n")
    assert found is None or found[0] == "AMP003"


class TestIgnores:
    def test_codes_and_none(self) -> None:
        text = "a = 1\nb = 2  # amp-migrate: ignore[AMP201, AMP3]\nc = 3  # amp-migrate: ignore\n"
        assert ignored_lines(text) == {2: {"AMP201", "AMP3"}, 3: None}
        assert is_ignored(ignored_lines(text), 2, "AMP301")
        assert not is_ignored(ignored_lines(text), 2, "AMP401")
        assert is_ignored(ignored_lines(text), 3, "AMP401")
        assert not is_ignored(ignored_lines(text), 1, "AMP401")

    def test_counts_for_the_whole_logical_line(self) -> None:
        text = "model, optimizer = amp.initialize(\n    model,\n    optimizer,  # amp-migrate: ignore[AMP1]\n)\nx = 1\n"
        assert ignored_lines(text) == {line: {"AMP1"} for line in (1, 2, 3, 4)}

    def test_header_of_a_block_but_not_its_body(self) -> None:
        text = "if x:\n    with f() as g:  # amp-migrate: ignore\n        g.backward()\n"
        assert ignored_lines(text) == {2: None}

    def test_two_comments_in_one_statement_add_up(self) -> None:
        text = "f(\n    a,  # amp-migrate: ignore[AMP1]\n    b,  # amp-migrate: ignore[AMP2]\n)\n"
        assert ignored_lines(text)[2] == {"AMP1", "AMP2"}

    def test_other_comments_and_strings_are_neither(self) -> None:
        assert ignored_lines("x = '# amp-migrate: ignore'\n") == {}
        assert ignored_lines("x = 1  # amp-migrate: ignored later\n") == {}
        assert ignored_lines("x = 1  # amp-migrate ignore\n") == {}

    def test_beside_other_tools(self) -> None:
        assert ignored_lines("x = 1  # noqa: E501  # amp-migrate: ignore[AMP9]\r\n") == {1: {"AMP9"}}

    def test_a_line_of_its_own_counts_for_itself(self) -> None:
        assert ignored_lines("# amp-migrate: ignore\nx = 1\n") == {1: None}

    def test_without_a_final_newline_and_unparsable(self) -> None:
        assert ignored_lines("x = 1  # amp-migrate: ignore") == {1: None}
        assert ignored_lines("x = (  # amp-migrate: ignore\n") == {}


@pytest.mark.parametrize(
    "line",
    [
        b"from apex import amp",
        b"from torch.cpu import amp",
        b"clip(amp.master_params(optimizer))",
        b"Trainer(amp_backend='apex')",
        b"TrainingArguments(half_precision_backend='x', fp16_backend='y')",
        b"torch.cuda.amp.autocast()",
        b"from torch.cuda import amp",
        b"with self.amp.scale_loss(loss, optimizer) as scaled:",
        b"Trainer(amp_level='O2')",
        b"TrainingArguments(fp16_opt_level='O1')",
        b"plugins = [ApexMixedPrecisionPlugin()]",
        b"engine = dl.APEXEngine()",
        b"dict(type='DistOptimizerHook')",
        b'config = {"amp": {"enabled": True}}',
    ],
)
def test_mentions(line: bytes) -> None:
    assert mentions(b"import torch\n" + line)
    assert not mentions(b"import torch\nexample = torch.amp.autocast('cuda')\n")


BEFORE = "import a\n\n\ndef f():\n    return 1\n\n\ndef g():\n    return 2\n\n\ndef h():\n    return 3\n"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("return 2", "return 22", None),
        ("def g():\n    return 2\n\n\n", "", None),
        ("    return 2\n", "", 11),
        ("import a\n", "", None),
        ("return 3\n", "return 3\n\n\nx = 1\n", None),
        ("", "", None),
        ("return 2", "return (2", 9),
        ("import a", "import", 1),
        ("return 3\n", "return 3\n  x\n", 14),
        ("return 2\n", 'return """\n', 9),
    ],
)
def test_what_changed_in_a_program_that_parses_does_too(old: str, new: str, line: int | None) -> None:
    finding = parse_error_after(SourceFile(Path("x.py"), "x.py", BEFORE), BEFORE.replace(old, new) if old else BEFORE)
    assert (finding and finding.line) == line


def test_only_the_definitions_that_changed_are_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("symtable.symtable", lambda text, *_: asked.append(text))
    parse_error_after(SourceFile(Path("x.py"), "x.py", BEFORE), BEFORE.replace("return 2", "return 22"))
    assert asked == ["def g():\n    return 22\n\n\n"]
