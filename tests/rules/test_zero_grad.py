"""`zero_grad` after O2, whose step cleared the master gradients by itself."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import APEX_LOOP, NATIVE_LOOP, apex, found, initialize, native

WITHOUT = APEX_LOOP.replace("optimizer.zero_grad()\n", "")
NATIVE_WITHOUT = NATIVE_LOOP.replace("optimizer.zero_grad()\n", "")


@pytest.mark.parametrize("level", ["O2"])
def test_zero_grad_is_added_where_only_o2_s_step_cleared_the_gradients(level: str) -> None:
    before = apex(WITHOUT, initialize(f'opt_level="{level}"'))
    result = check_rewrite(before, native(NATIVE_WITHOUT + "optimizer.zero_grad()"))
    assert found(result, "AMP215")[0].review == "review"


def test_o1_without_zero_grad_accumulated_under_apex_and_a_scaler_forgets() -> None:
    result = check_rewrite(apex(WITHOUT), native(NATIVE_WITHOUT))
    (finding,) = found(result, "AMP224")
    assert "pile up" in finding.message
    assert finding.review == "look"


def test_only_a_step_that_is_repeated_without_zero_grad_is_told() -> None:
    assert not found(rewrite(apex(f"def train(x, y):\n{textwrap.indent(WITHOUT, '    ')}")), "AMP224")
    assert not found(rewrite(apex()), "AMP224")
    assert not found(rewrite(apex(WITHOUT, initialize('opt_level="O1", enabled=False'))), "AMP224")


def test_where_nothing_is_divided_by_a_scale_gradients_pile_up_as_before() -> None:
    assert not found(rewrite(apex(WITHOUT), dtype="bfloat16"), "AMP224")
    assert not found(rewrite(apex(WITHOUT, initialize('opt_level="O1", loss_scale=1.0'))), "AMP224")
    assert found(rewrite(apex(WITHOUT, initialize('opt_level="O1", loss_scale=128.0'))), "AMP224")


# Two loops around a step; what clears gradients stands before the inner one, in it, or in what it calls.
EPOCHS = """\
import torch
from apex import amp

from project import build, criterion, loader


def clear(parameters):
    for p in parameters:
        p.grad = None


def batch(model, optimizer, x, y):
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    {in_batch}


model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")
for epoch in range(3):
    {before}
    for x, y in loader:
        {within}
        batch(model, optimizer, x, y)
        for each in (optimizer,):
            each.step()
"""


def _epochs(before: str = "pass", within: str = "pass", in_batch: str = "pass", level: str = "O1") -> str:
    return EPOCHS.format(before=before, within=within, in_batch=in_batch, level=level)


def test_what_is_cleared_before_the_loop_piles_up_in_it() -> None:
    (finding,) = found(rewrite(_epochs(before="optimizer.zero_grad()")), "AMP224")
    assert finding.line == _epochs().splitlines().index("            each.step()") + 1
    result = rewrite(_epochs(before="optimizer.zero_grad()", level="O2"))
    assert found(result, "AMP215")
    assert result.after is not None
    assert "scaler.step(each)\n            scaler.update()\n            each.zero_grad()\n" in result.after


@pytest.mark.parametrize("place", ["within", "in_batch"])
@pytest.mark.parametrize(
    "clears",
    [
        "optimizer.zero_grad()",
        "clear(model.parameters())",
        "helpers.clear(model.parameters())",  # of a module that is not in sight: one of this name clears
        "model.reset_gradients()",
        "optimizer.first_step(zero_grad=True)",
        "[p.grad.zero_() for p in model.parameters()]",
        "[setattr(p, 'grad', None) for p in model.parameters()]",
    ],
)
def test_what_a_turn_of_the_loop_clears_anywhere_does_not(place: str, clears: str) -> None:
    source = _epochs(**{place: clears})
    assert not found(rewrite(source), "AMP224")
    assert not found(rewrite(source.replace('"O1"', '"O2"')), "AMP215")


def test_gradients_that_are_scaled_by_hand_are_not_cleared() -> None:
    for changes in ("for p in model.parameters():\n            p.grad *= 0.5", "optimizer.first_step(zero_grad=False)"):
        assert found(rewrite(_epochs(within=changes)), "AMP224"), changes


def test_a_loop_over_batches_that_are_summed_up_is_no_step_s() -> None:
    summed = _epochs(before="optimizer.zero_grad()").replace(
        "        for each in (optimizer,):\n            each.step()", "    optimizer.step()"
    )
    result = rewrite(summed)
    assert result.after is not None
    assert not found(result, "AMP224")


@pytest.mark.parametrize(
    "clears", ["optimizer.zero_grad()", "model.zero_grad()", "optimizer.zero_grad(set_to_none=True)"]
)
def test_nothing_is_added_where_the_program_clears_gradients(clears: str) -> None:
    result = rewrite(apex(f"{clears}\n{WITHOUT}", initialize('opt_level="O2"')))
    assert result.after is not None
    assert result.after.count("zero_grad") == 1
    assert not found(result, "AMP215")


def test_nothing_is_added_where_gradients_are_set_to_none_by_hand() -> None:
    clears = "for p in model.parameters():\n    p.grad = None\n"
    result = rewrite(apex(clears + WITHOUT, initialize('opt_level="O2"')))
    assert result.after is not None
    assert "zero_grad" not in result.after


def test_o1_model_zero_grad_cleared_everything_so_nothing_is_said() -> None:
    result = rewrite(apex(f"model.zero_grad()\n{WITHOUT}"))
    assert not any("zero_grad" in f.message for f in result.findings)


def test_o2_model_zero_grad_left_the_masters_gradients_which_is_announced() -> None:
    each = rewrite(apex(f"model.zero_grad()\n{WITHOUT}", initialize('opt_level="O2"')))
    assert not any("zero_grad" in f.message for f in each.findings)  # Apex's step had cleared them
    skipping = WITHOUT.replace("optimizer.step()", "if loss > 9:\n    continue\noptimizer.step()")
    result = rewrite(apex(f"model.zero_grad()\n{skipping}", initialize('opt_level="O2"')))
    assert any("zero_grad" in f.message for f in result.findings if f.status == "note")


TWO = """\
import torch
from apex import amp

from project import build, criterion, loader

one, two = build(), build()
opt_one = torch.optim.SGD(one.parameters(), lr=0.1)
opt_two = torch.optim.SGD(two.parameters(), lr=0.1)
[one, two], [opt_one, opt_two] = amp.initialize([one, two], [opt_one, opt_two], opt_level="O1")
{before}
for x, y in loader:
    {within}
    loss = criterion(two(one(x)), y)
    with amp.scale_loss(loss, [opt_one, opt_two]) as scaled_loss:
        scaled_loss.backward()
    opt_one.step()
    opt_two.step()
"""


@pytest.mark.parametrize(
    ("within", "told"),
    [
        ("opt_one.zero_grad()", ["opt_two.step()"]),
        ("opt_one.zero_grad(); opt_two.zero_grad()", []),
        ("for each in (opt_one, opt_two): each.zero_grad()", []),
        ("one.zero_grad()", ["opt_two.step()"]),
    ],
)
def test_another_optimizer_clears_its_own_gradients(within: str, told: list[str]) -> None:
    source = TWO.format(before="opt_two.zero_grad()", within=within)
    lines = source.splitlines()
    assert [lines[f.line - 1].strip() for f in found(rewrite(source), "AMP224")] == told


LISTED = """\
import torch
from apex import amp

from project import build, criterion, group, loader

model = build()
optimizers = [torch.optim.SGD(model.one.parameters(), lr=0.1), torch.optim.SGD(model.two.parameters(), lr=0.1)]
model, optimizers = amp.initialize(model, optimizers, opt_level="O1")
for x, y in loader:
    CLEARS
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizers) as scaled_loss:
        scaled_loss.backward()
    for optimizer in optimizers:
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("clears", "told"),
    [
        ("for each in optimizers: pass\n    each.zero_grad()", True),
        ("for optimizer in optimizers: print(optimizer)\n    optimizer.zero_grad()", True),
        ("for each in optimizers: each.zero_grad()", False),
        ("for each in [optimizers[0]]: pass\n    each.zero_grad()", False),
        ("each = optimizers[0]\n    each.zero_grad()", False),  # which of them is not followed here
        ("for each in optimizers:\n        for p in group(each): p.grad = None", False),
    ],
)
def test_what_a_loop_over_optimizers_ended_with_clears_the_last_one_alone(clears: str, told: bool) -> None:
    source = LISTED.replace("CLEARS", clears)
    result = rewrite(source)
    assert result.after is not None, result.findings
    assert bool(found(result, "AMP224")) == told


def test_what_a_comprehension_steps_in_turn_is_cleared_in_turn() -> None:
    many = f"members = [optimizer]\n{initialize('opt_level=' + repr('O2'))}"
    result = rewrite(apex(WITHOUT.replace("optimizer.step()", "[o.step() for o in members]"), many))
    assert result.after is not None
    assert "    for o in members:\n        o.zero_grad()\n" in result.after
