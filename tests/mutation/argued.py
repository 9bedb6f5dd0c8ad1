"""Mutants that no test has to see, with the reason. By file and what the mutant is (`Mutant.told`)."""

from __future__ import annotations

ARGUED: dict[tuple[str, str], str] = {}
