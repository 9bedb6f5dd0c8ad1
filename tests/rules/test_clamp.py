"""`min_loss_scale` and `max_loss_scale`: the scale is put back where it leaves its bounds."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import NATIVE_LOOP, SCALER, apex, found, initialize, native

ARGS = "from options import args"


def prepared(arguments: str) -> str:
    return apex(prepare=initialize(f'opt_level="O1", {arguments}'), imports=f"from apex import amp\n{ARGS}")


@pytest.mark.parametrize(
    ("bound", "text"), [("2.**17", "2.**17"), ("2**17", "131072.0"), ("1 << 17", "131072.0"), ("131072", "131072.0")]
)
def test_an_upper_bound_written_as_arithmetic_is_kept_and_is_a_float(bound: str, text: str) -> None:
    clamp = f"if scaler.get_scale() > {text}:\n    scaler.update({text})\n"
    check_rewrite(prepared(f"max_loss_scale={bound}"), native(NATIVE_LOOP + clamp, imports=ARGS))


@pytest.mark.parametrize("bound", ["2.**24", "2 ** 24", "16777216.0"])
def test_the_default_of_apex_is_not_written_out(bound: str) -> None:
    check_rewrite(prepared(f"max_loss_scale={bound}"), native(imports=ARGS))


def test_a_scale_that_may_not_reach_the_usual_start_starts_at_its_bound() -> None:
    clamp = "if scaler.get_scale() > 1024.0:\n    scaler.update(1024.0)\n"
    scaler = SCALER.replace(")", ", init_scale=1024.0)")
    check_rewrite(prepared("max_loss_scale=1024"), native(NATIVE_LOOP + clamp, scaler, imports=ARGS))


def test_a_lower_bound_known_at_run_time_may_be_none() -> None:
    clamp = "if args.low and scaler.get_scale() < args.low:\n    scaler.update(float(args.low))\n"
    check_rewrite(prepared("min_loss_scale=args.low"), native(NATIVE_LOOP + clamp, imports=ARGS))


def test_an_upper_bound_known_at_run_time_is_kept() -> None:
    clamp = "if scaler.get_scale() > args.high:\n    scaler.update(float(args.high))\n"
    scaler = SCALER.replace(")", ", init_scale=min(2.0**16, args.high))")
    check_rewrite(prepared("max_loss_scale=args.high"), native(NATIVE_LOOP + clamp, scaler, imports=ARGS))


@pytest.mark.parametrize("options", ["", ', loss_scale=args.scale if args.scale else "dynamic"'])
def test_the_first_scale_is_within_its_bound(options: str) -> None:
    """Apex starts a dynamic scale at the lower of 65536 and the upper bound; a step long before `update()` is scaled so."""
    source = f"""
        import argparse
        import torch
        from apex import amp

        def main(high, scale):
            args = argparse.Namespace(high=high, scale=scale)
            model = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1", max_loss_scale=args.high{options})
            for x in torch.ones(2, 4, 2):
                loss = model(x).mean()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    seen.append(scaled_loss.item() / loss.item())
                    scaled_loss.backward()
                optimizer.step()
        """
    after = rewrite(source, device="cpu").after
    assert after is not None
    for high, scale, first in ((4096.0, None, 4096.0), (2.0**20, None, 2.0**16)):
        seen: list[float] = []
        space = {"seen": seen}
        exec(compile(after, "train.py", "exec"), space)
        space["main"](high, scale)  # type: ignore[operator]
        assert seen[0] == pytest.approx(first)


def test_a_static_scale_needs_no_bounds() -> None:
    after = rewrite(prepared("loss_scale=128.0, max_loss_scale=64.0, min_loss_scale=1.0")).after
    assert after is not None
    assert "get_scale" not in after


CALLED = """
        import torch
        from apex import amp

        from project import bound, build, criterion, loader


        def train(model, optimizer, scheduler):
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()


        def main():
            low = bound()
            model, optimizer = build()
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1", min_loss_scale=low)
            train(model, optimizer, None)
        """


def test_a_bound_that_the_step_cannot_see_is_handed_there() -> None:
    after = rewrite(CALLED).after
    assert after is not None
    assert "train(model, optimizer, scaler, low, None)" in after
    assert "if min_loss_scale and scaler.get_scale() < min_loss_scale:" in after
    assert "scaler.update(float(min_loss_scale))" in after


def test_a_bound_that_the_scaler_cannot_see_is_reported() -> None:
    """It is a local of the function that only prepares."""
    source = """
        from apex import amp

        from project import bound, build, criterion, loader


        def prepare(model, optimizer):
            low = bound()
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1", min_loss_scale=low)
            return model, optimizer


        def main():
            model, optimizer = build()
            model, optimizer = prepare(model, optimizer)
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    result = rewrite(source)
    assert result.after is not None
    assert "get_scale" not in result.after
    (finding,) = found(result, "AMP117")
    assert finding.review == "review"
    assert "min_loss_scale=low" in finding.message
    result = rewrite(source.replace("min_loss_scale", "max_loss_scale"))
    assert result.after is not None
    assert "init_scale" not in result.after
    assert "max_loss_scale=low does not bound the first scale" in " ".join(f.message for f in found(result, "AMP117"))


def test_a_bound_above_the_usual_start_leaves_that() -> None:
    after = rewrite(prepared("max_loss_scale=100000.0")).after
    assert after is not None
    assert "init_scale" not in after
    assert "if scaler.get_scale() > 100000.0:" in after
