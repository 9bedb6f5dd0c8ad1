"""A set-up that asks for Apex alone, and losses that are scaled where a flag asks for it: the flag is the switch."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import found

TRAIN = """
    import torch
    from config import cfg
    try:
        from apex import amp
        HAS_APEX = True
    except ImportError:
        HAS_APEX = False


    def main(args, batches):
        model = torch.nn.Linear(4, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        {guard}
            model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale="dynamic")
        {between}
        {call}
        for x, y in batches:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            if {asked}:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
"""
FUNCTION = "train(cfg, args, model, optimizer, batches)\n\n\n    def train(config, args, model, optimizer, batches):"


def migrated(asked: str, guard: str = "if HAS_APEX:", between: str = "pass", call: str = "pass") -> str:
    after = rewrite(TRAIN.format(asked=asked, guard=guard, between=between, call=call)).after
    assert after is not None
    return after


def switches(after: str) -> list[str]:
    """What the scaler, and the region, are switched by."""
    lines = [line.strip() for line in after.splitlines() if "GradScaler(" in line or "torch.autocast(" in line]
    return [line.partition("enabled=")[2] for line in lines]


@pytest.mark.parametrize("asked", ["cfg.USE_AMP", "args.fp16", "args.fp16 and not args.debug"])
@pytest.mark.parametrize("guard", ["if HAS_APEX:", "if amp is not None:"])
def test_the_flag_that_the_losses_ask_for_switches_the_scaler_and_the_region(asked: str, guard: str) -> None:
    scaler, region = switches(migrated(asked, guard))
    assert asked in scaler
    assert asked in region or "scaler.is_enabled()" in region


def test_a_flag_of_the_function_that_trains_is_read_as_its_caller_has_it() -> None:
    scaler, region = switches(migrated("config.USE_AMP", call=FUNCTION))
    assert "cfg.USE_AMP" in scaler
    assert "cfg.USE_AMP" in region


@pytest.mark.parametrize(
    ("asked", "guard", "between"),
    [
        ("cfg.USE_AMP", "with torch.enable_grad():", "pass"),  # Apex is set up in any case
        ("use_amp", "if HAS_APEX:", "use_amp = args.fp16"),  # not known yet at the set-up
        ("HAS_APEX", "if HAS_APEX:", "pass"),
    ],
)
def test_what_cannot_be_asked_at_the_set_up_or_is_not_the_switch_is_none(asked: str, guard: str, between: str) -> None:
    assert switches(migrated(asked, guard, between))[0] == ""


def test_losses_that_ask_for_different_things_share_no_switch() -> None:
    text = TRAIN.format(asked="cfg.USE_AMP", guard="if HAS_APEX:", between="pass", call="pass")
    loop = text[text.index("        for x, y") :]
    both = rewrite(text + loop.replace("cfg.USE_AMP", "args.fp16"))
    assert both.after is None or switches(both.after)[0] == ""


def test_what_is_different_is_told_and_what_is_not_is_not() -> None:
    """A run with Apex, and without the flag, trained no half weights; one without Apex trained in float32, as it does."""
    source = TRAIN.format(asked="cfg.USE_AMP", guard="if HAS_APEX:", between="pass", call="pass")
    results = rewrite_files({"train.py": source, "config.py": "cfg = make()\ncfg.USE_AMP = False\n"})
    told = results["train.py"]
    assert [f.review for f in found(told, "AMP532")] == ["review"]
    assert "where not USE_AMP" in found(told, "AMP531")[0].message
    assert not found(told, "AMP133")
    assert not [f for r in results.values() for f in r.findings if f.code == "AMP119"]
    failing = rewrite(source.replace("if cfg.USE_AMP:", "if cfg.USE_AMP and HAS_APEX:"))
    assert found(failing, "AMP133")


@pytest.mark.parametrize("flag", ["use_amp", "args.fp16"])
def test_a_flag_that_is_given_again_further_down_is_no_switch(flag: str) -> None:
    """The scaler, made once, would stay as it was while the regions go on."""
    text = TRAIN.format(asked=flag, guard="if HAS_APEX:", between="pass", call="pass")
    text = text.replace("        if HAS_APEX:", f"        {flag} = args.half\n        if HAS_APEX:")
    once = rewrite(text).after
    assert once is not None
    assert flag in switches(once)[0]
    again = rewrite(
        text.replace("            if " + flag, f"            {flag} = len(x) > 3\n            if {flag}")
    ).after
    assert again is None or switches(again)[0] == ""


def test_a_field_that_others_set_is_no_switch() -> None:
    text = TRAIN.format(asked="args.fp16", guard="if HAS_APEX:", between="pass", call="pass")
    results = rewrite_files({"train.py": text, "run.py": "def prepare(args):\n    args.fp16 = True\n"})
    after = results["train.py"].after
    assert after is not None
    assert switches(after)[0] == ""


def test_what_only_begins_like_the_switch_is_another_flag() -> None:
    text = TRAIN.format(asked="args.fp16", guard="if HAS_APEX and args.fp16_all:", between="pass", call="pass")
    assert found(rewrite(text), "AMP133")
