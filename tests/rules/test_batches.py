"""Batch classes whose `to` Apex called to cast the model's inputs."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import APEX_LOOP, MODEL, apex, found, initialize

BATCH = """\
class Batch:
    def __init__(self, x):
        self.x = x

    def {}(self, *args, **kwargs):
        return Batch(self.x.to(*args, **kwargs))


"""


def program(level: str, method: str = "to") -> str:
    loop = APEX_LOOP.replace("model(x)", "model(Batch(x))")
    return apex(loop, initialize(f'opt_level="{level}"'), model=BATCH.format(method) + MODEL)


@pytest.mark.parametrize("level", ["O2", "O3"])
def test_a_batch_class_with_its_own_to_is_reported(level: str) -> None:
    (finding,) = found(rewrite(program(level)), "AMP506")
    assert "Batch.to" in finding.message


@pytest.mark.parametrize(("level", "method"), [("O1", "to"), ("O2", "move")])
def test_levels_that_cast_no_inputs_and_classes_without_to_are_not_meant(level: str, method: str) -> None:
    assert not found(rewrite(program(level, method)), "AMP506")
