"""`[tool.amp-migrate]` in pyproject.toml: the same names as the options of `rewrite` and `check`.

`[[tool.amp-migrate.verify]]` tables hold the cases of `amp-migrate verify`; what they contain is checked there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amp_migrate.sources.failures import SourceError
from amp_migrate.sources.files import position, read_bytes

SECTION = "amp-migrate"

FORMATS = ("text", "json", "sarif", "github", "html")
DTYPES = ("float16", "bfloat16")
EVALS = ("autocast", "fp32")


class ConfigError(Exception):
    """A configuration that says nothing we understand; the message names the file and the key."""


@dataclass(frozen=True)
class Config:
    """The settings of one pyproject.toml. `path` is None where there are none."""

    path: Path | None = None
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Where the file lies; `exclude` patterns are relative to it."""
        return os.path.realpath(self.path.parent) if self.path else os.path.realpath(os.curdir)

    @property
    def verify(self) -> list[dict[str, Any]]:
        """The cases of `[[tool.amp-migrate.verify]]`, in order."""
        return list(self.values.get("verify", ()))


def load(paths: Sequence[str] = ()) -> Config:
    """The configuration for these paths: that of the nearest pyproject.toml at or above the folder they share.

    A pyproject.toml without the section hands on to the one above it, up to the repository's root. Raises ConfigError.
    """
    for candidate in _candidates(_shared_folder(paths)):
        data = read(candidate)
        if data is None or SECTION.encode() not in data.replace(b"\0", b""):  # UTF-16 has it between NULs
            continue
        table = parse(candidate, data).get("tool", {})
        section = table.get(SECTION) if isinstance(table, dict) else None
        if section is not None:
            return Config(candidate, _validated(candidate, section))
    return Config()


def read(path: Path) -> bytes | None:
    """The bytes of a pyproject.toml, None where there is none. Raises ConfigError for one that cannot be read: it may say
    what is to be left alone."""
    try:
        return read_bytes(path)
    except SourceError as error:
        reason = "cannot be read: it is a folder" if path.is_dir() else error.message
    except OSError as error:
        if not os.path.lexists(path):  # nor can a folder above be looked into
            return None
        told = (
            "a symbolic link to nothing"
            if isinstance(error, FileNotFoundError)
            else (error.strerror or str(error)).lower()
        )
        reason = f"cannot be read: {told}"
    raise ConfigError(f"{_shown(path)}: {reason}")


def _shared_folder(paths: Sequence[str]) -> str:
    folders = []
    for path in paths:
        absolute = os.path.abspath(path)
        folders.append(absolute if os.path.isdir(absolute) else os.path.dirname(absolute))
    try:
        return os.path.commonpath(folders) if folders else os.getcwd()
    except ValueError:  # different drives
        return os.getcwd()


def _candidates(folder: str) -> list[Path]:
    found = []
    here = Path(folder)
    for place in (here, *here.parents):
        found.append(place / "pyproject.toml")
        if (place / ".git").exists():
            break
    return found


def parse(path: Path, data: bytes) -> dict[str, Any]:
    """What the bytes of a pyproject.toml say. Raises ConfigError."""
    from amp_migrate import toml

    try:
        return toml.parse(data.decode())
    except UnicodeDecodeError as error:
        line, column = position(data, error.start)
        raise ConfigError(
            f"{_shown(path)}:{line}:{column}: TOML is UTF-8, and byte 0x{data[error.start]:02x} is not"
        ) from None
    except ValueError as error:  # no TOML
        raise ConfigError(f"{_shown(path)}: {error}") from None


def _strings(value: object) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise ValueError("expected a list of strings")
    return tuple(listed)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a string")
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("expected a number of processes, 0 for one per core")
    return value


def _one_of(choices: Sequence[str]) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return str(value)

    return check


def _cases(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(case, dict) for case in value):
        raise ValueError("expected [[tool.amp-migrate.verify]] tables")
    return value


KEYS: dict[str, Callable[[object], object]] = {
    "checkpoint-compat": _flag,
    "device": _text,
    "dtype": _one_of(DTYPES),
    "eval": _one_of(EVALS),
    "exclude": _strings,
    "format": _one_of(FORMATS),
    "ignore": _strings,
    "jobs": _count,
    "partial": _flag,
    "quiet": _flag,
    "select": _strings,
    "verify": _cases,
}


# Where files are written is said by who runs the command, not by the project that it looks at.
COMMAND_LINE_ONLY = {"summary": "where a summary is written is only said on the command line, as --summary FILE.md"}


def _validated(path: Path, section: object) -> dict[str, Any]:
    if not isinstance(section, dict):
        raise ConfigError(f"{_shown(path)}: tool.{SECTION} is not a table")
    values: dict[str, Any] = {}
    for key, value in section.items():
        if key in COMMAND_LINE_ONLY:
            raise ConfigError(f"{_shown(path)}: {key} in [tool.{SECTION}]: {COMMAND_LINE_ONLY[key]}")
        if key not in KEYS:
            import difflib

            near = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(KEYS)}"
            raise ConfigError(f"{_shown(path)}: unknown key {key!r} in [tool.{SECTION}]{hint}")
        try:
            values[key] = KEYS[key](value)
        except ValueError as error:
            raise ConfigError(f"{_shown(path)}: {key} in [tool.{SECTION}]: {error}, not {value!r}") from None
    return values


def _shown(path: Path) -> str:
    from amp_migrate.reports import quoting
    from amp_migrate.sources.discover import shown

    return quoting.path(shown(str(path)))
