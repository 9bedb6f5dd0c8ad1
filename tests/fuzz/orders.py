"""Does it matter in which order, and in how many runs, the files of a project are given?

`rewrite` of some of the paths, then of all, ends in the bytes of one run over all of them; or something is refused, and the
refusal is told by the run that made it.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from tests.fuzz.case import case
from tests.fuzz.verdict import contents
from tests.metamorphic.judging import lay_out, rewrite
from tests.metamorphic.program import Fixture, Project, names
from tests.metamorphic.transforms.files import TRANSFORMS


def project(chosen: random.Random) -> Project:
    """A program in several files; beside it, at times, another one."""
    for _ in range(100):
        made = TRANSFORMS[chosen.choice(list(TRANSFORMS))](Fixture(chosen.choice(names())).read())
        if made is not None and len(made.files) > 1:
            files = dict(made.files)
            if chosen.random() < 0.5:
                other = case(chosen.randrange(10**6))
                files["other.py"] = other.text
            return Project(files)
    return Project({name: Fixture(name).before for name in ("plain_script", "static_scale")})


def orders(number: int) -> str:
    """What is wrong with the project of this number, or nothing."""
    chosen = random.Random(f"orders {number}")
    made = project(chosen)
    paths = list(made.files)
    chosen.shuffle(paths)
    first = paths[: chosen.randint(1, len(paths))]
    wanted, code, trouble = _after(made, [paths])
    if trouble:
        return trouble
    found, pieces, trouble = _after(made, [first, paths])
    if trouble:
        return f"{' '.join(first)} first: {trouble}"
    shuffled, _, trouble = _after(made, [sorted(paths)])
    if trouble or shuffled != wanted:
        return f"{' '.join(paths)} and {' '.join(sorted(paths))} come out differently {trouble}"
    if found != wanted and not pieces:
        different = sorted(k for k in wanted if wanted[k] != found.get(k))
        return f"{' '.join(first)} first: {' '.join(different)} comes out differently (exit code {code}, then 0)"
    return ""


def _after(made: Project, runs: list[list[str]]) -> tuple[dict[str, bytes], int, str]:
    """Files after these runs, the exit code of the last one, and what went wrong."""
    with tempfile.TemporaryDirectory() as place:
        folder = lay_out(made, Path(place))
        code = 0
        for paths in runs:
            before = contents(folder)
            code, _, trouble = rewrite(*(folder / p for p in paths))
            after = contents(folder)
            written = {k for k in {*before, *after} if before.get(k) != after.get(k)}
            if not trouble and written - set(paths):
                trouble = f"it wrote {sorted(written - set(paths))}, which nobody named"
            if trouble:
                return {}, code, trouble
        return contents(folder), code, ""
