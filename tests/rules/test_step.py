"""`optimizer.step()` and what reads gradients before it: one unscale_, one step, one update on every path."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import (
    APEX_LOOP,
    INITIALIZE,
    MODEL,
    NATIVE_LOOP,
    apex,
    check_refused,
    found,
    initialize,
    native,
)

BACKWARD = """
loss = criterion(model(x), y)
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
"""
SCALED = """
with torch.autocast("cuda", dtype=torch.float16):
    loss = criterion(model(x), y)
scaler.scale(loss).backward()
"""
STEP = "scaler.step(optimizer)\nscaler.update()\n"


def check_step(before: str, after: str) -> object:
    """Assert what the statements after the backward become."""
    return check_rewrite(apex(BACKWARD + before), native(SCALED + after))


# -- step and update -------------------------------------------------------------------------------------------------


def test_update_stands_on_the_line_after_the_step_before_the_scheduler_and_zero_grad() -> None:
    check_step(
        "optimizer.step()\nscheduler.step()\noptimizer.zero_grad()", f"{STEP}scheduler.step()\noptimizer.zero_grad()"
    )


def test_the_step_of_an_accumulation_stays_under_its_if() -> None:
    check_step(
        "if (i + 1) % 4 == 0:\n    optimizer.step()\n    optimizer.zero_grad()",
        "if (i + 1) % 4 == 0:\n    scaler.step(optimizer)\n    scaler.update()\n    optimizer.zero_grad()",
    )


def test_a_last_step_after_the_loop_is_scaled_and_updated_too_where_gradients_are_left() -> None:
    held = 'if any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):\n'
    tail = "optimizer.step()\noptimizer.zero_grad()\n"
    before = apex(BACKWARD + "if i % 4 == 3:\n    optimizer.step()\n    optimizer.zero_grad()", tail=tail)
    after = native(
        SCALED + "if i % 4 == 3:\n    scaler.step(optimizer)\n    scaler.update()\n    optimizer.zero_grad()",
        tail=f"{held}{indent(STEP, '    ')}optimizer.zero_grad()\n",
    )
    check_rewrite(before, after)


def test_a_step_in_both_branches_becomes_one_path_when_the_pair_folds() -> None:
    before = apex(
        """
        loss = criterion(model(x), y)
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        else:
            loss.backward()
            optimizer.step()
        """,
        f"if args.fp16:\n    {INITIALIZE}",
        imports="from apex import amp\nfrom options import args",
    )
    after = native(
        """
        with torch.autocast("cuda", dtype=torch.float16, enabled=bool(args.fp16)):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        """,
        'scaler = torch.amp.GradScaler("cuda", enabled=bool(args.fp16))',
        imports="from options import args",
    )
    check_rewrite(before, after)


def test_a_step_in_another_function_gets_its_update_there() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader


        def apply_gradients(optimizer, scheduler):
            optimizer.step()
            scheduler.step()


        def main(scheduler):
            model, optimizer = build()
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                apply_gradients(optimizer, scheduler)
        """
    expected = """
        import torch

        from project import build, criterion, loader


        def apply_gradients(optimizer, scaler, scheduler):
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()


        def main(scheduler):
            model, optimizer = build()
            scaler = torch.amp.GradScaler("cuda")
            for x, y in loader:
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = criterion(model(x), y)
                scaler.scale(loss).backward()
                apply_gradients(optimizer, scaler, scheduler)
        """
    check_rewrite(source, expected)


def test_the_step_of_an_optimizer_that_apex_never_saw_stays_plain() -> None:
    before = apex(
        BACKWARD + "optimizer.step()\nother_loss(x).backward()\nother.step()",
        imports="from apex import amp\nfrom project import other, other_loss",
    )
    after = native(
        SCALED + STEP + "other_loss(x).backward()\nother.step()", imports="from project import other, other_loss"
    )
    check_rewrite(before, after)


def test_scheduler_and_profiler_steps_are_no_optimizer_steps() -> None:
    check_step("optimizer.step()\nscheduler.step()\nprofiler.step()", f"{STEP}scheduler.step()\nprofiler.step()")


def test_keyword_arguments_of_step_pass_through() -> None:
    check_step("optimizer.step(**options)", "scaler.step(optimizer, **options)\nscaler.update()")


@pytest.mark.parametrize("call", ["optimizer.step(closure)", "optimizer.step(closure=closure)"])
def test_a_step_with_a_closure_is_refused(call: str) -> None:
    result = check_refused(apex(BACKWARD + call), "AMP212")
    assert {f.construct for f in result.findings} >= {"amp.initialize", "amp.scale_loss", "optimizer.step"}


@pytest.mark.parametrize("call", ["optimizer.step(None)", "optimizer.step(closure=None)"])
def test_a_step_with_no_closure_written_out_is_an_ordinary_step(call: str) -> None:
    after = rewrite(apex(BACKWARD + call)).after
    assert after is not None
    assert "scaler.step(optimizer" in after


def test_statements_on_the_line_of_the_step_stay() -> None:
    after = rewrite(apex(BACKWARD + "n += 1; optimizer.step(); scheduler.step()")).after
    assert after is not None
    order = ["n += 1", "scaler.step(optimizer)", "scaler.update()", "scheduler.step()"]
    assert [after.index(part) for part in order] == sorted(after.index(part) for part in order)


@pytest.mark.parametrize("suite", ["if ready: optimizer.step()", "if ready: optimizer.step(); optimizer.zero_grad()"])
def test_a_one_line_if_around_the_step_holds_the_update_too(suite: str) -> None:
    result = rewrite(apex(BACKWARD + suite))
    assert result.after is not None
    compile(result.after, "train.py", "exec")
    assert "    if ready:\n        scaler.step(optimizer)\n        scaler.update()" in result.after


def test_a_static_scale_is_held_by_every_update() -> None:
    before = apex(
        BACKWARD + "if i % 2:\n    optimizer.step()\nelse:\n    optimizer.step()",
        initialize('opt_level="O1", loss_scale=128.0'),
    )
    after = rewrite(before).after
    assert after is not None
    assert after.count("scaler.update(128.0)") == 2


def test_nothing_is_said_of_growth_where_every_backward_has_its_step() -> None:
    result = rewrite(apex(BACKWARD + "optimizer.step()\noptimizer.zero_grad()"))
    assert not any("per backward" in f.message for f in result.findings)


# -- readers of gradients --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reader",
    [
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "torch.nn.utils.clip_grad_norm(model.parameters(), 1.0)",
        "torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)",
        "clip_gradients(model, 1.0)",
        "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "grad_norm = sum(p.grad.norm() for p in model.parameters())",
        "for p in model.parameters():\n    p.grad.clamp_(-1, 1)",
        "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.mul_(0.5)",
    ],
)
def test_gradients_are_unscaled_before_they_are_read(reader: str) -> None:
    result = check_step(f"{reader}\noptimizer.step()", f"scaler.unscale_(optimizer)\n{reader}\n{STEP}")
    assert result is not None


@pytest.mark.parametrize(
    "harmless",
    [
        "optimizer.zero_grad()",
        "for p in model.parameters():\n    p.grad = None",
        "x.grad.zero_()",
        "with torch.no_grad():\n    print(loss)",
        "torch.set_grad_enabled(True)",
    ],
)
def test_nothing_is_unscaled_where_nothing_reads_gradients(harmless: str) -> None:
    after = rewrite(apex(BACKWARD + f"optimizer.step()\n{harmless}")).after
    assert after is not None
    assert "unscale_" not in after


def test_gradients_are_unscaled_once_for_several_readers() -> None:
    readers = "print(grad_norm(model))\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    check_step(f"{readers}\noptimizer.step()", f"scaler.unscale_(optimizer)\n{readers}\n{STEP}")


@pytest.mark.parametrize("test", ["args.clip", "args.clip > 0", "args.clip is not None"])
def test_a_clip_under_an_if_keeps_its_test_as_it_is(test: str) -> None:
    reader = f"if {test}:\n    {{}}torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)\n"
    check_step(reader.format("") + "optimizer.step()", reader.format("scaler.unscale_(optimizer)\n    ") + STEP)


def test_a_reader_in_each_branch_is_unscaled_once_on_every_path() -> None:
    reader = (
        "if by_value:\n    clip_grad_value_(model.parameters(), 1)\nelse:\n    clip_grad_norm_(model.parameters(), 1)\n"
    )
    after = rewrite(apex(BACKWARD + reader + "optimizer.step()")).after
    assert after is not None
    before_the_if = "    scaler.unscale_(optimizer)\n    if by_value:"
    assert before_the_if in after or after.count("        scaler.unscale_(optimizer)\n        clip_grad") == 2


def test_a_reader_after_a_conditional_one_is_unscaled_also_when_the_condition_is_false() -> None:
    readers = "if args.clip:\n    clip_grad_norm_(model.parameters(), args.clip)\nlog_grad_norm(model)\n"
    check_step(readers + "optimizer.step()", "scaler.unscale_(optimizer)\n" + readers + STEP)


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("p.grad.div_(8)", True),
        ("p.grad += 0.1 * p.sign()", True),
        ("p.grad.data -= 0.1 * p.data", True),
        ("p.grad /= 8", False),
    ],
)
def test_a_reader_in_a_helper_counts(line: str, counts: bool) -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader


        def regulate(model):
            for p in model.parameters():
                LINE


        model, optimizer = build()
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

        for x, y in loader:
            loss = criterion(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            regulate(model)
            optimizer.step()
        """
    after = rewrite(source.replace("LINE", line)).after
    assert after is not None
    unscaled = "    scaler.unscale_(optimizer)\n" if counts else ""
    assert f"    scaler.scale(loss).backward()\n{unscaled}    regulate(model)\n    scaler.step(optimizer)\n" in after


@pytest.mark.parametrize("guard", ["if (i + 1) % 4 == 0:", "if last:"])
def test_a_clip_after_every_micro_batch_moves_to_the_step_for_review(guard: str) -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    before = apex(BACKWARD + clip + f"{guard}\n    optimizer.step()\n    optimizer.zero_grad()")
    after = native(
        SCALED + f"{guard}\n    scaler.unscale_(optimizer)\n    {clip}    scaler.step(optimizer)\n    scaler.update()\n"
        "    optimizer.zero_grad()"
    )
    result = check_rewrite(before, after)
    assert found(result, "AMP302")[0].review == "review"


ADDS = """
def shrink(model):
    torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
    for p in model.parameters():
        p.grad.data.add_(0.1 * torch.sign(p.data))
"""


@pytest.mark.parametrize(("line", "adds"), [("shrink(model)", True), ("shown = norm(model)", False)])
def test_what_adds_to_gradients_is_said_to_add_less_often_once_moved(line: str, adds: bool) -> None:
    model = ADDS + "def norm(model):\n    return max(p.grad.norm() for p in model.parameters())\n" + MODEL
    result = rewrite(apex(BACKWARD + f"{line}\nif last:\n    optimizer.step()", model=model))
    (finding,) = found(result, "AMP302")
    assert ("what it adds to them it now adds once per step" in finding.message) == adds


def test_a_moved_reader_that_is_used_later_keeps_its_value_defined() -> None:
    clip = "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    source = apex(BACKWARD + clip + "if last:\n    optimizer.step()\nprint(norm)")
    after = rewrite(source).after
    assert after is not None
    assert after.index("norm = 0.0") < after.index("for x, y in loader")


def test_o1_clipping_of_the_models_own_parameters_worked_so_nothing_is_said() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()"
    result = rewrite(apex(BACKWARD + clip))
    assert not any("clip" in f.message for f in result.findings if f.review in ("look", "review"))


# -- paths -----------------------------------------------------------------------------------------------------------

CLIP = "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
UNSCALED = "scaler.unscale_(optimizer)\n" + CLIP


def test_a_continue_between_unscale_and_step_updates_first() -> None:
    before = BACKWARD + CLIP + "if not torch.isfinite(norm):\n    continue\noptimizer.step()"
    after = SCALED + UNSCALED + "if not torch.isfinite(norm):\n    scaler.update()\n    continue\n" + STEP
    result = check_rewrite(apex(before), native(after))
    assert found(result, "AMP303")


@pytest.mark.parametrize(
    "around",
    [
        "for _ in range(1):",
        "for optimizer in [optimizer]:",
        "with torch.cuda.stream(side):",
        "for o in [first, second]:",
    ],
)
def test_a_continue_before_what_steps_in_any_case_updates_first(around: str) -> None:
    name = "o" if "first" in around else "optimizer"
    before = f"if not torch.isfinite(norm):\n    continue\n{around}\n    {name}.step()"
    prepare = INITIALIZE if name == "optimizer" else INITIALIZE.replace("optimizer", "[first, second]", 2)
    loop = (BACKWARD + CLIP + before).replace(
        "loss, optimizer", "loss, [first, second]" if name == "o" else "loss, optimizer"
    )
    text = rewrite(apex(loop, prepare)).after
    assert text is not None
    assert "        scaler.update()\n        continue\n" in text
    assert f"        scaler.step({name})\n    scaler.update()\n" in text


@pytest.mark.parametrize("leave", ["continue", "break"])
def test_a_jump_within_a_loop_of_its_own_leaves_nothing(leave: str) -> None:
    log = f"for p in model.parameters():\n    if not p.requires_grad:\n        {leave}\n    log(p.grad)\n"
    result = check_rewrite(apex(BACKWARD + CLIP + log + "optimizer.step()"), native(SCALED + UNSCALED + log + STEP))
    assert not found(result, "AMP303")


def test_a_return_between_unscale_and_step_updates_first() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader

        model, optimizer = build()
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


        def train_step(x, y):
            loss = criterion(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if norm > 100:
                return None
            optimizer.step()
            return loss.item()


        for x, y in loader:
            train_step(x, y)
        """
    after = rewrite(source).after
    assert after is not None
    assert "    if norm > 100:\n        scaler.update()\n        return None\n    scaler.step(optimizer)\n" in after


def test_a_continue_before_the_backward_needs_no_update() -> None:
    before = """
        loss = criterion(model(x), y)
        if torch.isnan(loss):
            continue
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        """
    after = """
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(x), y)
        if torch.isnan(loss):
            continue
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        """
    check_rewrite(apex(before), native(after))


def test_an_abort_on_a_loss_that_is_not_finite_stays() -> None:
    before = """
        loss = criterion(model(x), y)
        if not math.isfinite(loss.item()):
            print("loss is not finite, stopping")
            sys.exit(1)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        """
    after = rewrite(apex(before, imports="import math\nimport sys\nfrom apex import amp")).after
    assert after is not None
    stays = (
        '    if not math.isfinite(loss.item()):\n        print("loss is not finite, stopping")\n        sys.exit(1)\n'
    )
    assert stays in after


def test_update_comes_once_after_the_last_of_several_optimizers() -> None:
    model = (
        "a, b = build(), build()\none = torch.optim.SGD(a.parameters(), lr=0.1)\n"
        "two = torch.optim.SGD(b.parameters(), lr=0.1)"
    )
    before = apex(
        """
        loss = criterion(b(a(x)), y)
        with amp.scale_loss(loss, [one, two]) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(a.parameters(), 1.0)
        one.step()
        two.step()
        """,
        '[a, b], [one, two] = amp.initialize([a, b], [one, two], opt_level="O1")',
        model=model,
    )
    after = native(
        """
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(b(a(x)), y)
        scaler.scale(loss).backward()
        scaler.unscale_(one)
        torch.nn.utils.clip_grad_norm_(a.parameters(), 1.0)
        scaler.step(one)
        scaler.step(two)
        scaler.update()
        """,
        model=model,
    )
    check_rewrite(before, after)


def test_unscale_is_never_followed_by_a_plain_step() -> None:
    after = rewrite(apex(APEX_LOOP.replace("optimizer.step()", CLIP + "optimizer.step()"))).after
    assert after is not None
    assert "scaler.unscale_(optimizer)" in after
    assert "\n    optimizer.step()" not in after


def test_bfloat16_leaves_clip_and_step_untouched() -> None:
    before = apex(BACKWARD + CLIP + "optimizer.step()\noptimizer.zero_grad()")
    after = native(
        'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = criterion(model(x), y)\nloss.backward()\n'
        + CLIP
        + "optimizer.step()\noptimizer.zero_grad()",
        "",
    )
    check_rewrite(before, after, dtype="bfloat16")


def test_the_native_loop_is_left_alone() -> None:
    assert rewrite(native(NATIVE_LOOP)).after is None


@pytest.mark.parametrize("test", ["torch.isfinite(norm)", "ready and norm < 100", "not norm.isnan()"])
def test_a_step_that_depends_on_the_norm_stays_below_it_and_the_update_is_unconditional(test: str) -> None:
    before = BACKWARD + CLIP + f"if {test}:\n    optimizer.step()\n"
    after = rewrite(apex(before)).after
    assert after is not None
    assert after.index("clip_grad_norm_") < after.index(f"if {test}:")
    assert f"    if {test}:\n        scaler.step(optimizer)\n    scaler.update()\n" in after


def test_a_step_that_depends_on_a_check_of_the_gradients_stays_below_it() -> None:
    check = "bad = any(not torch.isfinite(p.grad).all() for p in model.parameters())\n"
    before = BACKWARD + check + "if bad:\n    optimizer.zero_grad()\nelse:\n    optimizer.step()\n"
    after = rewrite(apex(before)).after
    assert after is not None
    assert "    scaler.unscale_(optimizer)\n    bad = any(" in after
    assert after.index("bad = any(") < after.index("if bad:")


def test_growth_is_counted_per_step_now_which_is_announced_under_accumulation() -> None:
    result = rewrite(apex(BACKWARD + "if i % 4 == 3:\n    optimizer.step()\n    optimizer.zero_grad()"))
    assert any("backward" in f.message and "scale" in f.message for f in result.findings if f.status == "note")


def test_o2_clipping_of_the_models_own_parameters_had_no_effect_which_is_said() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()"
    result = rewrite(apex(BACKWARD + clip, initialize('opt_level="O2"')))
    assert any("clip" in f.message for f in result.findings if f.review in ("look", "review"))


def test_a_skipped_step_found_through_the_step_count_is_reported() -> None:
    source = apex(BACKWARD + "optimizer.step()\nif optimizer._step_count > 1:\n    scheduler.step()")
    assert any("_step_count" in f.message for f in rewrite(source).findings)


def test_an_optimizer_that_may_have_no_gradient_is_guarded_or_reported() -> None:
    model = (
        "a, b = build(), build()\none = torch.optim.SGD(a.parameters(), lr=0.1)\n"
        "two = torch.optim.SGD(b.parameters(), lr=0.1)"
    )
    source = apex(
        """
        loss = criterion(a(x), y)
        if warm:
            loss = loss + criterion(b(x), y)
        with amp.scale_loss(loss, [one, two]) as scaled_loss:
            scaled_loss.backward()
        one.step()
        two.step()
        """,
        '[a, b], [one, two] = amp.initialize([a, b], [one, two], opt_level="O1")',
        imports="from apex import amp\nfrom project import warm",
        model=model,
    )
    result = rewrite(source)
    assert result.after is not None
    guarded = "    scaler.step(one)\n    scaler.step(two)\n" not in result.after
    assert guarded or any("gradient" in f.message and f.review != "as-is" for f in result.findings)


def test_a_clip_inside_the_with_statement_now_clips_unscaled_gradients_which_is_said() -> None:
    body = BACKWARD.rstrip() + "\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    result = check_rewrite(
        apex(body + "optimizer.step()"), native(SCALED + "scaler.unscale_(optimizer)\n" + clip + STEP)
    )
    (finding,) = found(result, "AMP203")
    assert finding.review in ("look", "review")


def test_a_reader_under_a_condition_before_another_reader() -> None:
    result = rewrite(
        """
        import torch
        from apex import amp

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for i, x in enumerate(data):
            loss = model(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            params = amp.master_params(optimizer)
            if average:
                divide_gradients(params, 2)
            for callback in callbacks:
                callback.before_step(params)
            if distributed:
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()
        """
    )
    assert not [f for f in result.findings if f.status == "manual"]
    assert result.after is not None
    assert "    scaler.unscale_(optimizer)\n    if average:\n" in result.after
    assert result.after.count("unscale_(") == 1


def test_an_optimizer_is_followed_from_the_attribute_that_a_local_name_was_given() -> None:
    """initialize hands the same optimizer back: `self.optimizer` steps what the local name scaled for."""
    source = """
        import torch
        from apex import amp


        class Trainer:
            def __init__(self, model, loader):
                self.model, self.loader = model, loader
                self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

            def train(self):
                model = self.model
                optimizer = self.optimizer
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
                for x in self.loader:
                    loss = model(x).float().mean()
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
                    self.optimizer.step()
                    model.zero_grad()
        """
    after = rewrite(source).after
    assert after is not None
    scaled = "            scaler.scale(loss).backward()\n            scaler.unscale_(self.optimizer)\n"
    assert f"{scaled}            torch.nn.utils.clip_grad_norm_(" in after
    assert after.endswith(
        "            scaler.step(self.optimizer)\n            scaler.update()\n            model.zero_grad()\n"
    )


CLIPPED = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
WITH_SWITCH = """
import argparse
import torch
from apex import amp
from project import build, criterion, loader

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
args = parser.parse_args()
model, optimizer = build()
if {switch}:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y)
    if {switch}:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        {inside}
    else:
        loss.backward()
        {other}
    {after}
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("switch", "inside", "other", "after", "off_too"),
    [
        ("args.fp16", CLIPPED.replace("model.parameters()", "amp.master_params(optimizer)"), CLIPPED, "pass", True),
        ("args.fp16", "pass", "pass", CLIPPED, True),
        ("args.fp16", CLIPPED, "pass", "pass", False),
        ("True", "pass", "pass", CLIPPED, False),
    ],
)
def test_a_clip_that_moves_in_runs_without_mixed_precision_is_said_to(
    switch: str, inside: str, other: str, after: str, off_too: bool
) -> None:
    result = rewrite(WITH_SWITCH.format(switch=switch, inside=inside, other=other, after=after))
    messages = [f.message for f in found(result, "AMP302")]
    assert messages
    assert any("runs without mixed precision, too" in m for m in messages) is off_too


def test_a_scheduler_that_comes_in_a_list_with_the_optimizer_is_no_second_step() -> None:
    before = """
        import torch
        from apex import amp


        def train(model, tools, loader):
            optimizer, criterion, scheduler = tools
            for x, y in loader:
                loss = criterion(model(x), y)
                optimizer.zero_grad()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
                scheduler.step()


        model = torch.nn.Linear(4, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        tools = [optimizer, torch.nn.CrossEntropyLoss(), scheduler]
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        train(model, tools, loader)
    """
    after = rewrite(before).after
    assert after is not None
    assert after.count("scaler.step(optimizer)") == 1
    assert "scheduler.step()" in after


def test_a_scheduler_that_comes_back_from_a_function_with_the_optimizer_is_no_second_step() -> None:
    before = """
        import torch
        from apex import amp


        def restore(model, optimizer, scheduler):
            state = torch.load("last.pt")
            optimizer.load_state_dict(state["optimizer"])
            return model, optimizer, scheduler, state["step"]


        def main(model, loader, resume):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            if resume:
                restored = restore(model, optimizer, scheduler)
                model, optimizer, scheduler, step = restored
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
                scheduler.step(loss.item())
    """
    after = rewrite(before).after
    assert after is not None
    assert after.count("scaler.step(optimizer)") == 1
    assert "scheduler.step(loss.item())" in after
