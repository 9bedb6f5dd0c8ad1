"""A scaler for each optimizer: their states are saved in a list, in the order of Apex's, and loaded each from its own entry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.rules.helpers import check_manual, check_rewrite, rewrite
from tests.rules.programs import apex, found, native
from tests.rules.test_state import GAN_INITIALIZE, GAN_LOOP, GAN_MODEL

SCALERS = 'scaler_one = torch.amp.GradScaler("cuda")\nscaler_two = torch.amp.GradScaler("cuda")'
CHECKPOINT = 'checkpoint = torch.load("last.pt")'
LOAD = 'amp.load_state_dict(checkpoint["amp"])'
SAVE = 'torch.save({{"amp": {}}}, "last.pt")\n'
NATIVE_LOOP = """
with torch.autocast("cuda", dtype=torch.float16):
    loss_a = criterion(a(x), y)
scaler_one.scale(loss_a).backward()
scaler_one.step(one)
scaler_one.update()
with torch.autocast("cuda", dtype=torch.float16):
    loss_b = criterion(b(x), y)
scaler_two.scale(loss_b).backward()
scaler_two.step(two)
scaler_two.update()
"""


def loaded(text: str, checkpoint: dict[str, Any]) -> list[tuple[float, int]]:
    """The scales and growth trackers that two scalers have once the part of a program between load and loop has run."""
    loader = text[text.index(CHECKPOINT) + len(CHECKPOINT) : text.index("\nfor x, y")]
    scalers = {name: torch.amp.GradScaler("cpu") for name in ("scaler_one", "scaler_two")}
    exec(loader, {"checkpoint": checkpoint, "args": SimpleNamespace(fp16=True), **scalers})
    return [(s.get_scale(), s.state_dict()["_growth_tracker"]) for s in scalers.values()]


def saved(scale: float, tracker: int) -> dict[str, Any]:
    return {**torch.amp.GradScaler("cpu").state_dict(), "scale": scale, "_growth_tracker": tracker}


APEX_STATE = {
    "loss_scaler0": {"loss_scale": 16.0, "unskipped": 1},
    "loss_scaler1": {"loss_scale": 32.0, "unskipped": 2},
}
FRESH = (65536.0, 0)


def test_each_scaler_loads_its_own_entry_of_the_saved_list() -> None:
    before = apex(
        GAN_LOOP, f"{GAN_INITIALIZE}\n{CHECKPOINT}\n{LOAD}", model=GAN_MODEL, tail=SAVE.format("amp.state_dict()")
    )
    load = (
        'if "scaler" in checkpoint:\n    for scaler, state in zip((scaler_one, scaler_two), checkpoint["scaler"]):\n'
        "        scaler.load_state_dict(state)"
    )
    tail = 'torch.save({"scaler": [scaler_one.state_dict(), scaler_two.state_dict()]}, "last.pt")\n'
    after = native(NATIVE_LOOP, f"{SCALERS}\n{CHECKPOINT}\n{load}", model=GAN_MODEL, tail=tail)
    result = check_rewrite(before, after)
    assert "checkpoint --list" in found(result, "AMP402")[0].message


@pytest.mark.parametrize(
    "load",
    [
        LOAD,
        'amp.load_state_dict(checkpoint.pop("amp"))',
        f'if "amp" in checkpoint:\n    {LOAD}',
        'old = checkpoint.get("amp")\namp.load_state_dict(old)',
    ],
)
@pytest.mark.parametrize("compatible", [False, True])
def test_states_come_back_to_their_scalers(load: str, compatible: bool) -> None:
    result = rewrite(
        apex(GAN_LOOP, f"{GAN_INITIALIZE}\n{CHECKPOINT}\n{load}", model=GAN_MODEL), checkpoint_compat=compatible
    )
    assert result.after is not None, result.findings
    assert loaded(result.after, {"scaler": [saved(4.0, 3), saved(8.0, 5)]}) == [(4.0, 3), (8.0, 5)]
    if compatible:
        assert loaded(result.after, {"amp": APEX_STATE}) == [(16.0, 1), (32.0, 2)]
    else:
        assert loaded(result.after, {"amp": APEX_STATE}) == [FRESH, FRESH]


def test_what_disabled_scalers_saved_is_not_loaded_into_enabled_ones() -> None:
    source = apex(
        GAN_LOOP,
        f"if args.fp16:\n    {GAN_INITIALIZE}\n{CHECKPOINT}\nif args.fp16:\n    {LOAD}",
        imports="from apex import amp\nfrom options import args",
        model=GAN_MODEL,
    )
    written = rewrite(source).after
    assert written is not None
    assert loaded(written, {"scaler": [{}, {}]}) == [FRESH, FRESH]
    assert loaded(written, {"scaler": [saved(4.0, 3), saved(8.0, 5)]}) == [(4.0, 3), (8.0, 5)]


def test_the_list_has_the_order_of_loss_ids_whichever_is_scaled_first() -> None:
    loop = (
        GAN_LOOP.replace("loss_id=0", "loss_id=9").replace("loss_id=1", "loss_id=0").replace("loss_id=9", "loss_id=1")
    )
    source = apex(
        loop, f"{GAN_INITIALIZE}\n{CHECKPOINT}\n{LOAD}", model=GAN_MODEL, tail=SAVE.format("amp.state_dict()")
    )
    written = rewrite(source, checkpoint_compat=True).after
    assert written is not None
    assert "[scaler_two.state_dict(), scaler_one.state_dict()]" in written
    assert loaded(written, {"amp": APEX_STATE}) == [(32.0, 2), (16.0, 1)]


def test_an_optimizer_with_two_losses_has_one_scaler_and_apex_s_states_fit_no_more() -> None:
    loop = GAN_LOOP.replace("loss_id=1", "loss_id=2") + (
        "loss_c = criterion(a(x), y)\nwith amp.scale_loss(loss_c, one, loss_id=1) as scaled:\n    scaled.backward()\n"
        "one.step()\n"
    )
    prepare = f"{GAN_INITIALIZE.replace('num_losses=2', 'num_losses=3')}\n{CHECKPOINT}\n{LOAD}"
    result = rewrite(apex(loop, prepare, model=GAN_MODEL))
    assert result.after is not None, result.findings
    assert "start anew" in found(result, "AMP402")[0].message
    check_manual(apex(loop, prepare, model=GAN_MODEL), "AMP402", checkpoint_compat=True)


def test_a_load_within_an_expression_has_no_place_for_a_loop() -> None:
    check_manual(apex(GAN_LOOP, f"{GAN_INITIALIZE}\n{CHECKPOINT}\ndone = {LOAD}", model=GAN_MODEL), "AMP402")
