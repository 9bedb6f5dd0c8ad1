"""Does it matter in which order, and in how many runs, the files of a project are given?

`rewrite` of some of the paths, of others, then of all, ends in the bytes of one run over all of them; or something is refused that
one run over all of them does not refuse, and told by the last run.
"""

from __future__ import annotations

import ast
import random
import re
import tempfile
from pathlib import Path

from tests.fuzz.case import case
from tests.fuzz.cells import notebook
from tests.fuzz.verdict import contents
from tests.metamorphic.judging import lay_out, rewrite
from tests.metamorphic.program import ENTRY, Fixture, Project, names
from tests.metamorphic.transforms.files import TRANSFORMS

Manual = set[tuple[str, str]]

READY = """\
try:
    from apex import amp
    HAS_APEX = True
except ImportError:
    HAS_APEX = False
"""
# How a file comes to ask whether Apex is there.
ASKS = (
    "if not HAS_APEX:\n    raise RuntimeError('please install apex')",
    "print('apex:', HAS_APEX)",
    "if HAS_APEX:\n    print('apex')\nelse:\n    print('no apex')",
    "def has_apex():\n    return HAS_APEX",
)


def project(chosen: random.Random) -> Project:
    """A program in several files; beside it, at times, others, which imports may tie to it and to each other."""
    files: dict[str, str] = {name: Fixture(name).before for name in ("plain_script", "static_scale")}
    for _ in range(100):
        made = TRANSFORMS[chosen.choice(list(TRANSFORMS))](Fixture(chosen.choice(names())).read())
        if made is not None and len(made.files) > 1:
            files = dict(made.files)
            break
    for number in range(chosen.choice((0, 0, 1, 1, 2))):
        text = case(chosen.randrange(10**6)).text
        if chosen.random() < 0.6 and ENTRY in files:
            if "def described(" not in files[ENTRY]:
                files[ENTRY] = _after_imports(files[ENTRY], "def described(text):\n    return text")
            text = _after_imports(text, "from train import described\nprint(described('other'))")
        in_notebook = chosen.random() < 0.25
        files[f"other{number}.{'ipynb' if in_notebook else 'py'}"] = notebook(text, chosen) if in_notebook else text
    if chosen.random() < 0.4:
        files["ready.py"] = READY
        for name in [n for n in files if n.endswith(".py") and n != "ready.py"]:
            if chosen.random() < 0.7:
                files[name] = _after_imports(files[name], f"from ready import HAS_APEX\n{chosen.choice(ASKS)}")
    return Project(files)


def _after_imports(text: str, added: str) -> str:
    """A program with statements after those that a file begins with."""
    lines = text.splitlines(keepends=True)
    last = 0
    for statement in ast.parse(text).body:
        begins = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and not last
        if not begins and not isinstance(statement, (ast.Import, ast.ImportFrom)):
            break
        last = statement.end_lineno or 0
    return "".join([*lines[:last], f"{added}\n", *lines[last:]])


def orders(number: int) -> str:
    """What is wrong with the project of this number, or nothing."""
    chosen = random.Random(f"orders {number}")
    made = project(chosen)
    paths = list(made.files)
    chosen.shuffle(paths)
    pieces = _pieces(paths, chosen)
    wanted, refused, trouble = _after(made, [paths])
    if trouble:
        return trouble
    said = " | ".join(" ".join(piece) for piece in pieces)
    found, still, trouble = _after(made, [*pieces, paths])
    if trouble:
        return f"{said}: {trouble}"
    shuffled, _, trouble = _after(made, [sorted(paths)])
    if trouble or shuffled != wanted:
        return f"{' '.join(paths)} and {' '.join(sorted(paths))} come out differently {trouble}"
    if found != wanted and not still - refused:
        different = sorted(k for k in wanted if wanted[k] != found.get(k))
        return f"{said}, then all: {' '.join(different)} comes out differently"
    return ""


def _pieces(paths: list[str], chosen: random.Random) -> list[list[str]]:
    """Some of the paths, or all of them, in pieces of one or more."""
    left = paths[: chosen.randint(1, len(paths))]
    pieces = []
    while left:
        size = chosen.choice((1, 1, 1, 2, 3))
        pieces.append(left[:size])
        left = left[size:]
    return pieces


def _after(made: Project, runs: list[list[str]]) -> tuple[dict[str, bytes], Manual, str]:
    """Files after these runs, what the last one refused, and what went wrong."""
    with tempfile.TemporaryDirectory() as place:
        folder = lay_out(made, Path(place) / "project")
        refused: Manual = set()
        for paths in runs:
            before = contents(folder)
            _, findings, trouble = rewrite(*(folder / p for p in paths))
            after = contents(folder)
            written = {k for k in {*before, *after} if before.get(k) != after.get(k)}
            if not trouble and written - set(paths):
                trouble = f"it wrote {sorted(written - set(paths))}, which nobody named"
            if trouble:
                return {}, refused, trouble
            refused = {(f["code"], re.sub(r"[\w./-]+/", "", f["message"])) for f in findings if f["status"] == "manual"}
        return contents(folder), refused, ""
