"""What `amp-migrate run` adds to a program that imports torch."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from measuring import Row, Table, best, command


def measure() -> Table:
    table = Table("run", "Start-up of amp-migrate run", "python script.py", "at most 300 ms more than importing torch")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text("import torch\n")
        run = [sys.executable, "-m", "amp_migrate", "run"]
        times = best(
            {
                "python script.py": command([sys.executable, str(script)]),
                "amp-migrate run --device cuda script.py": command([*run, "--device", "cuda", str(script)]),
                "amp-migrate run --device cpu script.py": command([*run, "--device", "cpu", str(script)]),
            },
            rounds=10,
        )
    base = times["python script.py"]
    table.rows = [Row(name, seconds, f"{(seconds - base) * 1000:+.0f} ms") for name, seconds in times.items()]
    return table
