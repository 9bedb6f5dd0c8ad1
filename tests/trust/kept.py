"""What was said of each program, in a file from which a run that was interrupted goes on."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import amp_migrate
from tests.trust import suite
from tests.trust.programs import Regime
from tests.trust.suite import Device, Result


@dataclass(frozen=True)
class Told:
    """The part of a result that the tables show. `error`: the worst gradient error; `band`: the distance from the curve."""

    fault: str | None
    regime: Regime
    exit_code: int
    trouble: str | None
    caught_by: tuple[str, ...]
    error: float
    band: float


def told_of(result: Result) -> Told:
    verdicts = result.outcome.verdicts
    return Told(
        result.fault,
        result.regime,
        result.outcome.exit_code,
        result.outcome.trouble,
        tuple(result.caught_by),
        max((s["median_error"] or 0.0 for v in verdicts for s in v.data.get("steps", [])), default=0.0),
        max((v.data.get("worst", 0.0) for v in verdicts if v.name == "loss curve"), default=0.0),
    )


class Kept:
    """Results by program; without a file they last as long as this object. Several threads may add."""

    def __init__(self, file: Path | None, device: Device) -> None:
        self._file, self._device, self._lock = file, device, threading.Lock()
        self._told: dict[str, Told] = {}
        for line in file.read_text("utf-8").splitlines() if file is not None and file.exists() else ():
            record = json.loads(line)
            key, regime = record.pop("key"), Regime(**record.pop("regime"))
            self._told[key] = Told(**{**record, "regime": regime, "caught_by": tuple(record["caught_by"])})

    def of(self, regime: Regime, fault: str | None) -> Told | None:
        return self._told.get(self._key(regime, fault))

    def add(self, result: Result) -> None:
        told, key = told_of(result), self._key(result.regime, result.fault)
        with self._lock:
            self._told[key] = told
            if self._file is not None:
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, **asdict(told)}) + "\n")

    def _key(self, regime: Regime, fault: str | None) -> str:
        """Of everything that a result depends on."""
        said = repr((fault, regime, self._device, suite.STEPS, suite.texts(regime, fault), _verifier()))
        return hashlib.sha256(said.encode()).hexdigest()


@cache
def _verifier() -> str:
    """Of the code that runs and judges; what only tells of it may change."""
    package = Path(amp_migrate.__file__).parent
    files = [f for part in ("verify", "shim", "checkpoint") for f in sorted((package / part).rglob("*.py"))]
    files = [f for f in files if not {"report", "coverage"} & set(f.parts)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
