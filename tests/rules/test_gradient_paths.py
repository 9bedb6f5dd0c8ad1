"""Readers of gradients in other functions than the step: unscaled first on every path, or refused."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import apex, check_refused

SPREAD = """
import torch
from apex import amp

from project import build, criterion, loader

{functions}
model, optimizer = build()
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

for x, y in loader:
    loss = criterion(model(x), y)
{loop}"""
SCALE = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\n"
CLIP_MASTERS = "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)\n"


@pytest.mark.parametrize(
    ("functions", "loop"),
    [
        ({"update": "optimizer.step()\n"}, SCALE + CLIP_MASTERS + "update(model, optimizer, loss)\n"),
        ({"clip": CLIP_MASTERS}, SCALE + "clip(model, optimizer, loss)\noptimizer.step()\n"),
        (
            {"clip": CLIP_MASTERS, "update": "optimizer.step()\n"},
            SCALE + "clip(model, optimizer, loss)\nupdate(model, optimizer, loss)\n",
        ),
        ({"update": CLIP_MASTERS + "optimizer.step()\n"}, SCALE + "update(model, optimizer, loss)\n"),
        ({"backward": SCALE + CLIP_MASTERS}, "backward(model, optimizer, loss)\noptimizer.step()\n"),
        (
            {"backward": SCALE + CLIP_MASTERS, "update": "optimizer.step()\n"},
            "backward(model, optimizer, loss)\nupdate(model, optimizer, loss)\n",
        ),
        ({"everything": SCALE + CLIP_MASTERS + "optimizer.step()\n"}, "everything(model, optimizer, loss)\n"),
    ],
    ids=["step", "clip", "clip and step", "clip with step", "backward with clip", "all apart", "all together"],
)
def test_a_clip_is_unscaled_whichever_functions_hold_it_and_the_step(functions: dict[str, str], loop: str) -> None:
    defined = "".join(
        f"\ndef {name}(model, optimizer, loss):\n{textwrap.indent(body, '    ')}\n" for name, body in functions.items()
    )
    result = rewrite(SPREAD.format(functions=defined, loop=textwrap.indent(loop, "    ")))
    if result.after is None:
        assert [f for f in result.findings if f.code == "AMP307"]
    else:
        assert result.after.count("unscale_(optimizer)") == 1


def test_gradients_logged_after_every_batch_of_an_accumulation_are_refused() -> None:
    loop = (
        "loss = criterion(model(x), y)\n" + SCALE + "if i % 4 == 3:\n    optimizer.step()\n    optimizer.zero_grad()\n"
        "if i % 100 == 0:\n    log_grad_norm(model)\n"
    )
    check_refused(apex(loop, imports="from apex import amp\nfrom project import i, log_grad_norm"), "AMP307")


REFUSED = {
    "a helper that clips after every micro-batch": """
def backward(loss):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    torch.nn.utils.clip_grad_value_(amp.master_params(optimizer), 1.0)


for i, (x, y) in enumerate(loader):
    backward(criterion(model(x), y))
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
""",
    "two losses through a helper that clips": """
def backward(loss):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    torch.nn.utils.clip_grad_value_(amp.master_params(optimizer), 1.0)


for x, y in loader:
    backward(criterion(model(x), y))
    backward(criterion(model(x), y + 1))
    optimizer.step()
""",
    "a step in a helper that only some calls make": """
def update(i):
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()


for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    torch.nn.utils.clip_grad_value_(amp.master_params(optimizer), 1.0)
    update(i)
""",
}


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED)
def test_a_reader_that_no_unscale_serves_on_every_path_is_refused(program: str) -> None:
    prepare = 'model, optimizer = build()\nmodel, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
    imports = "import torch\nfrom apex import amp\n\nfrom project import build, criterion, loader\n\n"
    check_refused(imports + prepare + program, "AMP307")


def test_two_functions_that_initialize_their_own_parameters_are_units_of_their_own() -> None:
    body = (
        "    net, opt = amp.initialize(net, opt, opt_level='O1')\n    for x in loader:\n        loss = net(x).mean()\n"
    )
    scale = "        with amp.scale_loss(loss, opt) as scaled_loss:\n            scaled_loss.backward()\n"
    imports = "import torch\nfrom apex import amp\n\nfrom project import closure, loader\n\n\n"
    one = f"def one(net, opt):\n{body}{scale}        opt.step()\n\n\n"
    two = f"def two(net, opt):\n{body}{scale}        opt.step(closure)\n"
    result = rewrite(imports + one + two)
    assert result.status == "partial"
    assert result.after is not None
    assert "scaler.step(opt)" in result.after
    assert "opt.step(closure)" in result.after
