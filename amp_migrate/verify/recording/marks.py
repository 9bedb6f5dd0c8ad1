"""Which of the changed statements run: each of them is compiled with a mark before it, in memory.

The files stay as they are, and so do line numbers, tracebacks and what `inspect` and TorchScript read. A mark sets one
byte of a file mapped into memory: some 50 ns each, nothing to write at the end, however the process ends, and
processes forked by the program (data loaders) share it. Works on every Python, other than `sys.monitoring`; tracing
would slow down what surrounds the statements as well.
"""

from __future__ import annotations

import ast
import builtins
import json
import mmap
import os
import runpy
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from amp_migrate.verify.recording.spec import RunSpec

NAME = "__amp_migrate_ran__"
Spot = tuple[int, int]  # line and column at which a statement begins


def install(spec: RunSpec) -> None:
    """From here on, modules that `spec.watch` names are compiled with marks. Nothing happens without it."""
    if spec.watch is None:
        return
    wanted = json.loads(Path(spec.watch).read_text())
    root = _root(Path(spec.script), wanted["script"])
    files: dict[str, dict[Spot, int]] = {}
    numbers = 0
    for name, spots in wanted["files"].items():
        files[os.path.realpath(root / name)] = {(line, column): numbers + i for i, (line, column) in enumerate(spots)}
        numbers += len(spots)
    if not numbers:
        return
    setattr(builtins, NAME, _marker(Path(spec.out) / f"ran-{spec.side}", numbers))
    _watch_loading(files)


def marked(source: bytes, path: str, spots: dict[Spot, int]) -> CodeType:
    """Compile `source` with a mark before each statement that begins at one of `spots`. Raises SyntaxError."""
    tree = ast.parse(source, path)
    for node in list(ast.walk(tree)):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, field, [s for statement in block for s in _with_mark(statement, spots)])
    return compile(tree, path, "exec", dont_inherit=True)


def _with_mark(statement: ast.stmt, spots: dict[Spot, int]) -> list[ast.stmt]:
    number = spots.get((statement.lineno, statement.col_offset))
    if number is None:
        return [statement]
    call = ast.Call(ast.Name(NAME, ast.Load()), [ast.Constant(number)], [])
    mark = ast.copy_location(ast.Expr(call), statement)
    return [ast.fix_missing_locations(mark), statement]


def _root(script: Path, relative: str) -> Path:
    """The folder the program was laid out in, wherever this run has its copy."""
    return script.parents[len(Path(relative).parts) - 1]


def _marker(file: Path, size: int) -> Callable[[int], None]:
    with file.open("wb+") as stream:
        stream.truncate(size)
        ran = mmap.mmap(stream.fileno(), size)

    def mark(number: int) -> None:
        ran[number] = 1

    try:  # a compiled forward keeps its mark and stays one graph
        import torch._dynamo.config as dynamo

        dynamo.reorderable_logging_functions.add(mark)
    except (ImportError, AttributeError):
        pass
    return mark


def _watch_loading(files: dict[str, dict[Spot, int]]) -> None:
    names = {os.path.basename(path) for path in files}

    def spots_of(path: Any) -> dict[Spot, int] | None:
        path = os.fsdecode(path)
        return files.get(os.path.realpath(path)) if os.path.basename(path) in names else None

    def compiled(path: Any) -> CodeType | None:
        spots = spots_of(path)
        return None if spots is None else marked(Path(os.fsdecode(path)).read_bytes(), os.fsdecode(path), spots)

    load = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        return compiled(self.path) or load(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]
    read = runpy._get_code_from_file  # type: ignore[attr-defined]

    def from_file(*args: Any) -> Any:
        """(code, name) up to Python 3.11, then the code alone; the file is the last argument."""
        result, code = read(*args), compiled(args[-1])
        if code is None:
            return result
        return (code, *result[1:]) if isinstance(result, tuple) else code

    runpy._get_code_from_file = from_file  # type: ignore[attr-defined]
