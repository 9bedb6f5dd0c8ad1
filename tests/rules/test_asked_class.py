"""An optimizer that DeepSpeed is handed, which asks for its class: AMP621."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

MADE = """
import deepspeed
import torch
from apex.optimizers import FusedAdam

def optimizer_of(model):
    groups = [{"params": model.parameters(), "weight_decay": 0.1}]
    return FusedAdam(groups, lr=0.1)

def main(args, model):
    optimizer = optimizer_of(model)
    HANDED
"""
ENGINE = "engine, optimizer, _, _ = deepspeed.initialize({})\n    return engine"


@pytest.mark.parametrize(
    ("handed", "said"),
    [
        (ENGINE.format("args=args, model=model, optimizer=optimizer"), True),
        (ENGINE.format("args, model, optimizer"), True),
        ("if args.fp16:\n        " + ENGINE.format("model=model, optimizer=optimizer"), True),
        (ENGINE.format("args, model, optimizer").replace("deepspeed.", "held.deepspeed."), True),
        (ENGINE.format("args=args, model=model"), False),
        ("return optimizer", False),
    ],
)
def test_deepspeed_is_said_to_ask_for_the_class(handed: str, said: bool) -> None:
    (result,) = rewrite_files({"train.py": MADE.replace("HANDED", handed)}).values()
    assert "AdamW" in (result.after or "")
    (found,) = [f for f in result.findings if f.code == "AMP621"]
    assert ("zero_allow_untested_optimizer" in found.message) == said
    assert (found.review == "look") >= said
