"""The dtype of every measured operation under O1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from amp_testing import amp, fresh_amp
from op_calls import CALLS, TABLE, result_dtype, rows


@pytest.fixture(scope="module", autouse=True)
def casts() -> Iterator[None]:
    with fresh_amp():
        torch.manual_seed(0)
        amp.init()
        yield


def test_every_row_has_a_call() -> None:
    assert set(CALLS) == set(TABLE)


@pytest.mark.parametrize(("op", "given", "expected"), rows("apex_O1"))
def test_dtype_under_o1(op: str, given: str, expected: str) -> None:
    if expected == "error":
        with pytest.raises((RuntimeError, NotImplementedError)):
            result_dtype(op, given)
    else:
        assert result_dtype(op, given) == expected
