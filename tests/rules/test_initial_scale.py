"""The loss scale that `amp.initialize` was asked for: static, dynamic, bounded, known only at run time."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import NATIVE_LOOP, UNSCALED_LOOP, apex, found, initialize, native
from tests.rules.test_initialize import SWITCH, loop, scaler


@pytest.mark.parametrize("scale", ["128.0", '"128.0"', "128"])
def test_a_static_scale_stays_static_and_skipping_is_reported(scale: str) -> None:
    result = check_rewrite(
        apex(prepare=initialize(f'opt_level="O1", loss_scale={scale}')),
        native(loop(update="128.0"), scaler("init_scale=128.0")),
    )
    (finding,) = found(result, "AMP114")
    assert "skipped" in finding.message


@pytest.mark.parametrize("scale", ["1.0", "1", '"1.0"'])
def test_a_static_scale_of_one_is_no_scaling(scale: str) -> None:
    result = check_rewrite(
        apex(prepare=initialize(f'opt_level="O1", loss_scale={scale}')), native(UNSCALED_LOOP, prepare="")
    )
    (finding,) = found(result, "AMP201")
    assert finding.message == "a plain backward: the loss scale was always 1"


@pytest.mark.parametrize("name", ["loss", "scaled_loss"])
def test_an_unscaled_loss_under_its_own_name_is_not_assigned_to_itself(name: str) -> None:
    before = apex(prepare=initialize('opt_level="O1", loss_scale=1.0')).replace("scaled_loss", name)
    again = before.replace(f"        {name}.backward()", f"        {name}.backward()\n        print({name})")
    assert again != before
    after = rewrite(again).after
    assert after is not None
    assert "loss = loss" not in after.replace("scaled_loss = loss", "")
    assert ("scaled_loss = loss" in after) == (name == "scaled_loss")


@pytest.mark.parametrize(
    "kept", ['torch.save({"amp": amp.state_dict()}, "last.pt")', "print(amp._amp_state.loss_scalers)"]
)
def test_a_scale_of_one_whose_state_is_kept_has_a_scaler_that_is_off(kept: str) -> None:
    result = rewrite(apex(prepare=initialize('opt_level="O1", loss_scale=1.0'), tail=kept))
    assert result.after is None or 'scaler = torch.amp.GradScaler("cuda", enabled=False)' in result.after


def test_a_scale_that_is_one_for_some_losses_is_scaled() -> None:
    before = apex(prepare=initialize('opt_level="O1", loss_scale=1.0 if args.plain else "dynamic"'))
    assert "scaler.scale(" in (rewrite("args = parse()\n" + before).after or "")


@pytest.mark.parametrize("scale", ['"dynamic"', "None", '"dyn" "amic"'])
def test_a_dynamic_scale_is_what_grad_scaler_does_by_itself(scale: str) -> None:
    check_rewrite(apex(prepare=initialize(f'opt_level="O1", loss_scale={scale}')), native())


def test_a_run_time_scale_may_be_none_dynamic_a_number_or_its_string() -> None:
    options = SWITCH.replace('"--fp16", action="store_true"', '"--loss-scale", default=None')
    before = apex(
        prepare=initialize('opt_level="O1", loss_scale=args.loss_scale'), imports="from apex import amp\n" + options
    )
    after = native(
        loop(update="args.loss_scale"),
        'args.loss_scale = None if args.loss_scale in (None, "dynamic") else float(args.loss_scale)\n'
        + scaler("init_scale=args.loss_scale or 2.0**16"),
        imports=options,
    )
    check_rewrite(before, after)


def test_a_lower_bound_of_the_scale_is_kept_by_setting_it() -> None:
    before = apex(prepare=initialize('opt_level="O1", min_loss_scale=1.0'))
    clamp = "if scaler.get_scale() < 1.0:\n    scaler.update(1.0)\n"
    check_rewrite(before, native(NATIVE_LOOP + clamp))


def test_an_upper_bound_of_the_scale_is_kept_by_setting_it() -> None:
    before = apex(prepare=initialize('opt_level="O1", max_loss_scale=65536.0'))
    clamp = "if scaler.get_scale() > 65536.0:\n    scaler.update(65536.0)\n"
    check_rewrite(before, native(NATIVE_LOOP + clamp))


def test_the_default_upper_bound_is_not_spelled_out() -> None:
    check_rewrite(apex(prepare=initialize('opt_level="O1", max_loss_scale=16777216.0')), native())


def test_a_choice_between_o1_and_o0_is_its_condition() -> None:
    before = apex(
        prepare=initialize('opt_level="O1" if args.fp16 else "O0"'), imports="from apex import amp\n" + SWITCH
    )
    check_rewrite(before, native(loop("args.fp16"), scaler("enabled=args.fp16"), imports=SWITCH))


def test_an_upper_bound_written_as_a_power_is_kept_too() -> None:
    before = apex(prepare=initialize('opt_level="O1", max_loss_scale=2.**16'))
    after = rewrite(before).after
    assert after is not None
    assert "if scaler.get_scale() > " in after


@pytest.mark.parametrize("bound", ["min_loss_scale", "max_loss_scale"])
def test_a_run_time_bound_of_the_scale_is_kept_or_reported(bound: str) -> None:
    options = SWITCH.replace('"--fp16", action="store_true"', '"--bound", type=float')
    source = apex(prepare=initialize(f'opt_level="O1", {bound}=args.bound'), imports="from apex import amp\n" + options)
    result = rewrite(source)
    clamped = result.after is not None and "args.bound" in result.after
    assert clamped or any(bound in finding.message for finding in result.findings)


HELPED = """
    import argparse
    import torch
    from apex import amp

    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", default="dynamic")
    parser.add_argument("--level", default="O1")


    def prepare(model, optimizer, args):
        {scale}
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=scale)
        return model, optimizer


    def train(model, optimizer, loader):
        for x, y in loader:
            loss = (model(x) - y).pow(2).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            optimizer.zero_grad()


    def main(args, loader):
        model = torch.nn.Linear(2, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = prepare(model, optimizer, args)
        train(model, optimizer, loader)


    if __name__ == "__main__":
        main(parser.parse_args(), [(torch.ones(2, 2).cuda(), torch.ones(2, 2).cuda())])
"""


@pytest.mark.parametrize(
    "scale",
    [
        'scale = float(args.scale) if args.scale != "dynamic" else "dynamic"',
        'scale = "dynamic" if args.scale == "dynamic" else float(args.scale)',
        'if args.scale != "dynamic":\n            scale = float(args.scale)\n        else:\n            scale = "dynamic"',
        "scale = args.scale",
    ],
)
def test_a_scale_that_a_helper_makes_of_an_option_is_read_from_the_option_by_its_caller(scale: str) -> None:
    result = rewrite(HELPED.replace("{scale}", scale))
    after = result.after or ""
    assert 'scale = None if args.scale in (None, "dynamic") else float(args.scale)\n' in after
    assert "scale is None" not in after
    assert "init_scale=" in after
    assert "def prepare(" not in after or "scale = float(args.scale)" not in after
    assert not [f for f in result.findings if f.status == "manual"]


@pytest.mark.parametrize(
    "scale",
    [
        'scale = float(args.scale) if args.level != "O3" else "dynamic"',
        "scale = float(args.scale) * 2",
        'scale = 128.0 if args.scale != "dynamic" else "dynamic"',
        'scale = float(args.scale)\n        if args.level == "O2":\n            scale = float(args.level)',
    ],
)
def test_a_scale_that_is_made_otherwise_is_not(scale: str) -> None:
    result = rewrite(HELPED.replace("{scale}", scale))
    assert found(result, "AMP114")
    assert "scale = args.scale\n" not in (result.after or "")
