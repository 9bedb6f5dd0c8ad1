"""From sources to results: read the project, decide unit by unit, write the files that change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amp_migrate.findings import FileResult
from amp_migrate.options import Options

if TYPE_CHECKING:
    from amp_migrate.sources.files import SourceFile


@dataclass(frozen=True)
class Program:
    """The files of one project: `targets` may be written, `context` is only read."""

    targets: Sequence[SourceFile]
    context: Sequence[SourceFile] = ()


def migrate(program: Program, options: Options) -> list[FileResult]:
    """Decide what becomes of each target; one result per target, in order. Writes nothing."""
    return [FileResult(path=source.display, before=source.text) for source in program.targets]
