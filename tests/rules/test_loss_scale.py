"""Private state of Apex: reads of the scale, initial settings, and what cannot be mapped."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, check_untouched, rewrite
from tests.rules.programs import APEX_LOOP, INITIALIZE, NATIVE_LOOP, SCALER, apex, check_refused, found, native

SCALE = "amp._amp_state.loss_scalers[0]"


@pytest.mark.parametrize(
    "read",
    [
        f"{SCALE}.loss_scale()",
        f"{SCALE}._loss_scale",
        'amp.state_dict()["loss_scaler0"]["loss_scale"]',
    ],
)
def test_reads_of_the_scale_become_get_scale(read: str) -> None:
    result = check_rewrite(apex(APEX_LOOP + f"print({read})"), native(NATIVE_LOOP + "print(scaler.get_scale())"))
    assert found(result, "AMP403")


@pytest.mark.parametrize(
    "imports",
    ["from apex.amp import _amp_state", "from apex.amp._amp_state import _amp_state"],
)
def test_the_state_may_be_imported_by_itself(imports: str) -> None:
    before = apex(
        APEX_LOOP + "print(_amp_state.loss_scalers[0].loss_scale())", imports=f"from apex import amp\n{imports}"
    )
    check_rewrite(before, native(NATIVE_LOOP + "print(scaler.get_scale())"))


def test_an_initial_scale_set_after_initialize_becomes_init_scale() -> None:
    before = apex(prepare=f"{INITIALIZE}\n{SCALE}._loss_scale = 2.0 ** 10")
    check_rewrite(before, native(prepare=SCALER.replace(")", ", init_scale=2.0 ** 10)")))


def test_a_window_set_after_initialize_becomes_growth_interval() -> None:
    before = apex(prepare=f"{INITIALIZE}\n{SCALE}._scale_seq_len = 500")
    check_rewrite(before, native(prepare=SCALER.replace(")", ", growth_interval=500)")))


@pytest.mark.parametrize(
    "use",
    [
        f"print({SCALE}._unskipped)",
        f"{SCALE}.update_scale()",
        "amp._amp_state.loss_scalers.append(None)",
        "print(amp._amp_state.opt_properties.opt_level)",
        'print(amp.state_dict()["loss_scaler0"]["unskipped"])',
    ],
)
def test_other_uses_of_private_state_are_refused_with_the_whole_unit(use: str) -> None:
    result = check_refused(apex(APEX_LOOP + use), "AMP404")
    assert {"amp.initialize", "amp.scale_loss"} <= {f.construct for f in result.findings}


def test_the_scale_in_another_function_reaches_its_scaler() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader, log


        def report(step, optimizer):
            log(step, amp._amp_state.loss_scalers[0].loss_scale(), optimizer.param_groups[0]["lr"])


        def main():
            model, optimizer = build()
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for step, (x, y) in enumerate(loader):
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
                report(step, optimizer)
        """
    after = rewrite(source).after
    assert after is not None
    assert "def report(step, optimizer, scaler):\n    log(step, scaler.get_scale(), optimizer." in after
    assert "        report(step, optimizer, scaler)\n" in after


def test_attributes_of_the_same_name_elsewhere_are_left_alone() -> None:
    check_untouched("class Scaler:\n    _amp_state = None  # apex\nprint(Scaler._amp_state, Scaler().loss_scale)\n")
