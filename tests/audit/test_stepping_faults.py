"""Faults of the step planted into right migrations: each one is refused, and the right migration is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amp_migrate.audit.checks import stepping
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.review import Review, Was, Wish
from tests.trust.programs import Regime, migrated, original

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
NAMES = sorted(
    p.parent.name for p in FIXTURES.glob("*/before.py") if "GradScaler" in (p.parent / "after.py").read_text()
)

_UNSCALE = re.compile(r"^( *|\t*)(\S+)\.unscale_\((\S+)\)\n", re.MULTILINE)
_STEP = re.compile(r"^( *|\t*)(\S*scaler\w*)\.step\(([^()\n]+)\)\n", re.MULTILINE)
_UPDATE = re.compile(r"^( *|\t*)(\S*scaler\w*)\.update\(.*\)\n", re.MULTILINE)
_BACKWARD = re.compile(r"^( *|\t*)(\S*scaler\w*)\.scale\((.+)\)\.backward\(", re.MULTILINE)
_UNSCALE_CLIP = re.compile(r"^( *)(\S+\.unscale_\(\S+\))\n((?: *\w+ = )? *\S*clip_grad_norm_\(.*\))\n", re.MULTILINE)
_STEP_UPDATE = re.compile(r"^( *|\t*)(\S*scaler\w*\.step\([^()\n]+\))\n\1(\S*scaler\w*\.update\(.*\))\n", re.MULTILINE)


def _reads(text: str) -> bool:
    return "clip_grad" in text or ".grad." in text


FAULTS: dict[str, Callable[[str], str]] = {
    "missing unscale_": lambda t: _UNSCALE.sub("", t) if _reads(t) else t,
    "duplicate unscale_": lambda t: _UNSCALE.sub(r"\1\2.unscale_(\3)\n\1\2.unscale_(\3)\n", t),
    "missing update": lambda t: _UPDATE.sub("", t),
    "update before step": lambda t: _STEP_UPDATE.sub(r"\1\3\n\1\2\n", t) if "update(1" not in t else t,
    "loss scaled twice": lambda t: _BACKWARD.sub(r"\1\2.scale(\2.scale(\3)).backward(", t),
    "backward on the unscaled loss": lambda t: _BACKWARD.sub(r"\1\3.backward(", t),
    "clipping before unscaling": lambda t: _UNSCALE_CLIP.sub(r"\3\n\1\2\n", t),
    "a plain step": lambda t: _STEP.sub(r"\1\3.step()\n", t),
    "a kept step": lambda t: _STEP.sub(r"\1go = \3.step\n\1go()\n", t),
    "a step looked up": lambda t: _STEP.sub(r'\1getattr(\3, "step")()' + "\n", t),
    "step of one optimizer lost": lambda t: _STEP.sub(r"\1pass\n", t, count=1),
    "steps lost": lambda t: _STEP_UPDATE.sub(r"\1pass\n", t),
    "gradients thrown away": lambda t: _STEP.sub(r"\1\3.zero_grad()\n\1\2.step(\3)\n", t),
    "three steps": lambda t: _STEP_UPDATE.sub(r"\1for _ in range(3):\n\1    \2\n\1    \3\n", t),
    "another scaler steps": lambda t: _STEP.sub(
        r'\1other = torch.amp.GradScaler("cuda")' + "\n" + r"\1other.step(\3)\n", t
    ),
    "zero_grad lost": lambda t: re.sub(r"^( *|\t*)\S+\.zero_grad\(\)\n", r"\1pass\n", t, flags=re.MULTILINE),
    "clip lost": lambda t: re.sub(r"^( *)\S*clip_grad_norm_\(.*\)\n", r"\1pass\n", t, flags=re.MULTILINE),
    "a second backward": lambda t: _BACKWARD.sub(r"\1\3.backward(retain_graph=True)\n\1\2.scale(\3).backward(", t),
}
ALL = {"accumulation_clip", "amp_on_args", "backward_helper", "gan_num_losses", "nan_skip", "one_loss_two_optimizers",
       "trainer_class", "train_step_closure"}  # fmt: skip
# In these a fault makes no difference, or none that reading can tell: the reason.
SAME = {
    ("o2_without_zero_grad", "zero_grad lost"): "the original has none",
    ("clip_inside_with", "missing unscale_"): "the original clipped scaled gradients",
    ("clip_inside_with", "clipping before unscaling"): "the original clipped scaled gradients",
}


def refused(before: str, after: str) -> list[Doubt]:
    review = Review(Was({"train.py": before}), {"train.py": after}, Wish())
    return [d for d in stepping.check(review) if d.verdict == "refuse"]


def cases() -> Iterator[tuple[str, str]]:
    """Every fault in the fixtures of another shape each, and one in three, in turn, in all others."""
    for number, name in enumerate(NAMES):
        after = (FIXTURES / name / "after.py").read_text(encoding="utf-8")
        for turn, (fault, plant) in enumerate(FAULTS.items()):
            if name not in ALL and (number + turn) % 3:
                continue
            if plant(after) != after and (name, fault) not in SAME:
                yield name, fault


@pytest.mark.parametrize(("name", "fault"), list(cases()))
def test_a_planted_fault_is_refused(name: str, fault: str) -> None:
    before = (FIXTURES / name / "before.py").read_text(encoding="utf-8")
    after = (FIXTURES / name / "after.py").read_text(encoding="utf-8")
    assert refused(before, FAULTS[fault](after)), FAULTS[fault](after)


@pytest.mark.parametrize("name", sorted(p.parent.name for p in FIXTURES.glob("*/before.py")))
def test_a_right_migration_is_not(name: str) -> None:
    before = (FIXTURES / name / "before.py").read_text(encoding="utf-8")
    after = (FIXTURES / name / "after.py").read_text(encoding="utf-8")
    review = Review(Was({"train.py": before}), {"train.py": after}, Wish())
    assert list(stepping.check(review)) == []


OF_THE_STEP = (
    "missing unscale_",
    "duplicate unscale_",
    "missing update",
    "update before step",
    "update between optimizers",
    "loss scaled twice",
    "backward on the unscaled loss",
    "clipping per micro-batch",
    "clipping before unscaling",
    "step of one optimizer lost",
)


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("fault", [None, *OF_THE_STEP])
def test_two_optimizers_of_one_scaler(fault: str | None, accumulation: int) -> None:
    regime = Regime(accumulation=accumulation)
    assert bool(refused(original(regime), migrated(regime, fault))) is (fault is not None)
