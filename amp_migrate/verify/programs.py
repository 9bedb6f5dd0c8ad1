"""From what the user named to two programs in folders of their own: nothing in the user's tree is ever written."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

from amp_migrate.verify.case import Program, VerifyError
from amp_migrate.verify.interpreter import command
from amp_migrate.verify.trees import CODE, is_inside, lay_out


@dataclass(frozen=True)
class Pair:
    """The two programs, each in a tree of its own, and what the rewriter said when it made the second."""

    original: Program
    migrated: Program
    notes: tuple[str, ...] = ()


def prepare(
    script: Path, work: Path, *, migrated: Path | None = None, original_rev: str | None = None, cwd: Path | None = None,
    dtype: str | None = None, rewritten: Path | None = None,
) -> Pair:  # fmt: skip
    """Lay out both programs under `work`.

    `migrated` names the migrated script or tree; without it the project is rewritten in a copy, for the half format
    `dtype` where one is given; with `original_rev` the working tree is the migrated program and the original is taken
    from git; `rewritten` is a copy of the project that has been rewritten already. A notebook runs as its code cells in
    order, in its own folder as Jupyter would.
    Raises VerifyError when a file is missing, the rewrite fails, or git does not know the revision.
    """
    pair = _prepare(script, work, migrated, original_rev, cwd, dtype, rewritten)
    if script.suffix != ".ipynb":
        return pair
    return replace(pair, original=_export(pair.original), migrated=_export(pair.migrated))


def _prepare(
    script: Path,
    work: Path,
    migrated: Path | None,
    original_rev: str | None,
    cwd: Path | None,
    dtype: str | None,
    rewritten: Path | None,
) -> Pair:
    if not script.is_file():
        raise VerifyError(f"{script}: no such file")
    script, cwd = script.resolve(), (cwd or Path.cwd()).resolve()
    root = project_root(script)
    if not is_inside(cwd, root):
        root, cwd = (cwd, cwd) if is_inside(script, cwd) else (root, script.parent)
    original = lay_out(root, work / "original-tree")
    first = _program(original, root, script.relative_to(root), cwd.relative_to(root))
    if original_rev is None and migrated is not None:
        return Pair(first, _named(script, root, cwd, migrated, work))
    tree = lay_out(rewritten or root, work / "migrated-tree")
    second = _program(tree, root, script.relative_to(root), cwd.relative_to(root))
    if rewritten is not None:
        return Pair(first, second)
    if original_rev is None:
        return Pair(first, second, rewrite(tree, script.relative_to(root), dtype))
    _take_revision(root, original_rev, original)
    if not first.script.is_file():
        raise VerifyError(f"{script.relative_to(root)} does not exist in revision {original_rev}")
    return Pair(first, second)


def prepare_project(root: Path, work: Path, *, original_rev: str | None = None, dtype: str | None = None) -> Pair:
    """Lay out a whole project twice, as `prepare` does for a script of it: no script is named, so nothing can be run."""
    first = _program(lay_out(root, work / "original-tree"), root, Path("."), Path("."))
    tree = lay_out(root, work / "migrated-tree")
    second = _program(tree, root, Path("."), Path("."))
    if original_rev is None:
        return Pair(first, second, rewrite(tree, Path("."), dtype))
    _take_revision(root, original_rev, work / "original-tree")
    return Pair(first, second)


def _program(tree: Path, origin: Path, script: Path, cwd: Path) -> Program:
    return Program(tree / script, tree / cwd, tree, origin)


def _export(program: Program) -> Program:
    """The code cells of a notebook as a script beside it; magics and shell lines are left out."""
    from amp_migrate.sources.failures import SourceError
    from amp_migrate.sources.notebooks import Notebook

    try:
        text = Notebook.parse(program.script.read_text("utf-8")).program
    except (SourceError, UnicodeDecodeError) as error:
        raise VerifyError(f"{program.script.name}: {error}") from error
    script = program.script.with_name(f"{program.script.name}.py")
    script.write_text(text, "utf-8")
    return replace(program, script=script, cwd=script.parent)


def project_root(script: Path) -> Path:
    """The nearest folder above with `.git` or `pyproject.toml`, else the script's own."""
    for folder in script.parents:
        if (folder / ".git").exists() or (folder / "pyproject.toml").exists():
            return folder
    return script.parent


def tree_of(program: Program) -> Path:
    """The folder the program was laid out in."""
    return program.tree or program.cwd


def changed_files(pair: Pair) -> list[tuple[Path | None, Path | None]]:
    """The Python files in which the two programs differ; None where a side has none of that name."""
    roots = [tree_of(program) for program in (pair.original, pair.migrated)]
    if pair.original.script.relative_to(roots[0]) != pair.migrated.script.relative_to(roots[1]):
        files = [(pair.original.script, pair.migrated.script)]
    else:
        names = sorted({p.relative_to(root) for root in roots for p in root.rglob("*.py") if not p.is_symlink()})
        files = [(roots[0] / name, roots[1] / name) for name in names]
    there = [(before if before.is_file() else None, after if after.is_file() else None) for before, after in files]
    return [
        (before, after) for before, after in there
        if before is None or after is None or before.read_bytes() != after.read_bytes()
    ]  # fmt: skip


def refuse_the_same(pair: Pair, *, revision: str | None, rewritten: bool) -> None:
    """Raises VerifyError when both programs are the same: whatever they do, it proves nothing."""
    if not _same(pair):
        return
    if revision is not None:
        raise VerifyError(
            f"nothing to compare: the program is the same in {revision} and in the working tree; name the commit before "
            "the migration"
        )
    if not rewritten:
        raise VerifyError("nothing to compare: the program and its migration are the same")
    if pair.notes:
        left = "; ".join(pair.notes[:3]) + ("; ..." if len(pair.notes) > 3 else "")
        raise VerifyError(f"nothing to compare: the rewriter leaves everything to a person: {left}")
    raise VerifyError(
        "nothing to compare: there is nothing to migrate. If the program has been migrated already, name the commit "
        "before that: --original-rev REV"
    )


def _same(pair: Pair) -> bool:
    """Whether every file that a program may be made of is the same on both sides."""
    one, other = pair.original, pair.migrated
    if one.tree is None or other.tree is None:
        return False
    if one.script.relative_to(one.tree) != other.script.relative_to(other.tree):
        return one.script.read_bytes() == other.script.read_bytes()
    places = [_code(tree) for tree in (one.tree, other.tree)]
    return places[0].keys() == places[1].keys() and all(
        place.read_bytes() == places[1][name].read_bytes() for name, place in places[0].items()
    )


def _code(tree: Path) -> dict[Path, Path]:
    files = (p for p in tree.rglob("*") if p.suffix in (*CODE, ".json") and p.is_file() and not p.is_symlink())
    return {file.relative_to(tree): file for file in files}


def rewrite(tree: Path, script: Path, dtype: str | None = None) -> tuple[str, ...]:
    """Run `amp-migrate rewrite` on a tree; returns what it left to a person, as sentences.

    Files that do not parse stay as they are and are named; `script` (relative to the tree) must parse.
    """
    wanted = ["--dtype", dtype] if dtype else []
    done = subprocess.run(
        [*command("amp_migrate.cli:main"), "rewrite", "--format", "json", *wanted, "."],
        cwd=tree,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    try:
        files = json.loads(done.stdout)["files"]
    except (json.JSONDecodeError, KeyError) as error:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise VerifyError(f"the project cannot be rewritten: {last[0]}") from error
    for file in files:
        if file["status"] == "failed" and Path(file["path"]) == script:
            raise VerifyError(f"{script} cannot be rewritten: {file['findings'][0]['message']}")
    return tuple(
        f"{file['path']}:{finding['line']} {finding['code']} {finding['message']}"
        for file in files
        for finding in file["findings"]
        if finding["status"] == "manual" or file["status"] == "failed"
    )


def _named(script: Path, root: Path, cwd: Path, migrated: Path, work: Path) -> Program:
    if not migrated.exists():
        raise VerifyError(f"{migrated}: no such file or folder")
    migrated = migrated.resolve()
    if migrated.is_file():
        tree = lay_out(root, work / "migrated-tree")
        if is_inside(migrated, root):  # beside the original, with imports of its own
            return _program(tree, root, migrated.relative_to(root), cwd.relative_to(root))
        shutil.copyfile(migrated, tree / script.relative_to(root))
        return _program(tree, root, script.relative_to(root), cwd.relative_to(root))
    tree = lay_out(migrated, work / "migrated-tree")
    for base in (root, script.parent):
        place = tree / script.relative_to(base)
        if place.is_file():
            folder = tree / cwd.relative_to(base) if is_inside(cwd, base) else tree
            return Program(place, folder if folder.is_dir() else tree, tree, migrated)
    raise VerifyError(f"{migrated} holds no {script.relative_to(root)}")


def _take_revision(root: Path, revision: str, target: Path) -> None:
    """Put the tracked files of a revision over a copy of the tree."""
    if revision.startswith("-"):  # git would take it for an option, and some of those write files
        raise VerifyError(f"{revision} is no revision")
    top = _git(root, "rev-parse", "--show-toplevel").decode().strip()
    prefix = root.relative_to(Path(top).resolve()).as_posix()
    tree = revision if prefix == "." else f"{revision}:{prefix}"
    archive = _git(Path(top), "archive", "--format=tar", tree)
    for name in _git(root, "ls-files", "-z").split(b"\0"):
        tracked = target / os.fsdecode(name)
        if name and (tracked.is_file() or tracked.is_symlink()):
            tracked.unlink()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(target, filter="data")
        else:  # before 3.10.12 and 3.11.4
            tar.extractall(target, [member for member in tar if _stays_inside(target, member)])


def _stays_inside(target: Path, member: tarfile.TarInfo) -> bool:
    """Whether a file of an archive, and what a link of it points at, lies below the folder that it is unpacked into."""
    path = target / member.name
    link = path.parent if member.issym() else target  # what a link is written from
    places = [path, link / member.linkname] if member.issym() or member.islnk() else [path]
    return all(place.resolve().is_relative_to(target.resolve()) for place in places)


def _git(folder: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise VerifyError("--original-rev needs git") from error
    if done.returncode:
        raise VerifyError(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
