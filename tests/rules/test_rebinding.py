"""The names that `amp.initialize` bound, once nothing binds them any more."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch

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


def test_a_branch_that_binds_a_name_to_itself_as_well_does_the_same() -> None:
    setup = (
        "    if fp16:\n"
        '        net, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
        "    else:\n"
        "        net, optimizer = model, optimizer\n"
        "    opt = optimizer\n"
    )
    guarded = APEX.replace("\n", "\n    ").replace(
        "    opt.step()", "else:\n            loss.backward()\n        opt.step()"
    )
    before = (
        START.format(imported="from apex import amp\n")
        + setup
        + TRAIN.format(scaled=f"if fp16:\n            {guarded}")
    )
    created = '    scaler = torch.amp.GradScaler("cuda", enabled=bool(fp16))\n    opt = optimizer\n'
    after = AFTER.format(setup=f"    net, optimizer = model, optimizer\n{created}", enabled=", enabled=bool(fp16)")
    check_rewrite(before, after)


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


PUT_BACK = """
from apex import amp


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def prepare(self, models, mixed=True):
        model = None
        BODY

    def step(self, x):
        with amp.scale_loss(self.model(x).mean(), self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.optimizer.step()
"""
SET_UP = 'model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")\nself.model = model\n'
UNDER = f"if mixed:\n{textwrap.indent(SET_UP, '    ')}"


@pytest.mark.parametrize(
    "body",
    [
        f"{SET_UP}return model",
        f"{SET_UP}if mixed:\n    return model",
        f"{UNDER}return model",
        f"{UNDER}if mixed:\n    return model",
        f"{SET_UP}for model in models:\n    print(model)\nreturn model",
        f"if mixed:\n    {SET_UP.partition(chr(10))[0]}\n    self.model = model\nreturn (lambda: model)()",
        f"for turn in range(2):\n    if turn:\n        return model\n{textwrap.indent(SET_UP, '    ')}",
    ],
)
def test_a_name_that_is_put_back_and_read_further_down_is_what_it_was(body: str) -> None:
    after = rewrite(PUT_BACK.replace("BODY", textwrap.indent(body, "        ").lstrip()), device="cpu").after
    assert after is not None
    program: dict[str, Any] = {}
    exec(compile(after, "train.py", "exec"), program)
    model = torch.nn.Linear(2, 1)
    assert program["Trainer"](model, torch.optim.SGD(model.parameters(), lr=0.1)).prepare([]) is model


@pytest.mark.parametrize("below", ["model = make()\nreturn model", "def show(model):\n    print(model)\nreturn show"])
def test_a_name_that_is_put_back_and_read_no_more_is_bound_no_more(below: str) -> None:
    body = textwrap.indent(f"{SET_UP}{below}", "        ").lstrip()
    after = rewrite(PUT_BACK.replace("BODY", body)).after
    assert after is not None
    assert "self.model\n" not in after
    assert "self.model = model\n" not in after.partition("def prepare")[2]
