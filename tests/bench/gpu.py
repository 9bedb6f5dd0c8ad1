"""`make gpu`: everything that a GPU has the last word on, in one command, with the figures in docs/benchmarks.md.

The tests that need a device, Apex's own tests (with --apex, a checkout of it), planted faults and right migrations,
every program of fixtures/, the published experiments at their full size (ResNet-50 on CIFAR-10-shaped data among them:
fp32, Apex and native, time, accuracy, memory) and the benchmarks of training and recording. A part that fails does not
keep the others from running; the exit code is 1 then.

Without a GPU it refuses (exit code 2). `--rehearse` runs the same parts, small, with the CPU playing the device, and
writes nothing: so that the first GPU this meets is not its first run.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

from run import keep, machine  # noqa: E402

from amp_migrate.shim import child_environment  # noqa: E402

DEVICE = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"


@dataclass(frozen=True)
class Part:
    """One command; `small` are the arguments of a rehearsal in place of the last ones."""

    name: str
    command: tuple[str, ...]
    full: tuple[str, ...] = ()
    small: tuple[str, ...] = ()

    def arguments(self, rehearse: bool) -> list[str]:
        return [sys.executable, *self.command, *(self.small if rehearse else self.full)]


def parts(apex: str | None) -> list[Part]:
    """What is run, in order: the quickest first, so that a machine that cannot run any of it says so early."""
    found = [
        Part(
            "tests that need a device",
            ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cuda"),
            ("tests",),
            ("tests/shim/test_amp_cuda.py", "tests/verify/test_cuda.py", "-k", "follows_fp32 or relu-O1 or plain"),
        ),
        Part("training", ("tests/bench/run.py", "training"), ("--write",)),
        Part("recording", ("tests/bench/run.py", "recording"), ("--write",), ("--help",)),
        Part("experiments", ("tests/bench/experiments.py",), ("--full", "--write"), ("mlp", "--steps", "4")),
        Part("sweep", ("-m", "tests.verify.sweep"), (), ("plain_script", "--steps", "6")),
        Part(
            "trust",
            ("-m", "tests.trust.run", "--device", "cuda"),
            ("--sample", "120", "--right", "60", "--workers", "1"),
            ("--sample", "2", "--right", "1", "--workers", "1"),
        ),
    ]
    if apex is not None:
        found.insert(1, Part("conformance", ("tests/shim/conformance.py", apex), (), ("--help",)))
    return found


def environment(rehearse: bool) -> dict[str, str]:
    """Of every part. In a rehearsal every Python process finds a device that the CPU plays."""
    base = {**os.environ, "PYTHONPATH": str(ROOT)}
    return {**base, **child_environment("shim", "cpu", base)} if rehearse else base


def run(part: Part, rehearse: bool) -> tuple[str, int, float, str]:
    """Name, exit code, seconds, and the last line that was printed."""
    print(f"== {part.name}: {' '.join(part.arguments(rehearse)[1:])}", flush=True)
    began, last = time.perf_counter(), ""
    with subprocess.Popen(
        part.arguments(rehearse), cwd=ROOT, env=environment(rehearse), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return part.name, process.returncode, time.perf_counter() - began, last


def page(device: str, results: Sequence[tuple[str, int, float, str]]) -> str:
    """The summary for docs/benchmarks.md."""
    import torch

    lines = ["### On a GPU", "", "| part | result | minutes | last line |", "|-|-|-:|-|"]
    for name, code, seconds, last in results:
        lines.append(
            f"| {name} | {'passed' if code == 0 else f'exit code {code}'} | {seconds / 60:.1f} | {_cell(last)} |"
        )
    when = datetime.datetime.now(datetime.timezone.utc).date()
    return "\n".join([*lines, "", f"`make gpu` on {device}, torch {torch.__version__}, {when}. {machine()}"])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")[:160]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apex", help="a checkout of NVIDIA/apex that still has apex/amp")
    parser.add_argument("--only", action="append", metavar="PART", help="these parts; may be repeated")
    parser.add_argument("--rehearse", action="store_true", help="small, the CPU plays the device, nothing is written")
    given = parser.parse_args()
    asked = [sys.executable, "-c", DEVICE]
    device = subprocess.run(
        asked, env=environment(given.rehearse), capture_output=True, text=True, check=False
    ).stdout.strip()
    if not device:
        print("make gpu needs a CUDA device; `make gpu REHEARSE=1` tries its parts on the CPU", file=sys.stderr)
        return 2
    chosen = [part for part in parts(given.apex) if given.only is None or part.name in given.only]
    if not chosen:
        parser.error(f"there is no such part; known are {', '.join(part.name for part in parts('DIR'))}")
    results = [run(part, given.rehearse) for part in chosen]
    summary = page(device, results)
    print(f"\n{summary}")
    if not given.rehearse:
        keep("gpu", summary)
    return 1 if any(code for _, code, _, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
