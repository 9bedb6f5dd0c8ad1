"""A loss scale that the level, or the switch, decides: where the set-up is on it is one of the two, and nothing is to be asked."""

from __future__ import annotations

import ast

import pytest

from tests.rules.helpers import names_of, rewrite

SOURCE = """\
import torch
from apex import amp


def train(args, model, opt, batches):
    model, opt = amp.initialize(model, opt, OPTIONS)
    for x in batches:
        opt.zero_grad()
        with amp.scale_loss(model(x).sum(), opt) as scaled:
            scaled.backward()
        opt.step()
"""
LEVEL = "opt_level=args.level"


def migrated(options: str) -> tuple[str, list[str]]:
    result = rewrite(SOURCE.replace("OPTIONS", options), device="cpu")
    assert result.after is not None
    ast.parse(result.after)
    assert callable(names_of(result.after)["train"])
    return result.after, [f.message for f in result.findings if f.code in ("AMP112", "AMP114")]


@pytest.mark.parametrize(
    "scale",
    [
        '1 if args.level == "O0" else "dynamic"',
        '"dynamic" if args.level != "O0" else 1.0',
        'None if not args.level == "O0" else 1',
        '1 if args.level == "O0" else ("dynamic" if args.level != "O0" else 8)',
    ],
)
def test_a_scale_that_only_o0_has_is_none_where_the_scaler_is_on(scale: str) -> None:
    after, told = migrated(f"{LEVEL}, loss_scale={scale}")
    assert 'GradScaler("cpu", enabled=args.level != "O0")' in after
    assert "scaler.update()" in after
    assert any("O0 still switches mixed precision off" in t for t in told)
    assert not any("decides the loss scale" in t for t in told)


def test_a_number_that_only_the_others_have_is_held() -> None:
    after, told = migrated(f'{LEVEL}, loss_scale=1.0 if args.level == "O0" else 128.0')
    assert "init_scale=128.0" in after
    assert "scaler.update(128.0)" in after
    assert not any("decides the loss scale" in t for t in told)


def test_the_switch_of_the_set_up_decides_as_well() -> None:
    after, _ = migrated('opt_level="O1", enabled=args.fp16, loss_scale="dynamic" if args.fp16 else 1.0')
    assert 'GradScaler("cpu", enabled=bool(args.fp16))' in after
    assert "scaler.update()" in after


@pytest.mark.parametrize(
    "scale",
    [
        '1 if args.other == "O0" else "dynamic"',
        '128.0 if args.level == "O2" else "dynamic"',
        '1 if args.level in ("O0", "O1") else "dynamic"',
    ],
)
def test_another_question_is_asked_still(scale: str) -> None:
    after, _ = migrated(f"{LEVEL}, loss_scale={scale}")
    assert "scaler.update(loss_scale)" in after


def test_what_only_o0_scales_is_told() -> None:
    _, told = migrated(f'{LEVEL}, loss_scale="dynamic" if args.level == "O0" else 128.0')
    assert any('with loss_scale="dynamic" Apex scaled there in float32' in t for t in told)
