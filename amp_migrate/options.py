"""Options that decide what is written; shared by the command line, the configuration and the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Options:
    """How to migrate. Defaults are those of the command line."""

    dtype: Literal["float16", "bfloat16"] = "float16"
    device: str = "cuda"
    eval: Literal["autocast", "fp32"] = "autocast"
    partial: bool = False
    checkpoint_compat: bool = False
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def wants(self, code: str) -> bool:
        """Whether findings with this code are acted on (code prefixes, --ignore wins over --select)."""
        if any(code.startswith(prefix) for prefix in self.ignore):
            return False
        return not self.select or any(code.startswith(prefix) for prefix in self.select)


@dataclass(frozen=True)
class Wishes:
    """What is to be left as it is: codes, and sites by file and line (`sources.ignores.ignored_lines`)."""

    options: Options = field(default_factory=Options)
    lines: Mapping[str, Mapping[int, set[str] | None]] = field(default_factory=dict)

    def wants(self, file: str, line: int, code: str) -> bool:
        """Whether a site with this code may be changed."""
        return self.options.wants(code) and not self.marked(file, line, code)

    def marked(self, file: str, line: int, code: str) -> bool:
        """Whether a comment on the line asks to leave this code alone."""
        codes = self.lines.get(file, {}).get(line, set())
        return codes is None or any(code.startswith(prefix) for prefix in codes)

    def concern(self, file: str) -> bool:
        """Whether anything in a file may have to be left alone."""
        return bool(self.options.select or self.options.ignore or self.lines.get(file))
