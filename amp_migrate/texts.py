"""The files beside the code that can hold leftovers of Apex, by their names, and their lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Literal

Kind = Literal["requirements", "environment", "pyproject", "setup.cfg", "setup.py", "commands", "prose", "gitmodules"]

COMMAND_SUFFIXES = (
    ".sh",
    ".bash",
    ".zsh",
    ".slurm",
    ".sbatch",
    ".pbs",
    ".bat",
    ".ps1",
    ".yml",
    ".yaml",
    ".mk",
    ".def",
)
COMMAND_NAMES = (
    "dockerfile",
    "containerfile",
    "makefile",
    "jenkinsfile",
    "tox.ini",
    "noxfile",
    "justfile",
    "procfile",
)
PROSE_SUFFIXES = (".md", ".rst", ".markdown", ".mdx")
# What was, not what is.
HISTORY = ("changelog", "changes", "history", "news", "release_notes", "releases")
PROSE_NAMES = ("readme", "install", "contributing")
# Characters of a line that are read. What is longer is data, and what is a command is looked for from each of its words.
LONGEST = 10_000


def kind_of(path: str) -> Kind | None:
    """What sort of leftovers a file can hold, by its name; None for files that are not read."""
    folder, name = os.path.split(path.lower())
    if name.endswith("~"):
        return None  # what an editor kept of an earlier text
    if name.endswith(".py"):
        return "setup.py" if name == "setup.py" else None
    if name == "setup.cfg":
        return "setup.cfg"
    if name == "pyproject.toml":
        return "pyproject"
    if name == ".gitmodules":
        return "gitmodules"
    if name.endswith((".txt", ".in", ".pip")) and ("requirement" in name or os.path.basename(folder) == "requirements"):
        return "requirements"
    if name.endswith((".yml", ".yaml")) and ("environment" in name or name.startswith(("conda", "env", "meta."))):
        return "environment"
    if name.endswith(COMMAND_SUFFIXES) or name.startswith(COMMAND_NAMES) or name.endswith(".dockerfile"):
        return "commands"
    stem = name.rsplit(".", 1)[0]
    if stem in HISTORY:
        return None
    if name.endswith(PROSE_SUFFIXES) or (stem in PROSE_NAMES and (name == stem or name.endswith(".txt"))):
        return "prose"
    return None


def lines_of(text: str, joined: bool) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; continued ones joined under the number of the first when `joined`."""
    return ((number, line[:LONGEST]) for number, line in _numbered(text, joined))


def _numbered(text: str, joined: bool) -> Iterator[tuple[int, str]]:
    pending, first = "", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        if joined and line.endswith("\\"):
            pending, first = pending + line[:-1] + "\n", first or number
            continue
        yield first or number, pending + line
        pending, first = "", 0
    if pending:
        yield first, pending
