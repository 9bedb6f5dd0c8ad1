"""Reruns under noise depend on the original alone: their records are kept between verifications of one program."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from amp_migrate.verify.recording.guard import FILE, told_of
from amp_migrate.verify.recording.spec import RunSpec

KEPT = 200  # records; the oldest go first
PACKAGE = Path(__file__).parents[1]
FILES = 50_000  # a run that read more is not kept: looking at all of them again would take as long
# Variables of the session in which the tool is called, not of the programs.
_VOLATILE = re.compile(
    r"_|PWD|OLDPWD|SHLVL|TERM.*|COLUMNS|LINES|LS_COLORS|PS[124]|PROMPT.*|TMUX.*|STY|WINDOWID|DISPLAY|WAYLAND_DISPLAY"
    r"|SSH_.*|XDG_(SESSION|RUNTIME|CACHE|VTNR|SEAT).*|DBUS_.*|GPG_.*|VSCODE_.*|COLORTERM|TMPDIR|PYTEST_.*|INVOCATION_ID"
    r"|JOURNAL_STREAM|(AMP_MIGRATE|AMP-MIGRATE)_.*"
)
# Where a run took place says nothing about what it computed.
_PLACES = ("script", "cwd", "out", "tree", "origin", "called_from", "keep_tree", "watch")


class Cache:
    """Records of finished runs under a folder, by everything they depend on: the tree, the call, the environment, torch, this tool.

    What a run read outside the tree is looked at again when its record is asked for.
    """

    def __init__(self, folder: Path | None = None) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self.folder = folder or Path(home) / "amp-migrate" / "verify"
        self._trees: dict[Path, str] = {}

    def key(self, spec: RunSpec, tree: Path) -> str:
        """The name of the run of `spec` on the program laid out in `tree`."""
        if tree not in self._trees:
            self._trees[tree] = _digest(tree)
        call = {k: v for k, v in asdict(spec).items() if k not in _PLACES}
        call["script"] = str(Path(spec.script).relative_to(tree))
        call["cwd"] = str(Path(spec.cwd).relative_to(tree))
        environment = {name: value for name, value in os.environ.items() if not _VOLATILE.fullmatch(name)}
        parts = (self._trees[tree], json.dumps([call, environment, os.cpu_count()], sort_keys=True), _tool())
        return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()

    def fetch(self, key: str, spec: RunSpec) -> bool:
        """Put a kept record where the run would have written it; False when there is none that still holds.

        One that is damaged, or for which a file that the run had read has changed since, is removed.
        """
        kept = self.folder / f"{key}.jsonl"
        try:
            head, _, record = kept.read_bytes().partition(b"\n")
            said = json.loads(head)
            holds = said["sha256"] == hashlib.sha256(record).hexdigest() and all(
                _stamp(path) == stamp for path, stamp in said["read"].items()
            )
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            holds = False
        if not holds:
            with contextlib.suppress(OSError):
                kept.unlink()
            return False
        Path(spec.out).mkdir(parents=True, exist_ok=True)
        (Path(spec.out) / "record.jsonl").write_bytes(record)
        with contextlib.suppress(OSError):
            kept.touch()
        return True

    def keep(self, key: str, spec: RunSpec) -> None:
        """Keep the record of a run that ended well. A cache that cannot be written is no error."""
        read = _read_by(spec)
        if len(read) > FILES:
            return
        try:
            record = (Path(spec.out) / "record.jsonl").read_bytes()
            said = {"sha256": hashlib.sha256(record).hexdigest(), "read": read}
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as stream:
                stream.write(json.dumps(said).encode() + b"\n" + record)
            os.replace(stream.name, self.folder / f"{key}.jsonl")
            records = sorted(self.folder.glob("*.jsonl"), key=lambda p: p.stat().st_mtime)
            for old in records[:-KEPT]:
                old.unlink()
        except OSError:
            return


def _read_by(spec: RunSpec) -> dict[str, list[int]]:
    """What a run read outside its copy and its own folder, as it is now."""
    work = [spec.home.absolute().parent, *([Path(spec.tree).parent] if spec.tree else [])]
    own = (*(f"{folder}{os.sep}" for folder in work), "/proc/", "/dev/", "/sys/")
    return {
        path: _stamp(path) for what, path in told_of(Path(spec.out) / FILE) if what == "R" and not path.startswith(own)
    }


def _stamp(path: str) -> list[int]:
    """Size and time; -1 for what is not there."""
    try:
        state = os.stat(path)
    except OSError:
        return [-1, -1]
    return [0 if os.path.isdir(path) else state.st_size, state.st_mtime_ns]


def _digest(tree: Path) -> str:
    """Of what was copied by content, of what was linked for its size by size and time."""
    digest = hashlib.sha256()
    for file in _files(tree):
        digest.update(os.fsencode(file.relative_to(tree)) + b"\0")
        if not file.is_symlink():
            digest.update(file.read_bytes())
        elif file.exists():
            state = file.stat()
            digest.update(f"{state.st_size} {state.st_mtime_ns}".encode())
    return digest.hexdigest()


def _files(tree: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(tree):
        folders.sort()
        yield from (
            Path(folder) / name for name in sorted([*names, *(f for f in folders if (Path(folder) / f).is_symlink())])
        )


def _tool() -> str:
    """The parts of this package that decide what a run records, and the torch they run on."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "?"
    digest = hashlib.sha256(torch.encode())
    for part in ("shim", "verify/recording"):
        for file in sorted((PACKAGE / part).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
