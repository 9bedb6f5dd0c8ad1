"""`make demo`: migrate a program of the usual shape in a scratch folder, show the diff and the report, then verify the
programs of this repository's own pyproject.toml, and a wrong migration."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = (
    ["check", "."],
    ["rewrite", "--diff", "."],
    ["rewrite", "--summary", "migration.md", "."],
    ["check", "."],
)
FIXTURES = Path(__file__).parent.parent / "fixtures"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fixture", nargs="?", default="imagenet", help="a folder of fixtures/ (default: %(default)s)")
    program = FIXTURES / parser.parse_args().fixture / "before.py"
    with tempfile.TemporaryDirectory(prefix="amp-migrate-demo-") as folder:
        shutil.copy(program, Path(folder) / "train.py")
        for arguments in COMMANDS:
            print(f"\n$ amp-migrate {' '.join(arguments)}\n", flush=True)
            command = [sys.executable, "-m", "amp_migrate", *arguments]
            code = subprocess.run(command, cwd=folder, stderr=subprocess.STDOUT, check=False).returncode
            if code > 1:  # 1 says that something remains, which is what check and --diff are asked for
                return code
        print("\n$ cat migration.md\n")
        print((Path(folder) / "migration.md").read_text())
    return verify()


def verify() -> int:
    """The repository's own cases, and one of them with a line of the migration left out."""
    command = [sys.executable, "-m", "amp_migrate", "verify"]
    print("\n$ amp-migrate verify\n", flush=True)
    code = subprocess.run(command, cwd=FIXTURES.parent, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="amp-migrate-demo-") as folder:
        shutil.copy(FIXTURES / "accumulation_clip" / "before.py", Path(folder) / "train.py")
        lines = (FIXTURES / "accumulation_clip" / "after.py").read_text().splitlines(keepends=True)
        (Path(folder) / "wrong.py").write_text("".join(line for line in lines if ".unscale_(" not in line))
        print("\nThe same for a migration that forgot `scaler.unscale_(optimizer)`:\n")
        arguments = ["train.py", "--migrated", "wrong.py", "--steps", "20"]
        print(f"$ amp-migrate verify {' '.join(arguments)}\n", flush=True)
        found = subprocess.run([*command, *arguments], cwd=folder, check=False).returncode
    return 0 if (code, found) == (0, 1) else 1


if __name__ == "__main__":
    sys.exit(main())
