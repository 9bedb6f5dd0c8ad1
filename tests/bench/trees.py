"""Trees of real code to scan and to migrate: the standard library's modules over and over, the fixtures among them."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from amp_migrate.sources.project import mentions

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"


def ordinary(number: int) -> list[bytes]:
    """Sources that mention neither Apex nor AMP, of 1 to 40 kB, as training repositories have them."""
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = []
    for path in sorted(library.glob("*.py")) + sorted(library.glob("*/*.py")):
        if "test" in path.parts or "site-packages" in path.parts:
            continue
        data = path.read_bytes()
        if 1_000 < len(data) < 40_000 and not mentions(data) and data.isascii():
            sources.append(data)
    return [sources[i % len(sources)] for i in range(number)]


def programs() -> list[bytes]:
    """The programs of the fixtures, before migration."""
    return [path.read_bytes() for path in sorted(FIXTURES.glob("*/before.py"))]


def lay(folder: Path, files: int, apex: int = 0) -> int:
    """A project of this many files in packages of 40, `apex` of them training programs; its size in bytes."""
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (folder / ".gitignore").write_text("__pycache__/\n*.py[cod]\nbuild/\n/data/\n*.egg-info/\n.venv/\n")
    training = programs()
    size = 0
    for number, data in enumerate(ordinary(files)):
        package = folder / f"package_{number // 40}"
        package.mkdir(exist_ok=True)
        every = files // apex if apex else files + 1
        if apex and number % every == every - 1:
            data = training[(number // every) % len(training)]
        (package / f"module_{number % 40}.py").write_bytes(data)
        size += len(data)
    return size
