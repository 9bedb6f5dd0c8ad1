"""Properties of every rewrite, on generated programs; a sample of them trains."""

from __future__ import annotations

import ast
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyflakes.checker import Checker  # type: ignore[import-untyped]
from pyflakes.messages import UndefinedLocal, UndefinedName, UnusedImport  # type: ignore[import-untyped]

from amp_migrate.engine import Program as Sources
from amp_migrate.engine import migrate
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from amp_migrate.shim import child_environment
from amp_migrate.sources.files import SourceFile
from tests import generated
from tests.generated import Program, Shape


def examples(count: int) -> settings:
    """The same examples in every run, however slow the machine."""
    return settings(
        max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )


NOISE = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(generated.NOISE)), max_size=6).map(tuple)


def shapes(*, apex: bool) -> st.SearchStrategy[Shape]:
    return st.builds(
        Shape,
        form=st.sampled_from(generated.FORMS),
        imports=st.sampled_from(generated.IMPORTS),
        switch=st.sampled_from(generated.SWITCHES),
        level=st.sampled_from(["O0", "O1", "O2", "O3"]),
        clip=st.sampled_from(generated.CLIPS),
        evaluate=st.sampled_from(generated.EVALUATIONS),
        accumulate=st.booleans(),
        save=st.booleans(),
        one_line=st.booleans(),
        indent=st.sampled_from(generated.INDENTS),
        quote=st.sampled_from("\"'"),
        newline=st.sampled_from(["\n", "\r\n"]),
        final_newline=st.booleans(),
        noise=NOISE,
        apex=st.just(apex),
    )


def rewrite(text: str, options: Options | None = None) -> FileResult:
    (result,) = migrate(Sources([SourceFile(Path("train.py"), "train.py", text)]), options or Options())
    return result


def flaws(text: str) -> set[tuple[str, str]]:
    """Undefined names and unused imports."""
    messages = Checker(ast.parse(text)).messages
    kinds = (UndefinedName, UndefinedLocal, UnusedImport)
    return {(type(m).__name__, str(m.message_args[0])) for m in messages if isinstance(m, kinds)}


def in_order(wanted: Iterable[str], lines: Iterable[str]) -> str | None:
    """The first wanted line that is not found after the ones before it."""
    remaining = iter(lines)
    return next((line for line in wanted if line not in remaining), None)


@examples(80)
@given(shapes(apex=True), st.sampled_from(["float16", "bfloat16"]))
def test_ordinary_programs_are_migrated_whole(shape: Shape, dtype: str) -> None:
    program = Program(shape)
    compile(program.text, "before.py", "exec")
    result = rewrite(program.text, Options(dtype=dtype))  # type: ignore[arg-type]
    assert result.status == "migrated"
    assert result.after is not None
    assert not [f for f in result.findings if f.status == "manual"]
    assert "apex" not in result.after.lower()

    compile(result.after, "after.py", "exec")
    assert flaws(result.after) <= flaws(program.text)
    assert in_order(program.free, result.after.split(shape.newline)) is None
    assert ("\r" in result.after) == (shape.newline == "\r\n")
    assert "\n" not in result.after.replace(shape.newline, "")
    assert result.after.endswith(shape.newline) == shape.final_newline

    again = rewrite(result.after, Options(dtype=dtype))  # type: ignore[arg-type]
    assert again.after is None
    assert not again.findings


@examples(20)
@given(shapes(apex=False))
def test_programs_without_apex_are_left_as_they_are(shape: Shape) -> None:
    result = rewrite(Program(shape).text + "# nothing of apex here")
    assert result.after is None
    assert not result.findings


# -- a sample trains -------------------------------------------------------------------------------------------------

# Imports torch once and forks a process for each program: O1 patches torch for the rest of a process.
RUN = """
import json, os, runpy, sys
import torch
import torch._dynamo  # the first optimizer imports it
torch.set_num_threads(1)
for path in json.loads(sys.stdin.read()):
    pid = os.fork()
    if not pid:
        status = 1
        try:
            descriptor = os.open(path + ".txt", os.O_WRONLY | os.O_CREAT)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            sys.argv = [path]
            runpy.run_path(path, run_name="__main__")
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def sample(count: int) -> list[Shape]:
    """Shapes in which every choice occurs, put together at random but always the same."""
    draw = random.Random(0)

    def pick(choices: tuple[str, ...], index: int) -> str:
        return choices[(index + draw.randrange(len(choices))) % len(choices)]

    return [
        Shape(
            form=generated.FORMS[index % len(generated.FORMS)],
            imports=generated.IMPORTS[index % len(generated.IMPORTS)],
            switch=pick(generated.SWITCHES, index),
            level=pick(("O0", "O1", "O2", "O3"), index),
            clip=pick(generated.CLIPS, index),
            evaluate=pick(generated.EVALUATIONS, index),
            accumulate=draw.random() < 0.5,
            save=draw.random() < 0.5,
            one_line=draw.random() < 0.3,
        )
        for index in range(count)
    ]


def resolution(shape: Shape) -> float:
    """How far apart losses may be: O0 and O1 compute the same; O2 and O3 round weights to float16."""
    return 2.0**-11 if shape.level in ("O2", "O3") and shape.switch != "level" else 1e-6


def test_a_sample_of_programs_trains_as_it_did_under_apex(tmp_path: Path) -> None:
    paths: list[Path] = []
    shapes = [*sample(19), Shape(level="O2", clip="masters")]
    for index, shape in enumerate(shapes):
        before = Program(shape).text
        after = rewrite(before).after
        assert after is not None
        for name, text in (("before", before), ("after", after)):
            paths.append(tmp_path / f"{name}{index}.py")
            paths[-1].write_text(text, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **child_environment("shim", "cpu")}
    run = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps([str(path) for path in paths]),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    losses: list[list[float]] = []
    for path, status in zip(paths, run.stdout.split(), strict=True):
        printed = Path(f"{path}.txt").read_text(encoding="utf-8")
        assert status == "0", printed + path.read_text(encoding="utf-8")
        losses.append([float(line.split()[1]) for line in printed.splitlines() if line.startswith("loss ")])
    for shape, one, two in zip(shapes, losses[::2], losses[1::2], strict=True):
        assert len(one) == len(two) == 8
        assert len(set(two)) == 8, "the weights never changed"
        assert all(math.isfinite(loss) for loss in two)
        agrees = two == pytest.approx(one, rel=resolution(shape))
        # O2 stepped its master weights: a clip of the model's own gradients had no effect, and has one now.
        clips_copies = shape.level == "O2" and shape.switch != "level" and shape.clip in ("parameters", "if")
        assert agrees is not clips_copies, shape


@examples(20)
@given(shapes(apex=True))
def test_a_program_that_cannot_be_migrated_is_left_as_it_is(shape: Shape) -> None:
    """A scaled loss that shares its with statement blocks the unit, however sound the rest of it is."""
    result = rewrite(Program(shape).text.replace("as scaled_loss:", "as scaled_loss, extra():"))
    assert result.after is None
    assert result.status == "blocked"
