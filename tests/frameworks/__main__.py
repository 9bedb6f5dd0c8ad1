"""`python -m tests.frameworks [NAME ...]`: install each framework in an environment of its own, and train with it.

The programs of `programs.py` are migrated here, and run there by the oldest and the newest version that matter; the CPU plays
the GPU (`amp-migrate run`), so that the frameworks choose float16 and a GradScaler. torch is installed once and shared.
What cannot be installed is said, and is no failure. `--write` puts the table into docs/howto.md.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.frameworks import programs
from tests.rules.helpers import rewrite

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".venv-frameworks"
PAGE = ROOT / "docs" / "howto.md"
TORCH = "torch==2.13.0"
OLD_SETUPTOOLS = "setuptools<81"  # has pkg_resources
RUN = "from amp_migrate import shim; shim.install(apex='untouched', device='cpu'); import runpy; " \
      "runpy.run_path('train.py', run_name='__main__')"  # fmt: skip


@dataclass(frozen=True)
class Version:
    """One version of a framework: what pip is asked for, at once or in steps, and which programs it is given."""

    name: str
    requirements: tuple[tuple[str, ...], ...]
    programs: tuple[str, ...]
    options: tuple[str, ...] = ()  # of pip


def of(package: str, version: str, programs: str, *more: str) -> Version:
    """The usual kind: one call of pip."""
    return Version(f"{package} {version or 'newest'}", ((f"{package}=={version}" if version else package, *more),),
                   tuple(programs.split()))  # fmt: skip


VERSIONS = (
    of("pytorch-lightning", "2.0.0", "lightning_trainer lightning_plugin", OLD_SETUPTOOLS),
    of("pytorch-lightning", "", "lightning_trainer lightning_plugin"),
    of("lightning", "", "lightning_package"),
    of("transformers", "4.30.2", "transformers", "accelerate==0.20.3", "numpy<2", OLD_SETUPTOOLS),
    of("transformers", "4.57.1", "transformers", "accelerate"),
    of("transformers", "", "transformers", "accelerate"),
    # They look for torch as they are built, and 0.4.5 of Ignite says that it wants torch 1.
    Version("deepspeed 0.9.5", ((OLD_SETUPTOOLS, "wheel", "packaging"), ("deepspeed==0.9.5", "numpy<2", "pydantic<2")),
            ("deepspeed_o2",), ("--no-build-isolation",)),
    Version("deepspeed newest", (("setuptools", "wheel", "packaging"), ("deepspeed",)),
            ("deepspeed_o1", "deepspeed_o2"), ("--no-build-isolation",)),
    Version("pytorch-ignite 0.4.5", (("packaging", "numpy<2"), ("--no-deps", "pytorch-ignite==0.4.5")), ("ignite",)),
    of("pytorch-ignite", "", "ignite"),
    of("catalyst", "21.12", "catalyst_engine catalyst_fp16", "packaging", "six", "protobuf<3.21",
       OLD_SETUPTOOLS),
    of("catalyst", "22.4", "catalyst_fp16", "accelerate==0.12.0", "tensorboard", OLD_SETUPTOOLS),
    of("mmengine", "0.7.0", "mmengine_dynamic mmengine_static", OLD_SETUPTOOLS),
    of("mmengine", "", "mmengine_dynamic mmengine_static"),
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 when a framework refuses what was written for it, or does not train with it."""
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks")
    parser.add_argument("names", nargs="*", help="only the frameworks whose name holds one of these")
    parser.add_argument("--write", action="store_true", help="put the table into docs/howto.md")
    options = parser.parse_args(arguments)
    chosen = [v for v in VERSIONS if not options.names or any(n in v.name for n in options.names)]
    base = _base()
    rows, failed = [], False
    for version in chosen:
        python, trouble = _environment(base, version)
        for name in version.programs:
            said = f"not installed: {trouble}" if trouble else _train(python, version, name)
            failed |= said.startswith("FAILED")
            rows.append(f"| {_shown(python, version)} | {name.replace('_', ' ')} | {said} |")
            print(rows[-1], flush=True)
    if options.write and not options.names:
        text = PAGE.read_text()
        table = "\n".join(["| framework | program | what it made of it |", "|-|-|-|", *rows])
        PAGE.write_text(re.sub(r"(<!-- frameworks -->\n).*?(<!-- end of frameworks -->)",
                               lambda found: f"{found[1]}{table}\n{found[2]}", text, flags=re.S))  # fmt: skip
    return int(failed)


def _base() -> Path:
    """The environment that holds torch; its packages are put into reach of the others."""
    place = PLACE / "torch"
    if not (place / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([place / "bin/python", "-m", "pip", "install", "-q", TORCH, "numpy"], check=True)
        (place / "ready").touch()
    return place


def _environment(base: Path, version: Version) -> tuple[Path, str]:
    """The Python of a version's environment, and why it could not be made: the last line of pip."""
    place = PLACE / version.name.replace(" ", "-")
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        (own,) = place.glob("lib/python*/site-packages")
        (shared,) = base.glob("lib/python*/site-packages")
        (own / "torch.pth").write_text(f"{shared}\n")
        for asked in version.requirements:
            command = [python, "-m", "pip", "install", "-q", *version.options, *asked]
            command += [] if "--no-deps" in asked else [TORCH]
            environment = {**os.environ, "DS_BUILD_OPS": "0"}
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
                return python, lines[-1][:200]
        (place / "ready").touch()
    return python, ""


def _train(python: Path, version: Version, name: str) -> str:
    """What the migrated program printed last, else the error that it ended with."""
    result = rewrite(programs.PROGRAMS[name])
    if result.after is None or any(f.status == "manual" for f in result.findings):
        return f"FAILED: not migrated: {[f.message for f in result.findings if f.status == 'manual']}"
    folder = PLACE / "runs" / f"{version.name}-{name}".replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(result.after)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [python, "-c", RUN], cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    except subprocess.TimeoutExpired:
        return "FAILED: did not end within 600 s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ["said nothing"]
    return lines[-1] if done.returncode == 0 else f"FAILED: {lines[-1][:200]}"


def _shown(python: Path, version: Version) -> str:
    """The name with the version that was installed for "newest"."""
    name = version.name.split()[0]
    code = f"from importlib.metadata import version; print(version({name!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return f"{name} {done.stdout.strip()}" if done.returncode == 0 else version.name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
