"""What a step leaves in `.grad` and a scaled backward adds to: told where some path clears it, and another does not."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.audit.helpers import doubts, doubts_of, program

HEAD = """
import torch
{imports}
from data import loader, model, criterion, args, helpers
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{setup}
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
"""
APEX = "with amp.scale_loss(criterion(model(x), y), optimizer) as scaled:\n    scaled.backward()\n"
NATIVE = "with torch.autocast('cuda', dtype=torch.float16):\n    loss = criterion(model(x), y)\nscaler.scale(loss).backward()\n"


def _told(after_step: str, before: str = "pass", step: str = "STEP", level: str = "'O1'") -> list[str]:
    """What is said of a loop over batches: `STEP` stands for the step, on either side."""
    texts = []
    for apex in (True, False):
        setup = f"model, optimizer = amp.initialize(model, optimizer, opt_level={level})"
        head = program(
            HEAD.replace("{imports}", "from apex import amp" if apex else "").replace(
                "{setup}", setup if apex else "scaler = torch.amp.GradScaler('cuda')"
            )
            + "        pass\n"
        )
        body = f"{before}\n{APEX if apex else NATIVE}{step}\n{after_step}\n"
        turn = "optimizer.step()" if apex else "scaler.step(optimizer); scaler.update()"
        texts.append(head + indent(body.replace("STEP", turn), "        "))
    found = [d for d in doubts(*texts) if d.code == "AMP224"]
    assert all(d.verdict == "look" and "optimizer.step()" in texts[0].splitlines()[d.line - 1] for d in found)
    return [d.message for d in found]


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ("if i > 0:\n    optimizer.zero_grad()", "where `i > 0` leaves that out"),
        ("if epoch:\n    for p in model.parameters():\n        del p.grad", "where `epoch` leaves that out"),
        ("if i:\n    model.zero_grad()", "where `i` leaves that out"),
        ("if i % 10 == 0:\n    optimizer.zero_grad()", "where `i % 10 == 0` leaves that out"),
        ("if x is None:\n    continue\noptimizer.zero_grad()", "on some path"),
        ("pass", "on some path"),
    ],
)
def test_a_path_on_which_nothing_clears_what_a_step_left_is_told(after: str, why: str) -> None:
    (message,) = _told(after)
    assert why in message
    assert _told(after, level="args.level")


@pytest.mark.parametrize(
    ("before", "step", "after"),
    [
        ("pass", "STEP", "optimizer.zero_grad()"),
        ("if i % args.n == 0:\n    optimizer.zero_grad()", "if (i + 1) % args.n == 0:\n    STEP", "pass"),
        ("pass", "if (i + 1) % args.n:\n    continue\nSTEP", "optimizer.zero_grad()"),
        ("last = i % args.n == 0", "if last:\n    STEP", "if last:\n    optimizer.zero_grad()"),
        ("pass", "STEP", "for p in model.parameters():\n    p.grad = None"),
        ("pass", "STEP", "for p in model.parameters():\n    del p.grad"),
        ("pass", "STEP", "helpers.reset_gradients(model)"),  # out of sight
        ("pass", "STEP", "helpers.after_step(model.parameters())"),
        ("if i == 0:\n    optimizer.step()", "STEP", "optimizer.zero_grad()"),
        ("for p in model.parameters():\n    if p.grad is not None:\n        p.grad.zero_()", "STEP", "pass"),
        ("for p in model.parameters():\n    g = p.grad\n    if g is not None:\n        g.zero_()", "STEP", "pass"),
        ("pass", "STEP", "if optimizer is not None and optimizer:\n    optimizer.zero_grad()"),
        ("first = i % args.n == 0\nif first:\n    model.zero_grad()", "if (i + 1) % args.n == 0:\n    STEP", "pass"),
        (
            "if args.at == 0:\n    model.zero_grad()",
            "args.at += 1\nif args.at == args.n:\n    args.restart()\n    STEP",
            "pass",
        ),
    ],
)
def test_where_every_path_clears_it_or_may_nothing_is_said(before: str, step: str, after: str) -> None:
    assert not _told(after, before, step)


def test_a_test_that_counts_and_decides_on_no_step_excuses_nothing() -> None:
    assert _told("if i % 2 == 0:\n    optimizer.zero_grad()", step="if i % 10 == 0:\n    print(i)\nSTEP")


@pytest.mark.parametrize("first", ["j == 0", "not j"])
@pytest.mark.parametrize("last", ["if x is None:\n    break\n", ""])
@pytest.mark.parametrize("helper", [False, True])
def test_the_first_part_of_a_batch_clears_before_each_step(first: str, last: str, helper: bool) -> None:
    head = "import torch\n{}from data import loader, model, criterion\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n{}\n"
    apex = head.format("from apex import amp\n", "model, optimizer = amp.initialize(model, optimizer, opt_level='O1')")
    native = head.format("", "scaler = torch.amp.GradScaler('cuda')")
    clear, called = f"if {first}:\n    optimizer.zero_grad()\n", ""
    if helper:
        called, clear = "def clear(first):\n    if first:\n        optimizer.zero_grad()\n", f"clear({first})\n"
    step = {"optimizer.step()\n": (apex, APEX), "scaler.step(optimizer)\nscaler.update()\n": (native, NATIVE)}
    texts = [
        f"{head}{called}for parts in loader:\n    for j, (x, y) in enumerate(parts):\n"
        + indent(f"{last}{clear}{backward}", "        ")
        + indent(stepping, "    ")
        for stepping, (head, backward) in step.items()
    ]
    assert not [d for d in doubts(*texts) if d.code == "AMP224"]


def test_o2_cleared_its_masters_itself() -> None:
    assert not _told("if i > 0:\n    optimizer.zero_grad()", level="'O2'")


def test_what_unscale_left_where_a_step_is_passed_by_is_told_too() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    apex, native = (
        f"norm = {clip}if norm > args.most:\n    {passed}continue\nSTEP\noptimizer.zero_grad()"
        for passed in ("", "scaler.update(); ")
    )
    head = "from data import loader, model, criterion, args\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    apex = (
        f"import torch\nfrom apex import amp\n{head}model, optimizer = amp.initialize(model, optimizer, opt_level='O1')\n"
        + ("for x, y in loader:\n" + indent(APEX + apex.replace("STEP", "optimizer.step()"), "    "))
    )
    native = f"import torch\n{head}scaler = torch.amp.GradScaler('cuda')\nfor x, y in loader:\n" + indent(
        NATIVE + "scaler.unscale_(optimizer)\n" + native.replace("STEP", "scaler.step(optimizer); scaler.update()"),
        "    ",
    )
    assert [d.code for d in doubts(apex, native) if d.code == "AMP224"]


def test_who_calls_a_function_out_of_sight_may_clear() -> None:
    head = "import torch\n{}from data import model, criterion\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n{}\n"
    apex = head.format("from apex import amp\n", "model, optimizer = amp.initialize(model, optimizer, opt_level='O1')")
    native = head.format("", "scaler = torch.amp.GradScaler('cuda')")
    apex += "def train(x, y):\n" + indent(APEX + "optimizer.step()\n", "    ")
    native += "def train(x, y):\n" + indent(NATIVE + "scaler.step(optimizer)\nscaler.update()\n", "    ")
    assert not [d for d in doubts(apex, native) if d.code == "AMP224"]
    some = "    if x.sum() > 0:\n        optimizer.zero_grad()\n"
    assert [d for d in doubts(apex + some, native + some) if d.code == "AMP224"]


def test_a_program_that_had_a_scaler_of_its_own_meets_what_it_met() -> None:
    """Beside one that came by Apex."""
    own = f"""
import torch
from data import loader, model, criterion
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.cuda.amp.GradScaler()
for i, (x, y) in enumerate(loader):
{indent(NATIVE, "    ")}    scaler.step(optimizer)
    scaler.update()
    if i:
        optimizer.zero_grad()
optimizer.step()
"""
    head = "import torch\n{}from data import loader, model, criterion\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n{}\n"
    apex = head.format("from apex import amp\n", "model, optimizer = amp.initialize(model, optimizer, opt_level='O1')")
    apex += f"for x, y in loader:\n    optimizer.zero_grad()\n{indent(APEX, '    ')}    optimizer.step()\n"
    native = head.format("", "scaler = torch.amp.GradScaler('cuda')")
    native += f"for x, y in loader:\n    optimizer.zero_grad()\n{indent(NATIVE, '    ')}"
    native += "    scaler.step(optimizer)\n    scaler.update()\n"
    now = own.replace("torch.cuda.amp.GradScaler()", 'torch.amp.GradScaler("cuda")')
    before, after = {"own.py": own, "train.py": apex}, {"own.py": now, "train.py": native}
    assert not [d for d in doubts_of(before, after) if d.code == "AMP224"]


def test_a_count_that_goes_down_counts() -> None:
    before = "if args.left == 0:\n    model.zero_grad()"
    assert not _told("pass", before, "args.left -= 1\nif args.left == args.n:\n    args.restart()\n    STEP")


CAUGHT = """
{head}
for x, y in loader:
    try:
        {backward}
        {step}
        {between}
        optimizer.zero_grad()
    except RuntimeError:
        {handler}
"""


@pytest.mark.parametrize(
    ("between", "handler", "codes"),
    [
        ("scheduler.step()", "print(x)", {"AMP234"}),
        ("scheduler.step()", "scaler.update()", {"AMP224"}),
        ("if x.any():\n            continue", "print(x)", {"AMP224", "AMP234"}),
        ("scheduler.step()", "optimizer.zero_grad(); scaler.update()", set()),
    ],
)
def test_what_only_an_error_that_is_caught_leaves_is_told_of_once(between: str, handler: str, codes: set[str]) -> None:
    head = "from data import loader, model, criterion\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    head += "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
    apex = CAUGHT.format(
        head=f"import torch\nfrom apex import amp\n{head}model, optimizer = amp.initialize(model, optimizer, opt_level='O1')",
        backward=indent(APEX, "        ").strip(),
        step="optimizer.step()",
        between=between,
        handler=handler.replace("scaler.update()", "pass"),
    )
    native = CAUGHT.format(
        head=f"import torch\n{head}scaler = torch.amp.GradScaler('cuda')",
        backward=indent(NATIVE, "        ").strip(),
        step="scaler.step(optimizer)\n        scaler.update()",
        between=between,
        handler=handler,
    )
    assert {d.code for d in doubts(apex, native)} & {"AMP224", "AMP234"} == codes
