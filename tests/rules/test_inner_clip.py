"""FusedAdam(max_grad_norm=...) under the FP16_Optimizer of its time: clipped before the step, group by group."""

from __future__ import annotations

import textwrap

import pytest

from amp_migrate.findings import FileResult
from tests.rules.helpers import check_files, check_rewrite, rewrite, rewrite_files
from tests.rules.programs import apex, found, native

IMPORTS = "from apex.optimizers import FP16_Optimizer, FusedAdam"
ADAM = "optimizer = torch.optim.Adam(model.parameters(), lr=0.1)"
WRAP = "optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)"
SCALER = 'scaler = torch.amp.GradScaler("cuda", growth_interval=1000)'
LOOP = """
loss = criterion(model(x), y)
optimizer.backward(loss)
optimizer.step()
optimizer.zero_grad()
"""


def before(limit: str = "1.0", wrap: str = WRAP, loop: str = LOOP, fused: str = "") -> str:
    model = f"model = build()\noptimizer = FusedAdam(model.parameters(), lr=0.1{fused}, max_grad_norm={limit})"
    return apex(loop, wrap, imports=IMPORTS, model=model)


def after(
    limit: str = "1.0", condition: str = "", scaler: str = SCALER, between: str = "", value: str = "", **parts: str
) -> str:
    clip = f'for group in optimizer.param_groups:\n    torch.nn.utils.clip_grad_norm_(group["params"], {limit})\n'
    unscaled = between or "scaler.unscale_(optimizer)\n"
    if condition:  # nothing else reads gradients
        clip, unscaled = f"if {condition}:\n{textwrap.indent(unscaled + clip, '    ')}", ""
    loop = (
        'with torch.autocast("cuda", dtype=torch.float16):\n    loss = criterion(model(x), y)\n'
        f"scaler.scale(loss).backward()\n{unscaled}{clip}"
        f"scaler.step(optimizer)\nscaler.update({value})\noptimizer.zero_grad()\n"
    )
    return native(loop, scaler, **{"model": f"model = build()\n{ADAM}", **parts})


def test_the_clip_stands_before_the_step() -> None:
    result = check_rewrite(before(), after())
    (note,) = found(result, "AMP704")
    assert "before the step" in note.message


def test_a_limit_that_may_be_zero_is_asked_for() -> None:
    program = before("limits.norm").replace("import torch\n", "import torch\nimport limits\n", 1)
    expected = after("limits.norm", "limits.norm > 0").replace("import torch\n", "import torch\nimport limits\n", 1)
    check_rewrite(program, expected)


def test_the_name_that_the_file_imports_is_the_one_written() -> None:
    imported = "from torch.nn.utils import clip_grad_norm_\n"
    expected = after().replace("torch.nn.utils.clip_grad_norm_", "clip_grad_norm_")
    check_rewrite(imported + before(), imported + expected)


@pytest.mark.parametrize("limit", ["0", "0.0", "None"])
def test_no_limit_clips_nothing(limit: str) -> None:
    result = rewrite(before(limit))
    assert result.after is not None
    assert "clip_grad_norm_" not in result.after
    assert not found(result, "AMP704")


def test_without_bias_correction_the_optimizer_stays_apexs_and_loses_the_limit() -> None:
    fused = "optimizer = FusedAdam(model.parameters(), lr=0.1, bias_correction=False)"
    expected = after(imports="from apex.optimizers import FusedAdam", model=f"model = build()\n{fused}")
    result = check_rewrite(before(fused=", bias_correction=False"), expected)
    (kept,) = found(result, "AMP621")
    assert kept.status == "note"
    assert "clip" not in kept.message


def test_a_static_scale_skipped_overflows_too() -> None:
    wrap = "optimizer = FP16_Optimizer(optimizer, static_loss_scale=128.0)"
    result = rewrite(before(wrap=wrap))
    assert result.after is not None
    assert "scaler.update(128.0)" in result.after
    assert not found(result, "AMP114")


def test_gradients_that_are_read_above_are_unscaled_once() -> None:
    loop = LOOP.replace("optimizer.step()", "log(model.fc.weight.grad.norm())\noptimizer.step()")
    between = "scaler.unscale_(optimizer)\nlog(model.fc.weight.grad.norm())\n"
    check_rewrite(before(loop=loop), after(between=between))


def test_what_is_read_above_is_unscaled_whether_or_not_there_is_a_limit() -> None:
    loop = LOOP.replace("optimizer.step()", "log(model.fc.weight.grad.norm())\noptimizer.step()")
    text = rewrite("import limits\n" + before("limits.norm", loop=loop)).after or ""
    assert "    scaler.unscale_(optimizer)\n    log(" in text
    assert "    if limits.norm > 0:\n        for group in" in text


def test_only_runs_with_mixed_precision_clip() -> None:
    texts = check_files(
        {
            "train.py": """
            import argparse

            import torch
            from project import build, criterion, loader

            parser = argparse.ArgumentParser()
            parser.add_argument("--fp16", action="store_true")
            parser.add_argument("--accumulate", type=int, default=2)
            args = parser.parse_args()
            model = build()
            if args.fp16:
                model.half()
            if args.fp16:
                from apex.optimizers import FP16_Optimizer, FusedAdam

                optimizer = FP16_Optimizer(
                    FusedAdam(model.parameters(), lr=0.1, max_grad_norm=1.0), dynamic_loss_scale=True
                )
            else:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step, (x, y) in enumerate(loader):
                loss = criterion(model(x), y)
                if args.fp16:
                    optimizer.backward(loss)
                else:
                    loss.backward()
                if step % args.accumulate == 0:
                    if args.fp16:
                        for group in optimizer.param_groups:
                            group["lr"] = 0.1 / (step + 1)
                    optimizer.step()
                    optimizer.zero_grad()
            """
        }
    )
    lines = [line.strip() for line in texts["train.py"].splitlines()]
    start = lines.index("scaler.unscale_(optimizer)") - 1
    assert lines[start : start + 6] == [
        "if args.fp16:",
        "scaler.unscale_(optimizer)",
        "for param_group in optimizer.param_groups:",
        'torch.nn.utils.clip_grad_norm_(param_group["params"], 1.0)',
        "scaler.step(optimizer)",
        "scaler.update()",
    ]


def test_a_limit_that_the_step_cannot_see_is_refused() -> None:
    results = rewrite_files(
        {
            "loop.py": """
            def advance(optimizer):
                optimizer.step()
                optimizer.zero_grad()
            """,
            "train.py": """
            import torch
            from apex.optimizers import FP16_Optimizer, FusedAdam
            from loop import advance
            from project import build, criterion, loader


            def main(limit):
                model = build()
                optimizer = FusedAdam(model.parameters(), lr=0.1, max_grad_norm=limit)
                optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
                for x, y in loader:
                    loss = criterion(model(x), y)
                    optimizer.backward(loss)
                    advance(optimizer)
            """,
        }
    )
    assert all(r.after is None for r in results.values())
    assert any(f.code == "AMP704" and "limit" in f.message for r in results.values() for f in r.findings)


GROUPS = [
    "groups = [{'params': model.parameters(), 'max_grad_norm': 2.0}]\n"
    "optimizer = FusedAdam(groups, lr=0.1, max_grad_norm=1.0)",
    "groups = [dict(params=model.parameters(), max_grad_norm=2.0)]\noptimizer = FusedAdam(groups, lr=0.1)",
    "optimizer = FusedAdam(model.parameters(), lr=0.1, max_grad_norm=1.0)\n"
    "for group in optimizer.param_groups:\n    group['max_grad_norm'] = 2.0",
    "optimizer = FusedAdam(model.parameters(), lr=0.1, max_grad_norm=1.0)\n"
    "if model.small:\n    optimizer = FusedAdam(model.parameters(), lr=0.1, max_grad_norm=2.0)",
    "optimizer = FusedAdam(model.parameters(), lr=0.1, max_grad_norm=1.0)\n"
    "if model.small:\n    optimizer = FusedAdam(model.parameters(), lr=0.1)",
]


@pytest.mark.parametrize("made", GROUPS)
@pytest.mark.parametrize("imports", [IMPORTS, "from apex.contrib.optimizers import FP16_Optimizer, FusedAdam"])
def test_the_pair_stays_whole_where_the_limits_cannot_be_told(made: str, imports: str) -> None:
    result = rewrite(apex(LOOP, WRAP, imports=imports, model=f"model = build()\n{made}"))
    assert result.after is None
    assert any("a max_grad_norm of its own" in f.message for f in found(result, "AMP704"))
    assert not any("FP16_Optimizer" in f.construct and f.code == "AMP644" for f in result.findings)


def test_unpacked_arguments_beside_a_limit_leave_it_known() -> None:
    made = "optimizer = FusedAdam(model.parameters(), lr=0.1, max_grad_norm=1.0, **more())"
    result = rewrite(apex(LOOP, WRAP, imports=IMPORTS, model=f"model = build()\n{made}"))
    assert result.after is not None
    assert 'clip_grad_norm_(group["params"], 1.0)' in result.after
    assert any("must not hold options of Apex's own" in f.message for f in found(result, "AMP621"))


@pytest.mark.parametrize(
    "imports",
    [
        "from apex.contrib.optimizers import FP16_Optimizer, FusedAdam",
        "from apex.contrib.optimizers.fp16_optimizer import FP16_Optimizer\n"
        "from apex.contrib.optimizers.fused_adam import FusedAdam",
    ],
)
def test_the_pair_of_contrib_is_the_same_pair(imports: str) -> None:
    check_rewrite(before().replace(IMPORTS, imports), after())


def test_nothing_native_is_said_to_stay_where_nothing_stood() -> None:
    contrib = "from apex.contrib.optimizers import FP16_Optimizer, FusedAdam"
    result = rewrite(before().replace(IMPORTS, contrib))
    assert not any("native branch" in f.message for f in result.findings)


def test_the_one_of_contrib_stays_without_its_limit_where_torch_corrects_the_bias() -> None:
    contrib = "from apex.contrib.optimizers import FP16_Optimizer, FusedAdam"
    fused = "optimizer = FusedAdam(model.parameters(), lr=0.1, bias_correction=False)"
    expected = after(imports="from apex.contrib.optimizers import FusedAdam", model=f"model = build()\n{fused}")
    result = check_rewrite(before(fused=", bias_correction=False").replace(IMPORTS, contrib), expected)
    (kept,) = found(result, "AMP621")
    assert kept.status == "note"


def test_the_positions_of_contribs_arguments_are_its_own() -> None:
    contrib = "from apex.contrib.optimizers import FP16_Optimizer, FusedAdam"
    made = "optimizer = FusedAdam(model.parameters(), 0.1, True, (0.9, 0.99), 1e-6, False, 0.1, 1.0)"
    result = rewrite(apex(LOOP, WRAP, imports=contrib, model=f"model = build()\n{made}"))
    assert result.after is not None
    assert "AdamW(model.parameters(), 0.1, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1)" in result.after
    assert 'clip_grad_norm_(group["params"], 1.0)' in result.after


def test_the_wrapper_of_fp16_utils_handed_on_no_norms() -> None:
    program = before().replace(
        IMPORTS, "from apex.fp16_utils import FP16_Optimizer\nfrom apex.optimizers import FusedAdam"
    )
    result = rewrite(program)
    assert any(f.code == "AMP621" and f.status == "manual" for f in result.findings)
    assert not found(result, "AMP704")


def test_what_waits_for_a_refused_unit_says_so() -> None:
    """Two programs that are one unit: the second's other choice of a scale is no construct of its own."""
    wrap = """
    if limits.scale == 0:
        optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
    else:
        optimizer = FP16_Optimizer(optimizer, static_loss_scale=limits.scale)
    """
    program = f"""
    import limits
    from apex.optimizers import FP16_Optimizer, FusedAdam
    from trainer import Trainer
    from project import build

    model = build()
    optimizer = FusedAdam(model.parameters(), lr=0.1)
    {textwrap.dedent(wrap).strip().replace(chr(10), chr(10) + "    ")}
    Trainer(model, optimizer).train()
    """
    trainer = """
    class Trainer:
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer

        def train(self):
            for x, y in self.loader:
                loss = self.model(x, y)
                self.optimizer.backward(loss)
                self.optimizer.step(lambda: self.again())
    """
    results = rewrite_files({"one.py": program, "two.py": program, "trainer.py": trainer})
    assert not any("no rule" in f.message for r in results.values() for f in r.findings)
    assert all(r.after is None for r in results.values())


FACTORY = """
import argparse
import torch
from torch import nn
from apex.contrib.optimizers import FP16_Optimizer, FusedAdam

def wrapped(groups, limit=1.0):
    optimizer = FusedAdam(groups, lr=0.1, max_grad_norm=limit)
    return FP16_Optimizer(optimizer, dynamic_loss_scale=True)

THROUGH
def main(loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--norm", type=float, default=1.0)
    args = parser.parse_args()
    model = nn.Linear(8, 2)
    model.half().cuda()
    optimizer = MADE
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.half()), y)
        optimizer.backward(loss)
        optimizer.step()
        model.zero_grad()

main([])
"""
THROUGH = "def through(groups, norm):\n    return wrapped(groups, limit=norm)\n"


def made_by_factory(made: str) -> FileResult:
    return rewrite(FACTORY.replace("THROUGH", THROUGH if "through" in made else "").replace("MADE", made))


@pytest.mark.parametrize(
    ("made", "clip"),
    [
        ("wrapped(model.parameters(), 2.0)", 'clip_grad_norm_(group["params"], 2.0)'),
        ("wrapped(model.parameters(), limit=args.norm)", 'clip_grad_norm_(group["params"], args.norm)'),
        ("wrapped(model.parameters())", 'clip_grad_norm_(group["params"], 1.0)'),
        ("through(model.parameters(), args.norm)", 'clip_grad_norm_(group["params"], args.norm)'),
        ("through(model.parameters(), 0.5)", 'clip_grad_norm_(group["params"], 0.5)'),
    ],
)
def test_the_limit_of_a_factory_is_what_its_callers_give(made: str, clip: str) -> None:
    result = made_by_factory(made)
    assert clip in (result.after or "")
    assert ("if args.norm > 0:" in (result.after or "")) == ("args.norm" in clip)
    assert not [f for f in result.findings if f.status == "manual"]


def test_two_limits_for_one_step_are_refused() -> None:
    made = "wrapped(model.parameters(), 2.0) if args.norm else wrapped(model.parameters(), 1.0)"
    result = made_by_factory(made)
    assert result.after is None
    assert found(result, "AMP704")
