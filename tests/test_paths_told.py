"""Paths within messages are those that the report shows."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files
from tests.rules.programs import HALVED


@pytest.mark.parametrize("path", ["train.py", "train_1.0.py", "src/app/train_0.6.2.py"])
def test_a_caller_is_named_by_its_path_whatever_dots_that_has(path: str) -> None:
    result = rewrite_files({path: HALVED.replace("WHERE", "args.fp16 and args.train")})[path]
    (told,) = [f.message for f in result.findings if "called from" in f.message]
    assert f"called from {path}:23," in told
