"""Options that decide what is written; shared by the command line, the configuration and the engine."""

from __future__ import annotations

from dataclasses import dataclass
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
