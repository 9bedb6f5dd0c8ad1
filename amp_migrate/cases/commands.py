"""How people call the scripts of a project: the commands in its READMEs, shell scripts, Makefiles and CI files."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from amp_migrate.verify.case import FILL_IN

_READ = (".md", ".rst", ".txt", ".sh", ".bash", ".yml", ".yaml", ".slurm", ".sbatch")
_NAMED = ("Makefile", "README", "run", "train")
LARGEST = 1 << 20  # bytes of a file that is read
_LAUNCHERS = ("torchrun", "torch.distributed.launch", "torch.distributed.run", "apex.parallel.multiproc")
# Options of those that take a value.
_WITH_VALUE = ("--nproc_per_node", "--nproc-per-node", "--nnodes", "--node_rank", "--node-rank", "--master_addr",
               "--master-addr", "--master_port", "--master-port", "--rdzv_backend", "--rdzv_endpoint", "--rdzv_id")  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A call of `script` (relative to the project) as `source` (a file and line) has it."""

    script: str
    argv: tuple[str, ...]
    source: str
    distributed: bool = False
    cwd: str = "."  # the folder in which it is called, relative to the project


def find(root: Path, scripts: set[str]) -> list[Command]:
    """The commands that call one of `scripts`; values that only their reader can know are marked to be filled in."""
    found = []
    for file in sorted(root.rglob("*")):
        named = file.suffix in _READ or (file.name.startswith(_NAMED) and file.suffix == "")
        if not named or not file.is_file() or file.is_symlink() or file.stat().st_size > LARGEST:
            continue
        text = file.read_text("utf-8", "replace")
        if "python" not in text and "torchrun" not in text:
            continue
        where = file.relative_to(root)
        for line, words, shell in _calls(text):
            command = _command(words, shell, where, line, scripts)
            if command is not None:
                found.append(command)
    return list({(c.script, c.argv): c for c in reversed(found)}.values())[::-1]


def _calls(text: str) -> Iterator[tuple[int, list[str], dict[str, str]]]:
    """Line, words and the shell's variables so far, of every line that runs Python."""
    variables: dict[str, str] = {}
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        start, line = number + 1, lines[number].strip()
        while line.endswith("\\") and number + 1 < len(lines):
            number += 1
            line = f"{line[:-1]} {lines[number].strip()}"
        number += 1
        line = line.strip("`").lstrip("$> ").removeprefix("- ").removeprefix("run: ").lstrip()
        if set_to := re.fullmatch(r"(?:export\s+)?(\w+)=(\S*|\"[^\"]*\"|'[^']*')\s*(?:#.*)?", line):
            variables[set_to[1]] = set_to[2].strip("\"'")
        elif re.search(r"(^|[\s/])(python[\d.]*|torchrun)\s", line):
            parts = re.split(r"(?<!\\)(?:\s&&\s|\s\|\s|\s;|;\s|\s[12&]?>|\s&$)", line)
            called = next((part for part in parts if re.search(r"(^|[\s/])(python[\d.]*|torchrun)\s", part)), "")
            try:
                yield start, shlex.split(called.strip("` "), comments=True), variables
            except ValueError:
                continue


def _command(words: list[str], shell: dict[str, str], file: Path, line: int, scripts: set[str]) -> Command | None:
    while words and not re.search(r"(python[\d.]*|torchrun)$", words[0]):
        words = words[1:]
    distributed = bool(words) and words[0].endswith("torchrun")
    words = words[1:]
    while words and words[0].startswith("-"):
        word, *words = words
        if word == "-m" and words:
            if words[0] not in _LAUNCHERS:
                words = [words[0].replace(".", "/") + ".py", *words[1:]]
                break
            distributed, words = True, words[1:]
        elif word in _WITH_VALUE and words:
            words = words[1:]
    if not words or (script := _script(words[0], file, scripts)) is None:
        return None
    here = file.parent.as_posix()
    cwd = here if script != _plain(words[0]) and script == _plain(f"{here}/{words[0]}") else "."
    argv = [_filled(word, shell) for word in words[1:] if word not in ("$@", "$*", "${@}", "...", "\\")]
    return Command(script, tuple(word for word in argv if word), f"{file.as_posix()}:{line}", distributed, cwd)


def _script(word: str, file: Path, scripts: set[str]) -> str | None:
    """The script a word names: from the project's folder, or from that of the file in which it stands."""
    for name in (_plain(word), _plain(f"{file.parent.as_posix()}/{word}")):
        if name in scripts:
            return name
    same = [script for script in scripts if Path(script).name == word]
    return same[0] if len(same) == 1 else None


def _plain(path: str) -> str:
    return posixpath.normpath(path)


def _filled(word: str, shell: dict[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        plain, _, otherwise = name.partition(":-")
        return shell.get(plain, otherwise) or f"{FILL_IN}{plain.lower()}"

    for _ in range(3):  # a variable may hold another
        word = re.sub(r"\$\{([^}]*)\}|\$(\w+)", value, word)
    if FILL_IN in word:
        option, equals, _ = word.partition("=") if word.startswith("-") else ("", "", "")
        return f"{option}{equals}{word[word.index(FILL_IN) :]}" if equals else word[word.index(FILL_IN) :]
    if word.startswith("~/"):  # no shell will say whose home it is
        home = os.path.expanduser(word)
        return home if os.path.exists(home) else FILL_IN + posixpath.basename(word.rstrip("/"))
    if re.fullmatch(r"<.*>|\[.*\]|\{.*\}|.*(path/to|/your/|YOUR_|\.\.\.).*|[A-Z_]*(PATH|DIR|FILE)[A-Z_]*", word):
        return FILL_IN + (re.sub(r"\W+", "_", word).strip("_").lower() or "value")
    return word
