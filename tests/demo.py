"""`make demo`: migrate a program of the usual shape in a scratch folder, and show the diff and the report."""

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
    return 0


if __name__ == "__main__":
    sys.exit(main())
