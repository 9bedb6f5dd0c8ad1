"""One update of the scale an iteration, after the last step: with a scale that doubles at every update, gradients that
still carry the old one when it changes come out wrong."""

from __future__ import annotations

from functools import partial
from textwrap import indent

import pytest
import torch

from tests.rules.programs import check_refused
from tests.rules.trained import check_trained

SETUP = """
other = build()
second = torch.optim.SGD(other.parameters(), lr=0.05)


def finish(optimizer, parameters):
    {clip}
    optimizer.step()
    optimizer.zero_grad()


[model, other], [optimizer, second] = amp.initialize([model, other], [optimizer, second], opt_level="O1")
"""
TRAIN = """
for x, y in loader:
    loss = criterion(model(x) + other(x), y)
    with amp.scale_loss(loss, [optimizer, second]) as scaled_loss:
        scaled_loss.backward()
"""
CLIP = "clip_grad_norm_(parameters, 0.05)"

PROGRAMS = {
    "a call for each optimizer": SETUP.format(clip=CLIP)
    + TRAIN
    + "    finish(optimizer, model.parameters())\n    finish(second, other.parameters())\n",
    "a loop over the optimizers": SETUP.format(clip="clip_grad_norm_(amp.master_params(optimizer), 0.05)")
    + TRAIN
    + "    for o in [optimizer, second]:\n        finish(o, None)\n",
    "a helper that calls the helper": SETUP.format(clip=CLIP)
    + """
def end(o, net):
    finish(o, net.parameters())


def train():
    for x, y in loader:
        loss = criterion(model(x) + other(x), y)
        with amp.scale_loss(loss, [optimizer, second]) as scaled_loss:
            scaled_loss.backward()
        end(optimizer, model)
        end(second, other)


train()
""",
    "unscaled together, stepped apart": SETUP.format(clip="seen.append(len(list(parameters)))")
    + TRAIN
    + "    clip_grad_norm_([*model.parameters(), *other.parameters()], 0.05)\n"
    "    finish(optimizer, model.parameters())\n    finish(second, other.parameters())\n",
    "each after a backward of its own": SETUP.format(clip=CLIP)
    + """
for x, y in loader:
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    finish(optimizer, model.parameters())
    loss = criterion(other(x), y)
    with amp.scale_loss(loss, second) as scaled_loss:
        scaled_loss.backward()
    finish(second, other.parameters())
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_the_scale_changes_while_no_gradients_carry_it(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = partial(torch.amp.GradScaler, init_scale=16.0, growth_interval=1)
    monkeypatch.setattr(torch.amp, "GradScaler", growing)
    assert check_trained(program).count(".update(") == 1


REFUSED = """
import torch
from apex import amp

from project import build, criterion, loader

(model, optimizer), (other, second) = build(), build()
[model, other], [optimizer, second] = amp.initialize([model, other], [optimizer, second], opt_level="O1")


def first(o):
    o.step()


def last(o):
    o.step()


for x, y in loader:
    loss = criterion(model(x) + other(x), y)
    with amp.scale_loss(loss, [optimizer, second]) as scaled_loss:
        scaled_loss.backward()
    first(optimizer)
    last(second)
"""


def test_steps_in_two_functions_would_update_between_them() -> None:
    check_refused(REFUSED, "AMP307")


APART = """
import torch
from apex import amp
from torch.nn.utils import clip_grad_norm_

from project import build, criterion, grad_norm, loader, seen

model, other = build(), build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.SGD(other.parameters(), lr=0.1)
[model, other], [optimizer, second] = amp.initialize([model, other], [optimizer, second], opt_level="O1")

for i, (x, y) in enumerate(loader):
    loss = criterion(model(x) + other(x), y)
    with amp.scale_loss(loss, [optimizer, second]) as scaled_loss:
        scaled_loss.backward()
    {read}
    optimizer.step()
    if i % 2:
        second.step()
"""


@pytest.mark.parametrize(
    "read",
    [
        "clip_grad_norm_([*model.parameters(), *other.parameters()], 1.0)",
        "for net in (other, model):\n        clip_grad_norm_(net.parameters(), 1.0)",
        "seen.append(grad_norm(other))",
    ],
)
def test_gradients_of_an_optimizer_that_steps_later_are_not_read_scaled(read: str) -> None:
    check_refused(APART.format(read=read), "AMP307")


ENSEMBLE = """
models = [build() for _ in range(3)]
optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
models, optimizers = amp.initialize(models, optimizers, opt_level="O1")
"""
TURN = """
loss = criterion(net(x), y)
opt.zero_grad()
with amp.scale_loss(loss, opt) as scaled_loss:
    scaled_loss.backward()
seen.append(clip_grad_norm_(amp.master_params(opt), 0.05).item())
opt.step()
"""
AROUND = "for net, opt in zip(models, optimizers):\n"

ENSEMBLES = {
    "around the loop over batches": AROUND + "    for x, y in loader:\n" + indent(TURN, " " * 8),
    "around epochs": AROUND + "    for epoch in range(2):\n        for x, y in loader:\n" + indent(TURN, " " * 12),
    "around a while": AROUND
    + "    batches = iter(loader)\n    while (batch := next(batches, None)) is not None:\n        x, y = batch\n"
    + indent(TURN, " " * 8),
    "inside the loop over batches": "for x, y in loader:\n    " + AROUND + indent(TURN, " " * 8),
    "by number": "for i in range(3):\n    for x, y in loader:\n"
    + indent(
        TURN.replace("opt.", "optimizers[i].").replace("opt)", "optimizers[i])").replace("net", "models[i]"), " " * 8
    ),
    "in a function": f"def train(net, opt):\n    for x, y in loader:\n{indent(TURN, ' ' * 8)}\n{AROUND}    train(net, opt)\n",
}


@pytest.mark.parametrize("program", ENSEMBLES.values(), ids=ENSEMBLES)
def test_an_ensemble_updates_after_every_iteration_of_each(program: str) -> None:
    after = check_trained(ENSEMBLE + program + "\nmodel = models[-1]\n")
    assert after.count(".update(") == 1
