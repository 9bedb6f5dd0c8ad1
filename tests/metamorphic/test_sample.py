"""A sample of `make metamorphic`: nothing that means the same may come out wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.metamorphic.__main__ import at_rate
from tests.metamorphic.judging import Reference, difference, judge
from tests.metamorphic.known import cause
from tests.metamorphic.program import ENTRY, Fixture, Project, names
from tests.metamorphic.running import Run, Runner
from tests.metamorphic.transforms import TRANSFORMS

SEED = 10
CASES = 32
QUICK = (
    "amp_on_args",
    "checkpoint_guarded",
    "imagenet",
    "plain_script",
    "static_scale",
    "train_step_closure",
    "trainer_class",
)


def sample() -> list[tuple[str, str]]:
    """Fixture and transformation: no transformation twice."""
    chosen = random.Random(SEED)
    pairs: list[tuple[str, str]] = []
    for transform in chosen.sample(list(TRANSFORMS), len(TRANSFORMS)):
        fixtures = chosen.sample(QUICK, len(QUICK))
        fitting = next((f for f in fixtures if TRANSFORMS[transform](Fixture(f).read())), None)
        if fitting is not None:
            pairs.append((fitting, transform))
        if len(pairs) == CASES:
            break
    return sorted(pairs)


@pytest.fixture(scope="module")
def references() -> Iterator[dict[str, Reference]]:
    runner = Runner()
    yield {name: Reference(Fixture(name), runner) for name in QUICK}
    runner.close()


@pytest.mark.parametrize(("fixture", "transform"), sample())
def test_what_means_the_same_is_right_or_refused(
    fixture: str, transform: str, references: dict[str, Reference]
) -> None:
    project = TRANSFORMS[transform](Fixture(fixture).read())
    assert project is not None
    outcome = judge(references[fixture], transform, project)
    if outcome.verdict == "wrong" and cause(outcome):
        pytest.xfail(cause(outcome))
    assert outcome.verdict in ("right", "refused"), outcome


def test_the_measure_sees_what_is_wrong(references: dict[str, Reference], monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewriter that forgets something is not called right."""
    reference = references["plain_script"]
    right = reference.fixture.after
    faults = {
        "silent": reference.fixture.before,
        "no update": right.replace("scaler.update()", "pass"),
        "unscaled": right.replace("scaler.scale(loss).backward()", "loss.backward()"),
        "crash": right.replace("scaler = ", "scalar = "),
        "float32 evaluation": right.replace(
            'with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16)', "with torch.no_grad()"
        ),
    }
    for name, text in faults.items():
        if name != "silent":
            assert text != right, name
        monkeypatch.setattr("tests.metamorphic.judging.rewrite", lambda folder, text=text: _write(folder, text))
        outcome = judge(reference, name, Project({ENTRY: reference.fixture.before}))
        assert outcome.verdict == "wrong", (name, outcome)


def _write(folder, text: str):  # type: ignore[no-untyped-def]
    (folder / ENTRY).write_text(text, encoding="utf-8")
    return 0, [], ""


def test_a_transformation_that_changes_the_program_is_no_measure(references: dict[str, Reference]) -> None:
    reference = references["plain_script"]
    changed = reference.fixture.before.replace("lr=5e-3", "lr=6e-3")
    assert judge(reference, "faster", Project({ENTRY: changed})).verdict == "unsound"


@pytest.mark.parametrize(
    ("losses", "norm", "told"),
    [
        ([8.0, 8.0, 4.0, 2.0], 1.0, ""),
        ([8.0, 4.0, 2.0, 2.0], 1.0, ""),  # halved within an iteration rather than at its end
        ([16.0, 16.0, 8.0, 4.0], 1.0, "losses[0]"),  # another scale to begin with
        ([8.0, 8.0, 4.0, 2.5], 1.0, "losses[3]"),
        ([8.0, 128.0, 64.0, 32.0], 1.0, "losses[1]"),  # scaled once more
        ([8.0, 4.0, 2.0, 2.0], 2.0, "gradients[0]"),
    ],
)
def test_the_scale_of_a_loss_is_compared_where_training_begins(losses: list[float], norm: float, told: str) -> None:
    def run(values: list[float], gradient: float) -> Run:
        seen = {"losses": [v.hex() for v in values], "gradients": [gradient.hex()], "parameters": []}
        return Run(0, "", "", seen)

    assert difference(run(losses, norm), run([8.0, 8.0, 4.0, 2.0], 1.0)).startswith(told)
    assert bool(told) is bool(difference(run(losses, norm), run([8.0, 8.0, 4.0, 2.0], 1.0)))


def test_a_higher_rate_has_what_a_lower_one_has() -> None:
    pairs = [(fixture, transform) for fixture in names() for transform in TRANSFORMS]
    few, more, every = ({p for p in pairs if at_rate(*p, rate)} for rate in (0.1, 0.3, 1.0))
    assert few < more < every == set(pairs)
    assert 0.08 < len(few) / len(pairs) < 0.12
