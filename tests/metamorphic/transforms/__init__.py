"""The transformations by name. Each takes a `Reading` of a fixture and returns a project that means the same, or None
where it does not apply. A check runs the result on Apex's stand-in: it must train as the fixture does, to the bit."""

from __future__ import annotations

from collections.abc import Callable

from tests.metamorphic.program import Project, Reading
from tests.metamorphic.transforms import (
    backwards,
    containers,
    files,
    flags,
    functions,
    imports,
    loops,
    optimizers,
    setup,
)

Transform = Callable[[Reading], Project | None]

TRANSFORMS: dict[str, Transform] = {
    name: transform
    for family in (optimizers, containers, backwards, functions, loops, setup, flags, imports, files)
    for name, transform in family.TRANSFORMS.items()
}
