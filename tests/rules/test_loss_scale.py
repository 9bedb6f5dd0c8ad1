"""Private state of Apex: reads of the scale, initial settings, and what cannot be mapped."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.rules.helpers import check_files, check_rewrite, check_untouched, rewrite, run_files
from tests.rules.programs import (
    APEX_LOOP,
    INITIALIZE,
    NATIVE_LOOP,
    SCALER,
    apex,
    check_refused,
    found,
    initialize,
    native,
)

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


@pytest.mark.parametrize("asked", ['opt_level="O0"', 'opt_level="O3"', 'opt_level="O1", loss_scale=128.0'])
@pytest.mark.parametrize("late", [False, True])
def test_a_scale_that_is_static_is_not_set_anew_without_a_word(asked: str, late: bool) -> None:
    setting = f"{SCALE}._loss_scale = 2.0 ** 13"
    if late:
        result = check_refused(apex(f"{APEX_LOOP}{setting}", initialize(asked)), "AMP404")
    else:
        result = check_refused(apex(prepare=f"{initialize(asked)}\n{setting}"), "AMP404")
    assert "static" in found(result, "AMP404")[0].message


def test_a_window_beside_a_static_scale_counts_nothing_and_is_taken() -> None:
    before = apex(prepare=f"{initialize('loss_scale=128.0')}\n{SCALE}._scale_seq_len = 500")
    assert rewrite(before).after is not None


@pytest.mark.parametrize(
    "use",
    [
        f"print({SCALE}._has_overflow)",
        f"{SCALE}.update_scale()",
        "amp._amp_state.loss_scalers.append(None)",
        "print(amp._amp_state.opt_properties.opt_level)",
        'print(amp.state_dict()["loss_scaler0"]["unskipped"])',
    ],
)
def test_other_uses_of_private_state_are_refused_with_the_whole_unit(use: str) -> None:
    result = check_refused(apex(APEX_LOOP + use), "AMP404")
    assert {"amp.initialize", "amp.scale_loss"} <= {f.construct for f in result.findings}


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        ("print(amp._amp_state.opt_properties.options['cast_model_outputs'])", "delete that: autocast casts"),
        (f"print({SCALE}._has_overflow)", "write it anew on the GradScaler"),
    ],
)
def test_what_replaces_private_state_is_told_by_what_it_is(use: str, advice: str) -> None:
    assert advice in found(check_refused(apex(APEX_LOOP + use), "AMP404"), "AMP404")[0].message


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


def test_a_scale_set_in_every_iteration_is_no_initial_scale() -> None:
    before = apex(APEX_LOOP + f"{SCALE}._loss_scale = 1024.0")
    check_rewrite(before, native(NATIVE_LOOP + "scaler.update(1024.0)"))


def test_a_scale_set_under_a_condition_before_training_is_loaded_for_update_refuses_before_the_first_scale() -> None:
    imports = "from options import args"
    setting = "if args.scale:\n    {}"
    before = apex(
        prepare=f"{INITIALIZE}\n{setting.format(SCALE + '._loss_scale = args.scale')}",
        imports=f"from apex import amp\n{imports}",
    )
    load = 'scaler.load_state_dict({**scaler.state_dict(), "scale": float(args.scale)})'
    check_rewrite(before, native(prepare=f"{SCALER}\n{setting.format(load)}", imports=imports))


def test_a_window_set_later_is_set_later() -> None:
    before = apex(APEX_LOOP + f"{SCALE}._scale_seq_len = 500")
    check_rewrite(before, native(NATIVE_LOOP + "scaler.set_growth_interval(500)"))


@pytest.mark.parametrize(
    "use",
    [
        "for p in optimizer._amp_stash.all_fp32_from_fp16_params:\n    reduce(p.grad)",
        'stash = getattr(optimizer, "_amp_stash")',
        'if hasattr(optimizer, "_amp_stash"):\n    reduce(optimizer)',
    ],
)
def test_the_stash_on_an_optimizer_is_refused(use: str) -> None:
    loop = APEX_LOOP.replace("optimizer.step()", f"{use}\noptimizer.step()")
    check_refused(apex(loop, imports="from apex import amp\nfrom project import reduce"), "AMP404")


def test_a_stash_in_a_program_without_apex_is_left_alone() -> None:
    check_untouched('def stash(optimizer):  # apex\n    return getattr(optimizer, "_amp_stash")\n')


@pytest.mark.parametrize(
    ("read", "written"),
    [
        (
            "for number, each in enumerate(amp._amp_state.loss_scalers):\n    print(number, each._loss_scale)\n",
            "for number, each in enumerate([scaler]):\n    print(number, each.get_scale())\n",
        ),
        (
            "for each in amp._amp_state.loss_scalers:\n    print(each.loss_scale(), each.loss_scale() > 1)\n",
            "for each in [scaler]:\n    print(each.get_scale(), each.get_scale() > 1)\n",
        ),
        (
            "print([each.loss_scale() for each in amp._amp_state.loss_scalers])\n",
            "print([each.get_scale() for each in [scaler]])\n",
        ),
    ],
)
def test_all_scales_are_read_in_turn(read: str, written: str) -> None:
    result = rewrite(apex(APEX_LOOP + read))
    assert result.after is not None
    assert textwrap.indent(written, "    ") in result.after
    assert rewrite(result.after).after is None


@pytest.mark.parametrize(
    "use",
    [
        "for each in amp._amp_state.loss_scalers:\n    each._loss_scale = 1.0\n",
        "for each in amp._amp_state.loss_scalers:\n    each.update_scale()\n",
        "for each in amp._amp_state.loss_scalers:\n    pass\nprint(each.loss_scale())\n",
        "print([each for each in amp._amp_state.loss_scalers])\n",
    ],
)
def test_what_does_more_than_read_them_is_refused(use: str) -> None:
    result = rewrite(apex(APEX_LOOP + use))
    assert result.after is None
    assert any(f.code == "AMP404" for f in result.findings)


HELD = """
    import torch
    from apex import amp

    class Stepper:
        def __init__(self, optimizer, scale=8192, window=128):
            self.optimizer = optimizer
            kept = amp._amp_state.loss_scalers[0]
            USES

        def step(self, loss):
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()

    def main(model, criterion, loader):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        stepper = Stepper(optimizer)
        for x, y in loader:
            optimizer.zero_grad()
            stepper.step(criterion(model(x), y))
    """


@pytest.mark.parametrize(
    ("uses", "written"),
    [
        ("kept._scale_seq_len = window", "scaler.set_growth_interval(window)"),
        (
            "kept._loss_scale = scale",
            'scaler.load_state_dict({**scaler.state_dict(), "scale": float(scale)})',
        ),
        ("print(kept.loss_scale(), kept._loss_scale)", "print(scaler.get_scale(), scaler.get_scale())"),
    ],
)
def test_a_scaler_that_a_variable_holds_is_the_scaler(uses: str, written: str) -> None:
    result = rewrite(HELD.replace("USES", uses))
    assert result.after is not None
    assert "kept" not in result.after
    assert written in result.after.replace("self.scaler", "scaler")
    assert rewrite(result.after).after is None


@pytest.mark.parametrize(
    "uses",
    ["kept.update_scale()", "self.kept = kept", "kept = None", "print(kept)"],
)
def test_one_that_is_more_than_asked_for_its_scale_is_refused(uses: str) -> None:
    result = rewrite(HELD.replace("USES", uses))
    assert result.after is None
    assert any(f.code == "AMP404" for f in result.findings)


def test_whether_apex_was_set_up_is_asked_of_the_scaler() -> None:
    asked = 'if not flag and hasattr(amp._amp_state, "opt_properties"):\n    print("set up")\n'
    result = rewrite(apex(tail=asked, imports="from apex import amp\nfrom options import flag"))
    assert result.after is not None
    assert 'if not flag and scaler.is_enabled():\n    print("set up")\n' in result.after
    (told,) = found(result, "AMP403")
    assert (told.review, "O0" in told.message) == ("look", True)
    first = 'if not hasattr(amp._amp_state, "opt_properties"):\n    ' + INITIALIZE
    check_refused(apex(prepare=first), "AMP404")
    other = asked.replace("opt_properties", "handle")
    check_refused(apex(tail=other, imports="from apex import amp\nfrom options import flag"), "AMP404")


READ_TWICE = """
    import json
    import torch
    from apex import amp

    torch.manual_seed(0)
    model, centers = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    second = torch.optim.SGD(centers.parameters(), lr=0.1)
    (model, centers), (first, second) = amp.initialize([model, centers], [first, second], opt_level="O1", loss_scale={scale})
    for x in [torch.ones(1, 2)] * 3:
        first.zero_grad()
        loss = model(x).mean() + centers(x).mean()
        with amp.scale_loss(loss, first) as scaled_loss:
            scaled_loss.backward()
        for p in model.parameters():
            p.grad.data *= 2
        with amp.scale_loss(model(x).mean(), first) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        first.step()
    print(json.dumps([model.weight.sum().item(), model.bias.item()]))
"""


def test_where_the_scale_is_one_gradients_are_read_whenever(tmp_path: Path) -> None:
    refused = rewrite(READ_TWICE.format(scale=128.0))
    assert "AMP307" in {f.code for f in refused.findings if f.status == "manual"}
    texts = check_files({"train.py": READ_TWICE.format(scale=1.0)})
    plain = texts["train.py"].replace("scaler.unscale_(first)", "pass").replace("scaler.update()", "pass")
    plain = re.sub(r"scaler\.scale\((\w+)\)", r"\1", plain).replace("scaler.step(first)", "first.step()")
    assert run_files(tmp_path, texts, "train.py") == run_files(tmp_path, {"plain.py": plain}, "plain.py")
