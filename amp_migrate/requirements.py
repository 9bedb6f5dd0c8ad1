"""What a project requires, by the files that say so: requirement files, environments, setup.cfg, setup.py, pyproject.toml.

Read as text, for half of these files are templates or broken; each line that names a requirement is given as pip or conda
reads it (`torch==1.5.1`), with its place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

Kind = Literal["requirements", "environment", "pyproject", "setup.cfg", "setup.py"]

# What the emitted code needs: `torch.amp.GradScaler` and its signatures without a deprecation warning.
NEEDED = (2, 4)

_COMPARED = re.compile(r"(===?|~=|<=?|>=?|!=|\^|~)\s*v?(\d+(?:\.\d+)*)(\.\*)?")
_TORCH = re.compile(r"^(?:[\w-]+::)?(?:py)?torch(?:-gpu|-cuda)?\s*(?:\[[^\]]*\]\s*)?(?=$|[=<>!~^;@#,\s\"'])", re.I)

_INSTALL = re.compile(r"\b(?:pip3?|conda|mamba|uv|poetry)\b[^|;&`()]*?\b(?:install|add)\b(?P<what>[^|;&`()]*)", re.I)
_IMAGE = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(?P<image>\S+)", re.I)
# The images of NVIDIA are called by year and month: the first that have what is needed.
_NVIDIA = re.compile(r"nvcr\.io/nvidia/pytorch:(\d\d)\.(\d\d)\b", re.I)
_NVIDIA_NEEDED = (24, 5)
_OF_IMAGE = re.compile(r"(?:^|[/:_-])(?:py)?torch[:_-]?v?(\d\.\d+(?:\.\d+)*)(?!\d)", re.I)


class Requirement(NamedTuple):
    """One thing that is required. `line` and `column` count from 1; `text` is as it is written there."""

    line: int
    column: int
    text: str


def stated(text: str, lines: Sequence[tuple[int, str]], kind: Kind) -> Iterator[Requirement]:
    """All that the text of a file requires, a table of pyproject.toml as `name = value`; `lines` are its numbered lines."""
    if kind in ("requirements", "environment"):
        listed = (line for line in lines if kind == "requirements" or re.match(r"\s*-\s*\S", line[1]))
        yield from (_written(number, line) for number, line in listed)
    elif kind == "setup.cfg":
        yield from _in_setup_cfg(lines)
    elif kind == "pyproject":
        yield from _in_pyproject(lines)
    else:
        yield from _in_setup_py(text)


def installed(number: int, line: str) -> Iterator[Requirement]:
    """What a command installs, `pip install torch==1.4`, each with its place; `line` may be several joined ones."""
    for command in _INSTALL.finditer(line):
        for word in re.finditer(r"[^\s\"'\\]+", command["what"]):
            start = command.start("what") + word.start()
            before = line[:start]
            yield Requirement(number + before.count("\n"), start - before.rfind("\n"), word[0])


def image(number: int, line: str) -> tuple[Requirement, str] | None:
    """The image that a Dockerfile begins with, and which torch it has by its name where that is too old."""
    named = _IMAGE.match(line)
    if named is None:
        return None
    found = Requirement(number, named.start("image") + 1, named["image"])
    if month := _NVIDIA.search(found.text):
        early = (int(month[1]), int(month[2])) < _NVIDIA_NEEDED
        return (found, f"the torch of {month[1]}.{month[2]}") if early else None
    version = _OF_IMAGE.search(found.text)
    below = version is not None and excludes(f"torch=={version[1]}") is not None
    return (found, f"torch {version[1]}") if version is not None and below else None


def excludes(requirement: str) -> str | None:
    """The version that a requirement on torch holds it below what the emitted code needs; None where a torch of today
    satisfies it, or where it asks for something else."""
    named = _TORCH.match(requirement)
    if named is None:
        return None
    rest = requirement[named.end() :].split("#")[0].split(";")[0]
    if rest.strip().startswith("@"):
        return None  # a link
    conda = re.match(r"\s*=\s*(\d+(?:\.\d+)*)", rest)  # pytorch=1.5
    found = [("==", conda[1], "")] if conda else [(m[1], m[2], m[3]) for m in _COMPARED.finditer(rest)]
    for sign, version, _ in found:
        asked = tuple(int(part) for part in version.split("."))
        last = (*asked, 0)[:2]
        if sign in ("==", "===") and last < NEEDED:
            return version
        if sign in ("<", "<=") and (last < NEEDED or (sign == "<" and asked == NEEDED)):
            return version
        if sign in ("~=", "^", "~") and _kept_below(sign, asked):
            return version
    return None


def _kept_below(sign: str, asked: tuple[int, ...]) -> bool:
    """Whether a release that is compatible with one can be none that has what is needed."""
    if len(asked) > 2 and sign in ("~=", "~"):
        return asked[:2] < NEEDED  # the same minor release
    if sign == "~" and len(asked) == 2:
        return asked < NEEDED
    return asked[0] < NEEDED[0]


def _written(number: int, line: str) -> Requirement:
    column = len(line) - len(line.lstrip()) + 1
    return Requirement(number, column, re.sub(r"^-\s+", "", line.strip()).strip("\"',"))


def _in_setup_cfg(lines: Sequence[tuple[int, str]]) -> Iterator[Requirement]:
    section = key = ""
    for number, line in lines:
        if header := re.match(r"\s*\[([^\]]+)\]", line):
            section, key = header[1].strip(), ""
            continue
        value = line
        if assignment := re.match(r"([\w.-]+)\s*[=:](.*)", line):
            key, value = assignment[1].lower(), assignment[2]
        if "require" in key or section == "options.extras_require":
            yield _written(number, value)


def _in_pyproject(lines: Sequence[tuple[int, str]]) -> Iterator[Requirement]:
    table = ""
    requires = False
    for number, line in lines:
        if header := re.match(r"\s*\[\[?([^\[\]]+)\]", line):
            table, requires = header[1].strip().replace('"', ""), False
            if of := re.search(r"(?:dependencies|sources)\.([\w-]+)$", table):
                yield _written(number, line)._replace(text=of[1])
            continue
        if assignment := re.match(r"\s*[\"']?([\w.-]+)[\"']?\s*=\s*(.*)", line):
            key = assignment[1]
            if (
                re.search(r"(?:^|\.)(?:[\w-]*dependencies|sources)$", table)
                and table != "project.optional-dependencies"
            ):
                version = re.match(r"[\"']([^\"']*)[\"']|\{.*?\bversion\s*=\s*[\"']([^\"']*)[\"']", assignment[2])
                asked = (version[1] or version[2] or "") if version else ""
                exact = "==" if re.match(r"\d", asked) else ""  # Poetry's "1.5.1"
                yield _written(number, line)._replace(text=f"{key}{exact}{asked}" if version else key)
                continue
            requires = (
                "dependencies" in key
                or key == "requires"
                or table in ("project.optional-dependencies", "dependency-groups")
            )
        if requires:
            for string in re.finditer(r"\"([^\"]*)\"|'([^']*)'", line):
                yield _written(number, string[1] or string[2] or "")


def _in_setup_py(text: str) -> Iterator[Requirement]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return  # reported as a Python file that does not parse
    for node in ast.walk(tree):
        for name, value in _named_values(node):
            if re.search(r"require|dependenc|extras", name, re.I):
                for inner in ast.walk(value):
                    if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                        yield Requirement(inner.lineno, inner.col_offset + 1, inner.value)


def _named_values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.keyword) and node.arg:
        yield node.arg, node.value
    elif isinstance(node, ast.Assign):
        yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
