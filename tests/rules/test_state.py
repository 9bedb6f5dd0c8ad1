"""`amp.state_dict` and `amp.load_state_dict`: a key of its own, guarded, loaded into a scaler that exists by then."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.rules.helpers import check_rewrite, check_untouched, rewrite
from tests.rules.programs import APEX_LOOP, INITIALIZE, NATIVE_LOOP, SCALER, apex, check_refused, found, native

LOAD = 'checkpoint = torch.load("last.pt")\nmodel.load_state_dict(checkpoint["model"])\n'
SAVE = 'torch.save({{"model": model.state_dict(), {}}}, "last.pt")\n'


def migrated(prepare: str, tail: str = "", **options: bool) -> str:
    """What a script becomes that loads after initialize and saves at the end."""
    result = rewrite(apex(prepare=prepare, tail=tail), **options)
    assert result.after is not None
    return result.after


def test_the_state_is_saved_under_a_key_of_its_own_never_in_a_new_layout_under_the_old_key() -> None:
    before = apex(tail=SAVE.format('"amp": amp.state_dict()'))
    result = check_rewrite(before, native(tail=SAVE.format('"scaler": scaler.state_dict()')))
    assert found(result, "AMP401")[0].review == "look"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("'amp': amp.state_dict()", "'scaler': scaler.state_dict()"),
        ('"amp_state": amp.state_dict()', '"scaler_state": scaler.state_dict()'),
        ('"AMP": amp.state_dict()', '"scaler": scaler.state_dict()'),
    ],
)
def test_the_key_keeps_its_quotes_and_what_else_it_says(before: str, after: str) -> None:
    check_rewrite(apex(tail=SAVE.format(before)), native(tail=SAVE.format(after)))


def test_a_state_put_into_a_dict_one_by_one() -> None:
    before = apex(tail='state = {}\nstate["amp"] = amp.state_dict()\ntorch.save(state, "last.pt")\n')
    after = native(tail='state = {}\nstate["scaler"] = scaler.state_dict()\ntorch.save(state, "last.pt")\n')
    check_rewrite(before, after)


def test_old_checkpoints_without_the_new_key_still_load_because_the_read_is_guarded() -> None:
    before = apex(prepare=f'{INITIALIZE}\n{LOAD}amp.load_state_dict(checkpoint["amp"])')
    guarded = 'if "scaler" in checkpoint:\n    scaler.load_state_dict(checkpoint["scaler"])'
    result = check_rewrite(before, native(prepare=f"{SCALER}\n{LOAD}{guarded}"))
    (finding,) = found(result, "AMP402")
    assert "amp-migrate checkpoint converts" in finding.message


@pytest.mark.parametrize(
    ("key", "command"),
    [("amp", "checkpoint converts"), ("amp_state", "checkpoint --to-key scaler_state converts")],
)
def test_the_command_that_converts_puts_the_state_where_it_is_looked_for(key: str, command: str) -> None:
    result = rewrite(apex(prepare=f'{INITIALIZE}\n{LOAD}amp.load_state_dict(checkpoint["{key}"])'))
    (finding,) = found(result, "AMP402")
    assert f"amp-migrate {command} old files" in finding.message


def test_a_guard_that_is_there_already_gets_the_new_key() -> None:
    before = apex(prepare=f'{INITIALIZE}\n{LOAD}if "amp" in checkpoint:\n    amp.load_state_dict(checkpoint["amp"])')
    guarded = 'if "scaler" in checkpoint:\n    scaler.load_state_dict(checkpoint["scaler"])'
    check_rewrite(before, native(prepare=f"{SCALER}\n{LOAD}{guarded}"))


def test_one_scaler_for_several_losses_saves_one_state() -> None:
    prepare = INITIALIZE.replace(")", ", num_losses=2)") + f'\n{LOAD}amp.load_state_dict(checkpoint["amp"])'
    after = rewrite(apex(prepare=prepare, tail=SAVE.format('"amp": amp.state_dict()'))).after
    assert after is not None
    assert '"scaler": scaler.state_dict()' in after
    assert 'scaler.load_state_dict(checkpoint["scaler"])' in after


GAN_MODEL = (
    "a, b = build(), build()\none = torch.optim.SGD(a.parameters(), lr=0.1)\n"
    "two = torch.optim.SGD(b.parameters(), lr=0.1)"
)
GAN_INITIALIZE = '[a, b], [one, two] = amp.initialize([a, b], [one, two], opt_level="O1", num_losses=2)'
GAN_LOOP = """
loss_a = criterion(a(x), y)
with amp.scale_loss(loss_a, one, loss_id=0) as scaled:
    scaled.backward()
one.step()
loss_b = criterion(b(x), y)
with amp.scale_loss(loss_b, two, loss_id=1) as scaled:
    scaled.backward()
two.step()
"""


def test_scalers_of_several_optimizers_are_saved_together() -> None:
    tail = 'torch.save({"amp": amp.state_dict()}, "last.pt")\n'
    after = rewrite(apex(GAN_LOOP, GAN_INITIALIZE, model=GAN_MODEL, tail=tail)).after
    assert after is not None
    for scaler in ("scaler_one", "scaler_two"):
        if scaler in after:
            assert f"{scaler}.state_dict()" in after
    assert after.count(".state_dict()") == after.count("GradScaler(")


def test_without_a_scaler_nothing_is_saved_or_loaded() -> None:
    prepare = f'{INITIALIZE}\n{LOAD}amp.load_state_dict(checkpoint["amp"])'
    after = rewrite(apex(prepare=prepare, tail=SAVE.format('"amp": amp.state_dict()')), dtype="bfloat16").after
    assert after is not None
    assert "scaler" not in after
    assert "amp." not in after.replace("torch.amp.", "")


def test_a_half_model_saved_under_o2_needs_a_cast_of_its_own_for_deployment_which_is_noted() -> None:
    tail = 'torch.save(model.state_dict(), "export.pt")\n'
    result = rewrite(apex(prepare=INITIALIZE.replace("O1", "O2"), tail=tail))
    assert "; checkpoints hold float32, as before)" in found(result, "AMP112")[0].message


def test_another_state_dict_is_left_alone() -> None:
    check_untouched('import torch\nmodel.load_state_dict(torch.load("apex.pt")["amp"])\n')


def test_a_loop_without_checkpoints_saves_none() -> None:
    after = rewrite(apex(APEX_LOOP)).after
    assert after == native(NATIVE_LOOP)
    assert "state_dict" not in after


def test_state_without_initialize_in_sight_is_reported() -> None:
    source = """
        import torch
        from apex import amp


        def save(model, path):
            torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, path)
        """
    check_refused(source, "AMP116")


def test_a_scaler_is_created_before_its_state_is_loaded() -> None:
    before = apex(prepare=f'{LOAD}amp.load_state_dict(checkpoint["amp"])\n{INITIALIZE}')
    result = rewrite(before)
    if result.after is None:
        assert [f for f in result.findings if f.status == "manual"]
    else:
        assert result.after.index("scaler = torch.amp.GradScaler") < result.after.index("scaler.load_state_dict")


@pytest.mark.parametrize(
    ("load", "after"),
    [
        (
            'amp.load_state_dict(checkpoint.get("amp"))',
            'if "scaler" in checkpoint:\n    scaler.load_state_dict(checkpoint["scaler"])',
        ),
        (
            'amp.load_state_dict(checkpoint.pop("amp"))',
            'if "scaler" in checkpoint:\n    scaler.load_state_dict(checkpoint.pop("scaler"))',
        ),
        (
            'state = checkpoint["amp"]\namp.load_state_dict(state)',
            'state = checkpoint.get("scaler")\nif state:\n    scaler.load_state_dict(state)',
        ),
        (
            'amp.load_state_dict(torch.load("last.pt")["amp"])',
            'scaler_state = torch.load("last.pt").get("scaler")\nif scaler_state:\n'
            "    scaler.load_state_dict(scaler_state)",
        ),
        (
            'if checkpoint.get("amp") is not None:\n    amp.load_state_dict(checkpoint["amp"])',
            'if "scaler" in checkpoint:\n    scaler.load_state_dict(checkpoint["scaler"])',
        ),
        (
            'amp.load_state_dict(checkpoint["apex"])',
            'if "scaler" in checkpoint:\n    scaler.load_state_dict(checkpoint["scaler"])',
        ),
    ],
)
def test_the_layout_of_apex_is_never_loaded_into_a_scaler(load: str, after: str) -> None:
    check_rewrite(apex(prepare=f"{INITIALIZE}\n{LOAD}{load}"), native(prepare=f"{SCALER}\n{LOAD}{after}"))


def test_a_state_whose_key_is_out_of_sight_is_told_by_its_layout_and_put_up_for_review() -> None:
    before = apex(prepare=f'{INITIALIZE}\namp.load_state_dict(torch.load("amp.pt"))')
    after = native(
        prepare=f'{SCALER}\nscaler_state = torch.load("amp.pt")\nif "scale" in scaler_state:\n'
        "    scaler.load_state_dict(scaler_state)"
    )
    result = check_rewrite(before, after)
    assert "review" in [finding.review for finding in found(result, "AMP402")]


@pytest.mark.parametrize(
    ("load", "after"),
    [
        ('amp.load_state_dict(checkpoint["amp"])', 'if checkpoint.get("scaler"):\n    scaler.load_state_dict('),
        (
            'if args.fp16 and "amp" in checkpoint:\n    amp.load_state_dict(checkpoint["amp"])',
            'if args.fp16 and checkpoint.get("scaler"):\n    scaler.load_state_dict(',
        ),
    ],
)
def test_the_empty_state_of_a_disabled_scaler_is_not_loaded_into_an_enabled_one(load: str, after: str) -> None:
    imports = "from apex import amp\nfrom options import args"
    written = rewrite(apex(prepare=f"if args.fp16:\n    {INITIALIZE}\n{LOAD}{load}", imports=imports)).after
    assert written is not None
    assert after in written
    assert '"scaler" in checkpoint' not in written


@pytest.mark.parametrize(
    "load",
    [
        'amp.load_state_dict(checkpoint["amp"])',
        'if "amp" in checkpoint:\n    amp.load_state_dict(checkpoint["amp"])',
        'state = checkpoint["amp"]\namp.load_state_dict(state)',
        'amp.load_state_dict(dict(checkpoint)["amp"])',
    ],
)
@pytest.mark.parametrize(
    ("checkpoint", "scale"),
    [
        ({"amp": {"loss_scaler0": {"loss_scale": 4096.0, "unskipped": 7}}}, 4096.0),
        ({"scaler": {**torch.amp.GradScaler("cpu").state_dict(), "scale": 512.0, "_growth_tracker": 7}}, 512.0),
        ({"amp": None}, 65536.0),
    ],
)
def test_a_checkpoint_compatible_loader_accepts_both_layouts(
    load: str, checkpoint: dict[str, Any], scale: float
) -> None:
    after = migrated(f"{INITIALIZE}\n{LOAD}{load}", checkpoint_compat=True)
    assert "apex import" not in after
    loader = after[after.index('last.pt")\n') + 10 : after.index("\nfor x, y")]
    scaler = torch.amp.GradScaler("cpu")
    loader = "\n".join(line for line in loader.splitlines() if not line.startswith("model.load_state_dict"))
    exec(loader, {"checkpoint": checkpoint, "scaler": scaler})
    assert scaler.get_scale() == scale
    assert scaler.state_dict()["_growth_tracker"] == (0 if scale == 65536.0 else 7)


@pytest.mark.parametrize(
    "test",
    ['"load_state_dict" in amp.__dict__', 'hasattr(amp, "load_state_dict")', "'load_state_dict' in amp.__dict__"],
)
def test_whether_apex_can_load_its_state_is_asked_no_more(test: str) -> None:
    resume = f'state = torch.load("last.pt")\nif "amp" in state and {test}:\n    amp.load_state_dict(state["amp"])\n'
    result = rewrite(apex(prepare=INITIALIZE + "\n" + resume))
    assert result.after is not None
    assert 'if "scaler" in state:\n    scaler.load_state_dict(state["scaler"])\n' in result.after
    assert "amp." not in result.after.replace("torch.amp.", "")
    assert not [f for f in result.findings if f.status == "manual"]


def test_other_uses_of_what_amp_holds_keep_the_unit_whole() -> None:
    result = rewrite(apex(prepare=INITIALIZE + '\nprint(amp.__dict__["scale_loss"])'))
    assert result.after is None
    assert [f for f in result.findings if f.status == "manual"]


THINGS = """
def save(path, **things):
    torch.save({name: thing.state_dict() for name, thing in things.items()}, path)


def restore(path, **things):
    state = torch.load(path)
    for name, thing in things.items():
        thing.load_state_dict(state[name])
"""


def test_among_things_that_are_all_saved_alike_the_scaler_stands_in_for_amp() -> None:
    tail = 'save("last.pt", model=model, optimizer=optimizer, amp=amp)\n'
    before = apex(
        prepare=f'{THINGS}\n{INITIALIZE}\nrestore("last.pt", model=model, optimizer=optimizer, amp=amp)', tail=tail
    )
    result = rewrite(before)
    assert result.after is not None, result.findings
    assert 'restore("last.pt", model=model, optimizer=optimizer, scaler=scaler)' in result.after
    assert 'save("last.pt", model=model, optimizer=optimizer, scaler=scaler)' in result.after
    assert {f.review for f in found(result, "AMP401")} == {"review"}


def test_a_thing_that_is_asked_for_by_its_name_is_left() -> None:
    asked = THINGS.replace(
        "    state = torch.load(path)\n", '    state = torch.load(path)\n    things["amp"].nothing()\n'
    )
    result = rewrite(apex(prepare=f"{asked}\n{INITIALIZE}", tail='restore("last.pt", model=model, amp=amp)\n'))
    assert result.after is None
    assert any(f.code == "AMP102" and "amp.nothing has no rule" in f.message for f in result.findings)


@pytest.mark.parametrize(
    ("guard", "wanted"),
    [
        ('"amp" not in checkpoint', '"scaler" not in checkpoint'),
        ('not "amp" in checkpoint.keys()', '"scaler" not in checkpoint'),
        ('checkpoint.get("amp") is None', '"scaler" not in checkpoint'),
    ],
)
def test_a_guard_that_asks_for_absence_asks_for_the_new_key(guard: str, wanted: str) -> None:
    load = f'checkpoint = torch.load("last.pt")\nif {guard}:\n    print("none")\nelse:\n    amp.load_state_dict(checkpoint["amp"])'
    result = rewrite(apex(prepare=f"{INITIALIZE}\n{load}", tail=SAVE.format('"amp": amp.state_dict()')))
    assert result.after is not None, result.findings
    assert f'if {wanted}:\n    print("none")\nelse:\n    scaler.load_state_dict(checkpoint["scaler"])' in result.after


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ('"amp" in checkpoint and checkpoint["amp"] not in (None, "N/A")', None),
        ('checkpoint["amp"] is not None and checkpoint["amp"] != "N/A"', None),
        ('checkpoint.get("amp") and "amp" in checkpoint', None),
        ("has", 'has = "amp" in checkpoint.keys()'),
        ("has", 'has = checkpoint["amp"] is not None'),
    ],
)
@pytest.mark.parametrize(
    ("compat", "checkpoint", "scale"),
    [
        (False, {"scaler": {"scale": 8.0, "_growth_tracker": 3}}, 8.0),
        (True, {"scaler": {"scale": 8.0, "_growth_tracker": 3}}, 8.0),
        (True, {"amp": {"loss_scaler0": {"loss_scale": 4.0, "unskipped": 1}}}, 4.0),
    ],
)
def test_whatever_else_is_asked_of_the_entry_is_asked_of_the_one_that_is_written(
    asked: str, kept: str | None, compat: bool, checkpoint: dict[str, Any], scale: float
) -> None:
    load = f"if {asked}:\n    amp.load_state_dict(checkpoint['amp'])"
    load = f"{kept}\n{load}" if kept else load
    before = apex(prepare=f"{INITIALIZE}\n{LOAD}{load}", tail=SAVE.format('"amp": amp.state_dict()'))
    after = rewrite(before, checkpoint_compat=compat).after
    assert after is not None
    loaded: list[dict[str, Any]] = []

    class Scaler:
        def state_dict(self) -> dict[str, Any]:
            return {}

        load_state_dict = loaded.append

    lines = after[after.index(LOAD) + len(LOAD) : after.index("\nfor x, y")]
    exec(lines, {"checkpoint": checkpoint, "scaler": Scaler()})
    assert [state["scale"] for state in loaded] == [scale], lines


@pytest.mark.parametrize(
    ("test", "wanted"),
    [
        ("args.fp16", 'args.fp16 and checkpoint.get("scaler")'),
        ("args.fp16 or args.half", '(args.fp16 or args.half) and checkpoint.get("scaler")'),
        ("(args.fp16 or args.half)", '(args.fp16 or args.half) and checkpoint.get("scaler")'),
        ("not args.plain", 'not args.plain and checkpoint.get("scaler")'),
    ],
)
def test_an_if_around_the_load_asks_for_the_entry_too(test: str, wanted: str) -> None:
    imports = "from apex import amp\nfrom options import args"
    load = f'if {test}:\n    amp.load_state_dict(checkpoint["amp"])\n'
    written = rewrite(apex(prepare=f"if args.fp16:\n    {INITIALIZE}\n{LOAD}{load}", imports=imports)).after
    assert written is not None
    assert f'\nif {wanted}:\n    scaler.load_state_dict(checkpoint["scaler"])\n' in written


@pytest.mark.parametrize(
    "load",
    [
        'if args.fp16:\n    amp.load_state_dict(checkpoint["amp"])\nelse:\n    print("none")\n',
        'if args.fp16:\n    print("loads")\n    amp.load_state_dict(checkpoint["amp"])\n',
        'if args.fp16:\n    # as it was\n    amp.load_state_dict(checkpoint["amp"])\n',
        f'if args.{"fp16" * 25}:\n    amp.load_state_dict(checkpoint["amp"])\n',
    ],
)
def test_an_if_that_holds_more_than_the_load_stays(load: str) -> None:
    imports = "from apex import amp\nfrom options import args"
    written = rewrite(apex(prepare=f"if args.fp16:\n    {INITIALIZE}\n{LOAD}{load}", imports=imports)).after
    assert written is not None
    assert '\n    if checkpoint.get("scaler"):\n        scaler.load_state_dict(checkpoint["scaler"])\n' in written


REMOVED = """
def load(path):
    state = torch.load(path)
    if "amp" in state:
        amp.load_state_dict(state["amp"])
        {removed}
    return build(**state)


def save(path, model, flag):
    state = {{"model": model.state_dict()}}
    if flag:
        state["amp"] = amp.state_dict()
    torch.save(state, path)
"""


@pytest.mark.parametrize("removed", ['del state["amp"]', 'state.pop("amp")', 'rest = state.pop("amp", None)'])
def test_an_entry_that_is_taken_out_once_it_is_loaded_is_taken_out_by_its_new_key(removed: str) -> None:
    written = rewrite(apex(tail=REMOVED.format(removed=removed))).after
    assert written is not None
    assert removed.replace("amp", "scaler") in written
    assert 'if "scaler" in state:\n        scaler.load_state_dict(state["scaler"])\n' in written
    optional = apex(
        prepare=f"if args.fp16:\n    {INITIALIZE}",
        imports="from apex import amp\nfrom options import args",
        tail=REMOVED.format(removed=removed),
    )
    written = rewrite(optional).after  # a disabled scaler saves an empty state, which is taken out as well
    assert written is not None
    assert (
        '    if "scaler" in state:\n        if state["scaler"]:\n            scaler.load_state_dict(state["scaler"])\n'
        in written
    )
    assert rewrite(optional, checkpoint_compat=True).after is None
