"""Reruns under noise depend on the original alone: their records are kept between verifications of one program."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from amp_migrate.verify.recording.spec import RunSpec

KEPT = 200  # records; the oldest go first
PACKAGE = Path(__file__).parents[1]
_PLACES = (
    "script",
    "cwd",
    "out",
    "tree",
    "origin",
    "keep_tree",
    "watch",
)  # where a run took place says nothing about what it computed


class Cache:
    """Records of finished runs under a folder, by everything they depend on: the tree, the call, torch, this tool."""

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
        parts = (self._trees[tree], json.dumps(call, sort_keys=True), _tool(), os.environ.get("OMP_NUM_THREADS", ""))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def fetch(self, key: str, spec: RunSpec) -> bool:
        """Put a kept record where the run would have written it; False when there is none."""
        kept = self.folder / f"{key}.jsonl"
        if not kept.is_file():
            return False
        Path(spec.out).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept, Path(spec.out) / "record.jsonl")
        kept.touch()
        return True

    def keep(self, key: str, spec: RunSpec) -> None:
        """Keep the record of a run that ended well. A cache that cannot be written is no error."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as stream:
                stream.write((Path(spec.out) / "record.jsonl").read_bytes())
            os.replace(stream.name, self.folder / f"{key}.jsonl")
            records = sorted(self.folder.glob("*.jsonl"), key=lambda p: p.stat().st_mtime)
            for old in records[:-KEPT]:
                old.unlink()
        except OSError:
            return


def _digest(tree: Path) -> str:
    """Of what was copied by content, of what was linked for its size by size and time."""
    digest = hashlib.sha256()
    for file in _files(tree):
        digest.update(str(file.relative_to(tree)).encode() + b"\0")
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
