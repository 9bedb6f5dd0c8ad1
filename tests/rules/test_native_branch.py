"""Programs that choose between Apex and native AMP: the Apex branch goes, the native one stays as it is."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, check_untouched, rewrite
from tests.rules.programs import found

CHOICE = """
import torch
from apex import amp

from project import args, build, criterion, loader

model, optimizer = build()
scaler = torch.amp.GradScaler("cuda", enabled=args.amp == "native")
if args.amp == "apex":
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

for x, y in loader:
    with torch.autocast("cuda", enabled=args.amp == "native"):
        loss = criterion(model(x), y)
    if args.amp == "apex":
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    elif args.amp == "native":
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
"""


def test_the_apex_branch_goes_and_the_native_one_stays_byte_for_byte() -> None:
    expected = """
        import torch

        from project import args, build, criterion, loader

        model, optimizer = build()
        scaler = torch.amp.GradScaler("cuda", enabled=args.amp == "native")

        for x, y in loader:
            with torch.autocast("cuda", enabled=args.amp == "native"):
                loss = criterion(model(x), y)
            if args.amp == "native":
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                optimizer.step()
        """
    result = check_rewrite(CHOICE, expected)
    assert found(result, "AMP120")


def test_no_second_scaler_is_created_beside_the_native_one() -> None:
    after = rewrite(CHOICE).after
    assert after is not None
    assert after.count("GradScaler") == 1
    assert after.count("autocast") == 1


def test_a_scaler_of_an_unrelated_optimizer_is_no_native_branch() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader, other

        other_scaler = torch.amp.GradScaler("cuda")
        model, optimizer = build()
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

        for x, y in loader:
            loss = criterion(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            other(other_scaler, x)
        """
    after = rewrite(source).after
    assert after is not None
    assert "scaler.step(optimizer)" in after
    assert 'other_scaler = torch.amp.GradScaler("cuda")\n' in after


def test_a_native_program_is_left_alone() -> None:
    check_untouched(
        """
        import torch

        from project import build, criterion, loader  # apex is not needed

        model, optimizer = build()
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = criterion(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """
    )


def test_a_unit_that_is_only_half_native_is_not_left_mixed() -> None:
    source = CHOICE.replace(
        '    elif args.amp == "native":\n        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n'
        "        scaler.update()\n",
        "",
    )
    result = rewrite(source)
    if result.after is not None:
        assert "from apex" not in result.after
        assert "scale_loss" not in result.after
    else:
        assert [f for f in result.findings if f.status == "manual"]


def test_a_clip_that_the_native_branch_never_unscales_for_is_shown() -> None:
    clip = "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    apex_clips = CHOICE.replace("        optimizer.step()\n    elif", f"{clip}        optimizer.step()\n    elif")
    both_clip = apex_clips.replace("        scaler.step", f"{clip}        scaler.step")
    (finding,) = found(rewrite(both_clip), "AMP122")
    assert finding.review == "review"
    unscales = both_clip.replace(
        f"{clip}        scaler.step", f"        scaler.unscale_(optimizer)\n{clip}        scaler.step"
    )
    assert not found(rewrite(unscales), "AMP122")
    assert not found(
        rewrite(unscales.replace("scaler.unscale_", "scaler.unscal\N{MATHEMATICAL BOLD SMALL E}_")), "AMP122"
    )
    assert found(rewrite(both_clip.replace(clip, f"{clip.rstrip()}  # no unscale_ here\n")), "AMP122")
    assert not found(rewrite(CHOICE), "AMP122")


SAVED = (
    CHOICE
    + """
if args.amp == "apex":
    torch.save({"amp": amp.state_dict()}, "last.pt")
elif args.amp == "native":
    torch.save({"KEY": scaler.state_dict()}, "last.pt")
"""
)


def test_a_native_branch_that_saves_under_another_key_is_told() -> None:
    (note,) = found(rewrite(SAVED.replace("KEY", "scaler")), "AMP123")
    assert "--key amp --to-key scaler" in note.message
    assert not found(rewrite(SAVED.replace("KEY", "amp")), "AMP123")


CLEARED = CHOICE.replace("        with amp.scale_loss", "        optimizer.zero_grad()\n        with amp.scale_loss")


def test_a_native_branch_that_clears_gradients_as_well_stays() -> None:
    cleared = CLEARED.replace("        scaler.update()\n", "        scaler.update()\n        optimizer.zero_grad()\n")
    assert found(rewrite(cleared), "AMP120")[0].status == "done"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        scaler.update()\n", "        scaler.update()\n        clear()\n"),
        ("for x, y in loader:\n", "for x, y in loader:\n    optimizer.zero_grad()\n"),
        ("    if args.amp", "    optimizer.zero_grad()\n    if args.amp"),
    ],
)
def test_a_native_branch_that_comes_by_a_clearing_is_not_said_to_clear_none(old: str, new: str) -> None:
    helper = "def clear():\n    optimizer.zero_grad()\n\n\nfor x, y in loader:"
    result = rewrite(CLEARED.replace(old, new).replace("for x, y in loader:", helper))
    assert not [f for f in result.findings if "clears no gradients" in f.message]


def test_a_native_branch_that_clears_no_gradients_does_not_do_the_same() -> None:
    result = rewrite(CLEARED)
    assert result.after is None
    (told,) = [f for f in found(result, "AMP120") if f.construct == "zero_grad"]
    assert told.status == "manual"
    assert told.message.startswith(
        "the native branch at line 19 would stay in place of this one, and clears no gradients"
    )


KEPT = """
import torch
from apex import amp


def train(args, loader, checkpoint=None):
    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.apex:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
        if args.apex:
            amp.load_state_dict(checkpoint["amp"])
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        if args.native:
            with torch.autocast("cuda"):
                loss = (model(x) - y).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        elif args.apex:
            loss = (model(x) - y).pow(2).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        else:
            loss = (model(x) - y).pow(2).mean()
            loss.backward()
            optimizer.step()
    torch.save({"model": model.state_dict(), "amp": amp.state_dict() if args.apex else None}, "a.pt")
"""


def test_a_native_branch_that_keeps_no_state_stays_as_it_is() -> None:
    """What goes is Apex's state, and that is told: the program is no wrong migration for it."""
    result = rewrite(KEPT)
    assert "apex" not in (result.after or "").replace("args.apex", "")
    told = [f for f in result.findings if f.code == "AMP431"]
    assert [(f.line, f.status, f.review) for f in told] == [(13, "note", "review"), (32, "note", "review")]
    assert all("the native branch that stays keeps no scaler's state" in f.message for f in told)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("min_loss_scale=128.0", ["min_loss_scale=128.0"]),
        (
            "min_loss_scale=args.lowest, max_loss_scale=2**20",
            ["min_loss_scale=args.lowest", "max_loss_scale=1048576.0"],
        ),
        ("min_loss_scale=None, max_loss_scale=2**24", []),
        ("loss_scale=128.0, min_loss_scale=1.0", []),
    ],
)
def test_bounds_that_the_native_side_does_not_have_are_told(given: str, told: list[str]) -> None:
    result = rewrite(CHOICE.replace('opt_level="O1"', f'opt_level="O1", {given}'))
    assert result.after is not None
    assert [f.message.split()[0] for f in found(result, "AMP117")] == told
    assert not [f for f in found(result, "AMP119") if "lowest" in f.message]
