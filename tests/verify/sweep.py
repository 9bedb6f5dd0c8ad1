"""`python -m tests.verify.sweep [NAME...]`: `amp-migrate verify` on the programs of fixtures/, as a user would call it.

Prints one row a program; with --write puts the table into docs/verification.md. A program that disagrees must be
listed in `ANNOUNCED` with the words in which the verifier names the known difference, or the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
DOCS = ROOT / "docs" / "verification.md"
NOT_SEEN = "no evaluation ran"  # no difference
BEGIN, END = "<!-- sweep -->\n", "\n<!-- end of sweep -->"

# Right migrations that train differently, or whose original no longer runs, and what the verifier must say about it.
ANNOUNCED = {
    "amp_handle": "The old Amp API (handle.scale_loss) is no longer supported",
    "clip_inside_with": "the original clips inside `scale_loss`",
    "gan_num_losses": "Apex kept a scale for each loss",
    "nan_skip": "after an overflow the original leaves the iteration before `optimizer.step()`",
}


def names() -> list[str]:
    """The programs whose migration is whole."""
    return [path.parent.name for path in sorted(FIXTURES.glob("*/before.py")) if "expect" not in notes(path.parent)]


def notes(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "notes.toml").read_text(encoding="utf-8"))


def verify(name: str, options: list[str]) -> dict[str, Any]:
    """The one case of the JSON report."""
    said = notes(FIXTURES / name)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(FIXTURES / name / "before.py", Path(folder) / "train.py")
        resume = ["--resume-args", said["resume"]] if "resume" in said else []
        command = [sys.executable, "-m", "amp_migrate", "verify", "--format", "json", *options, *resume, "train.py"]
        done = subprocess.run(
            [*command, "--", *said.get("args", [])],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
    if not done.stdout:
        raise SystemExit(f"{name}: {done.stderr}")
    case: dict[str, Any] = json.loads(done.stdout)["cases"][0]
    return case


def row(name: str, case: dict[str, Any]) -> str:
    """A line of the table: what was compared, and which difference was named."""
    verdicts = {v["name"]: v for v in case["verdicts"]}
    red = [v["name"] for v in case["verdicts"] if v["status"] == "disagrees"]
    compared = verdicts.get("lockstep", {}).get("data", {}).get("steps", [])
    errors = [s["median_error"] for s in compared if s["median_error"] is not None]
    scales = verdicts.get("scale", {}).get("data", {}).get("original", {})
    result = f"{case['result']} ({', '.join(red)})" if red else case["result"]
    announced = dict.fromkeys(a for v in case["verdicts"] for a in v["announced"] if not a.startswith(NOT_SEEN))
    cells = (
        name,
        result,
        str(len(scales.get("scale", []))),
        str(len(scales.get("skipped", []))),
        f"{max(errors):.1e}" if errors else "-",
        "; ".join([*announced, *([case["trouble"]] if case["trouble"] else [])]).split(" at /")[0],
    )
    return "| " + " | ".join(cells) + " |"


def explained(name: str, case: dict[str, Any]) -> bool:
    """Whether it agrees, or disagrees for the reason announced for this program."""
    if case["result"] == "agrees":
        return name not in ANNOUNCED
    told = " ".join([case["trouble"] or "", *(a for v in case["verdicts"] for a in v["announced"])])
    return name in ANNOUNCED and ANNOUNCED[name] in told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which programs; default: all")
    parser.add_argument("--steps", default="50")
    parser.add_argument("--write", action="store_true", help="put the table into docs/verification.md")
    given = parser.parse_args()
    rows = ["| program | verdict | steps | skipped | gradient error | known differences |", "|-|-|-:|-:|-:|-|"]
    unexplained = []
    for name in given.names or names():
        case = verify(name, ["--steps", given.steps])
        rows.append(row(name, case))
        print(rows[-1], flush=True)
        if not explained(name, case):
            unexplained.append(name)
            for verdict in case["verdicts"]:
                if verdict["status"] in ("disagrees", "unjudged"):
                    print("    " + "\n    ".join([verdict["name"], *verdict["evidence"], *verdict["causes"]]))
    if given.write:
        text = DOCS.read_text(encoding="utf-8")
        head, rest = text.split(BEGIN, 1)
        DOCS.write_text(head + BEGIN + "\n".join(rows) + END + rest.split(END, 1)[1], encoding="utf-8")
    print(f"{len(rows) - 2 - len(unexplained)} of {len(rows) - 2} as expected", *unexplained)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
