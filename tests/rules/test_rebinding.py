"""The names that `amp.initialize` bound, once nothing binds them any more."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, rewrite

TRAIN = """
    for x, y in loader:
        loss = criterion(net(x), y)
        opt.zero_grad()
        {scaled}
"""
APEX = """\
with amp.scale_loss(loss, opt) as scaled_loss:
            scaled_loss.backward()
        opt.step()"""
START = """
import torch
{imported}

def main(model, optimizer, loader, criterion, fp16):
"""
BEFORE = START.format(imported="from apex import amp\n") + "{setup}" + TRAIN.format(scaled=APEX)
AFTER = """
import torch


def main(model, optimizer, loader, criterion, fp16):
{setup}
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.float16{enabled}):
            loss = criterion(net(x), y)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
"""


def test_other_names_are_bound_to_what_was_given() -> None:
    before = BEFORE.format(setup='    net, opt = amp.initialize(model, optimizer, opt_level="O1")\n')
    setup = '    scaler = torch.amp.GradScaler("cuda")\n    net, opt = model, optimizer\n'
    check_rewrite(before, AFTER.format(setup=setup, enabled=""))


@pytest.mark.parametrize("imports", [False, True])
def test_branches_that_now_do_the_same_become_one(imports: bool) -> None:
    setup = (
        "    if fp16:\n"
        + ("        from apex import amp\n" if imports else "")
        + '        net, opt = amp.initialize(model, optimizer, opt_level="O1")\n'
        "    else:\n"
        "        net, opt = model, optimizer\n"
    )
    before = BEFORE.format(setup=setup)
    before = before.replace(
        "        with amp.scale_loss(loss, opt) as scaled_loss:\n            scaled_loss.backward()\n",
        "        if fp16:\n            with amp.scale_loss(loss, opt) as scaled_loss:\n                scaled_loss.backward()\n"
        "        else:\n            loss.backward()\n",
    )
    after = rewrite(before).after
    assert after is not None
    assert after.count("net, opt = model, optimizer") == 1
    assert "if fp16" not in after


def test_a_branch_without_another_one_stays() -> None:
    setup = "    net, opt = model, optimizer\n    if fp16:\n        net, opt = {}\n"
    before = BEFORE.format(setup=setup.format('amp.initialize(wrap(model), optimizer, opt_level="O1")'))
    before = before.replace(
        "        with amp.scale_loss(loss, opt) as scaled_loss:\n            scaled_loss.backward()\n",
        "        if fp16:\n            with amp.scale_loss(loss, opt) as scaled_loss:\n                scaled_loss.backward()\n"
        "        else:\n            loss.backward()\n",
    )
    after = rewrite(before).after
    assert after is not None
    assert "    net, opt = model, optimizer\n" in after
    assert "    if fp16:\n        net, opt = wrap(model), optimizer\n" in after


@pytest.mark.parametrize(
    ("above", "otherwise"),
    [("        print('mixed')\n", "net, opt = model, optimizer"), ("", "net, opt = wrap(model), optimizer")],
)
def test_branches_that_still_differ_stay(above: str, otherwise: str) -> None:
    setup = (
        f'    if fp16:\n{above}        net, opt = amp.initialize(model, optimizer, opt_level="O1")\n'
        f"    else:\n        {otherwise}\n"
    )
    before = BEFORE.format(setup=setup).replace(
        "        with amp.scale_loss(loss, opt) as scaled_loss:\n            scaled_loss.backward()\n",
        "        if fp16:\n            with amp.scale_loss(loss, opt) as scaled_loss:\n                scaled_loss.backward()\n"
        "        else:\n            loss.backward()\n",
    )
    after = rewrite(before).after
    assert after is not None
    assert "    if fp16:\n" in after
    assert f"    else:\n        {otherwise}\n" in after


@pytest.mark.parametrize(
    ("head", "given"),
    [
        ("def prepare(model, optimizer):", "model, optimizer"),
        ("def prepare(model, optimizer=None):", "(model, optimizer) if optimizer is not None else model"),
        ("def prepare(model):\n    optimizer = None", "(model, optimizer) if optimizer is not None else model"),
        ("from settings import *\n\n\ndef prepare(model):", "model, optimizer"),
        ("optimizer = make()\n\n\ndef prepare(model):", "model, optimizer"),
    ],
)
def test_what_a_function_returned_it_returns(head: str, given: str) -> None:
    """`initialize` gave back models alone where there was no optimizer."""
    after = rewrite(f"""from apex import amp
{head}
    return amp.initialize(model, optimizer, opt_level="O1")


def step(loss, optimizer):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()


def main(model, optimizer, loader):
    model, optimizer = prepare(model, optimizer)
    for x in loader:
        step(model(x).mean(), optimizer)
""").after
    assert after is not None
    assert f"return {given}\n" in after or f"return {given}, scaler" in after or f"return ({given})" in after, after


ATTRIBUTES = """from apex import amp


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def step(self, x):
        with amp.scale_loss(self.model(x).mean(), self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.optimizer.step()
"""
GLOBAL = """from apex import amp


def build():
    global optimizer
    optimizer = make(model)


build()
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x in loader:
    with amp.scale_loss(model(x).mean(), optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
PARAMETER = """from apex import amp


def main(model, optimizer, loader):
    def renew():
        nonlocal optimizer
        optimizer.zero_grad()

    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        renew()
        with amp.scale_loss(model(x).mean(), optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""


FROM_ELSEWHERE = """\
from apex import amp
from setting import *


def clear():
    global optimizer
    optimizer.zero_grad()


model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x in loader:
    clear()
    with amp.scale_loss(model(x).mean(), optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
LOCAL = PARAMETER.replace("(model, optimizer, loader):\n", "(model, loader):\n    optimizer = make(model)\n\n")


@pytest.mark.parametrize(
    "program",
    [ATTRIBUTES, GLOBAL, PARAMETER, FROM_ELSEWHERE, LOCAL],
    ids=["attributes", "global", "parameter", "elsewhere", "local"],
)
def test_nothing_is_bound_to_itself(program: str) -> None:
    after = rewrite(program).after
    assert after is not None
    assert "optimizer = optimizer" not in after
    assert "= self.model, self.optimizer" not in after
    assert "model = model" not in after


def test_what_went_on_over_lines_in_the_brackets_of_the_call_gets_its_own() -> None:
    setup = "    net, opt = amp.initialize(\n        model or\n        fallback(),  # ours\n        optimizer, opt_level='O1')\n"
    result = rewrite(BEFORE.format(setup=setup))
    assert "    net, opt = (model or\n        fallback()), optimizer\n" in (result.after or "")
    compile(result.after or "", "train.py", "exec")


def test_brackets_of_its_own_are_enough() -> None:
    setup = "    net, opt = amp.initialize(wrapped(\n        model), optimizer, opt_level='O1')\n"
    result = rewrite(BEFORE.format(setup=setup))
    assert "    net, opt = wrapped(\n        model), optimizer\n" in (result.after or "")
