"""JSON and YAML files that hold settings of training frameworks: found, read, and migrated like Python files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from amp_migrate.sources.discover import SETTINGS_SUFFIXES, Found
from amp_migrate.sources.failures import INTERNAL, STAYS, SYNTAX, TOO_LARGE, SourceError, failure, os_failure
from amp_migrate.sources.files import BOM, SourceFile, read_bytes
from amp_migrate.sources.ignores import comment_lines, is_ignored

# A file without any of these says nothing about Apex.
MENTIONS = re.compile(
    rb"amp_backend|amp_level|half_precision_backend|fp16_backend|opt_level|[\"']?\bamp[\"']?[ ]*:"
    rb"|ApexOptimWrapper|:[ ]*[\"']?apex\b",
    re.I,
)
# What a line begins with, up to a comment in it: a number sign in a text begins none.
_COMMENT = re.compile(r"""(?:[^"'#\n]|"[^"\n]*"|'[^'\n]*')*\#""")
# Settings are small; larger files are data, unless they begin with a setting that is Apex's and nothing else's.
MAX_BYTES = 1_000_000
_WRITES = re.compile(r"""\.write(?:_text|_bytes)\(|["'][wax]t?\+?["']|\bdump\(""")
_MOST_YAML = 1 << 24  # indentation alone can make it large, and little data is YAML
LARGE = f"names a setting of Apex's and is larger than {MAX_BYTES:,} bytes: it was not read{STAYS}"
_SURELY = re.compile(
    rb"(?:amp_backend|fp16_backend|half_precision_backend)[\"']?[ ]*:[ ]*[\"']?apex\b|ApexOptimWrapper", re.I
)


def is_configuration(path: str) -> bool:
    """Whether a file can hold settings, by its name."""
    return path.endswith(SETTINGS_SUFFIXES)


def load(files: Sequence[Found]) -> tuple[list[SourceFile], list[FileResult]]:
    """The files that mention a setting which chooses Apex, and those that could not be read."""
    sources: list[SourceFile] = []
    failures: list[FileResult] = []
    for found in files:
        try:
            if os.path.getsize(found.path) > MAX_BYTES:
                if _begins_as_settings(found.path):
                    failures.append(failure(found.display, SourceError(TOO_LARGE, LARGE)))
                continue
            data = read_bytes(found.path)
        except OSError as error:
            failures.append(os_failure(found.display, error))
            continue
        except SourceError as error:
            failures.append(failure(found.display, error))
            continue
        if not MENTIONS.search(data):
            continue
        try:
            text = data.removeprefix(BOM).decode()
        except UnicodeDecodeError:
            continue  # JSON and YAML are UTF-8: this is neither
        sources.append(SourceFile(Path(found.path), found.display, text, bom=data.startswith(BOM)))
    return sources, failures


def _begins_as_settings(path: str) -> bool:
    with open(path, "rb") as file:
        return _SURELY.search(file.read(_MOST_YAML if path.endswith((".yaml", ".yml")) else MAX_BYTES)) is not None


def migrate(source: SourceFile, options: Options, named: Callable[[str], bool]) -> FileResult:
    """What becomes of one file; `named` says whether the project's own Python code names a setting."""
    from amp_migrate.reading.program.settings import TooDeep
    from amp_migrate.rules.frameworks.configuration import File, carried_out

    yaml = source.path.suffix in (".yaml", ".yml")
    ignored = comment_lines(source.text)
    try:
        changes = File(source.text, yaml=yaml, named=named, options=options).changes()
    except TooDeep:
        return failure(source.display, SourceError(SYNTAX, f"nested too deeply{STAYS}"))
    silenced = {
        c.finding.code
        for c in changes
        if not options.wants(c.finding.code) or is_ignored(ignored, c.finding.line, c.finding.code)
    }
    # What one code changes in a file belongs together: ignored in one place, it is left alone in all.
    changes = [c for c in changes if c.finding.code not in silenced]
    result = FileResult(path=source.display, before=source.text, findings=[c.finding for c in changes])
    after = carried_out(source.text, changes)
    if after != source.text:
        if source.path.suffix == ".json" and not _still_json(source.text, after):
            return failure(source.display, SourceError(INTERNAL, "internal error: the result is no JSON; not written"))
        result.after = after
    manual = any(f.status == "manual" for f in result.findings)
    if result.changed:
        result.status = "partial" if manual else "migrated"
    elif manual:
        result.status = "blocked"
    return result


def names_in(sources: Sequence[SourceFile], unparsed: Sequence[str] = ()) -> Callable[[str], bool]:
    """Whether Python code, that which does not parse too, names a setting: as an attribute, a key, or an option; a comment
    reads nothing."""
    texts = [*(source.text for source in sources), *unparsed]

    def named(setting: str) -> bool:
        word = re.compile(rf"(?:[.\"']|--){re.escape(setting)}\b")
        return any(
            not _COMMENT.match(text, text.rfind("\n", 0, found.start()) + 1, found.start())
            for text in texts
            if setting in text
            for found in word.finditer(text)
        )

    return named


def only_written_in(sources: Sequence[SourceFile]) -> Callable[[str], bool]:
    """Whether Python code names a file in lines that write it, and in no others: what a run was started with, kept beside
    what it gave, is nobody's setting any more."""

    def only_written(file: str) -> bool:
        mention = re.compile(rf"[\"'/]{re.escape(file)}[\"']")
        texts = (source.text for source in sources if file in source.text)
        lines = [line for text in texts for line in text.splitlines() if mention.search(line)]
        return bool(lines) and all(map(_WRITES.search, lines))

    return only_written


def _still_json(before: str, after: str) -> bool:
    """Whether a text that was JSON is so still; one that was not (comments) is not judged."""
    for text in (before, after):
        try:
            json.loads(text, parse_int=str)
        except (ValueError, RecursionError):
            return text is before
    return True
