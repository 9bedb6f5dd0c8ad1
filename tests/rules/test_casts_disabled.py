"""`amp.disable_casts()` around what is called elsewhere, too: whatever way an evaluation is come by, it has the casts it had."""

from __future__ import annotations

import pytest
import torch

from tests.audit.helpers import doubts
from tests.rules.helpers import check_manual, names_of, rewrite
from tests.rules.programs import found

SOLVER = """
import torch

SEEN = []


class Solver:
    def __init__(self, mode, fp16):
        self.mode = mode
        self.fp16 = fp16
        self.model = torch.nn.Linear(4, 1)
        {early}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        if fp16:
            from apex import amp

            self.amp = amp
            self.model, self.optimizer = self.amp.initialize(self.model, self.optimizer, opt_level="O1")
        else:
            self.amp = None

    def train(self):
        loss = torch.nn.functional.mse_loss(self.model(torch.ones(2, 4)), torch.ones(2, 1))
        self.optimizer.zero_grad()
        if {asked}:
            with self.amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        self.optimizer.step()
        if self.fp16:
            with self.amp.disable_casts():
                self.test()
        else:
            self.test()

    def test(self):
        self.run_test()

    def run_test(self):
        {guard}:
            SEEN.append(self.model(torch.ones(2, 4)).dtype)


def main(mode, fp16):
    solver = Solver(mode, fp16)
    if {mode} == "test":
        solver.test()
    else:
        solver.train()
    return SEEN
"""
EARLY = [
    'if mode == "test":\n            return',
    'if self.mode == "test":\n            print("test")\n            return',
]


def program(early: str = "", asked: str = "self.amp", guard: str = "with torch.no_grad()", mode: str = "mode") -> str:
    return SOLVER.format(early=early, asked=asked, guard=guard, mode=mode)


def dtypes(text: str | None, mode: str, fp16: bool) -> list[torch.dtype]:
    return names_of(text)["main"](mode, fp16)


@pytest.mark.parametrize("guard", ["with torch.no_grad()", "for _ in range(1)"])
def test_an_evaluation_that_also_runs_with_casts_is_in_a_region_by_that_call(guard: str) -> None:
    result = rewrite(program(guard=guard), device="cpu")
    assert result.after is not None
    assert dtypes(result.after, "train", True) == [torch.float32]
    assert dtypes(result.after, "test", True) == [torch.float16]
    assert dtypes(result.after, "test", False) == [torch.float32]
    assert any("what run_test runs is under autocast by this call" in f.message for f in found(result, "AMP501"))


@pytest.mark.parametrize("early", EARLY)
@pytest.mark.parametrize("asked", ["self.amp", "self.amp is not None"])
def test_one_that_runs_alone_where_the_constructor_left_before_initialize_is_in_none(early: str, asked: str) -> None:
    result = rewrite(program(early, asked), device="cpu")
    assert result.after is not None
    for mode in ("train", "test"):
        for fp16 in (True, False):
            assert dtypes(result.after, mode, fp16) == [torch.float32]
    assert not {f.code for f in result.findings} & {"AMP502", "AMP516", "AMP531", "AMP532"}


def test_a_constructor_that_leaves_for_another_mode_is_no_reason() -> None:
    after = rewrite(program('if mode == "other":\n            return'), device="cpu").after
    assert dtypes(after, "test", True) == [torch.float16]


def test_a_mode_that_is_given_anew_in_between_is_no_reason() -> None:
    made = "    solver = Solver(mode, fp16)\n"
    text = program(EARLY[0]).replace(made, f'{made}    mode = "test"\n')
    after = rewrite(text, device="cpu").after
    assert dtypes(after, "train", True) == [torch.float16]


def test_a_call_that_cannot_stand_in_a_region_is_reported() -> None:
    text = program().replace(
        "        solver.test()\n    else", "        if solver.test():\n            print(1)\n    else"
    )
    (finding,) = [f for f in found(check_manual(text, "AMP516"), "AMP516") if f.status == "manual"]
    assert "run_test runs with casts by this call and without them elsewhere" in finding.message


@pytest.mark.parametrize("early", EARLY)
def test_an_evaluation_of_training_has_its_casts_where_the_same_alone_has_none(early: str) -> None:
    text = program(early).replace(
        "        if self.fp16:\n            with self.amp.disable_casts():\n                self.test()\n        else:\n"
        "            self.test()\n",
        "        self.test()\n",
    )
    after = rewrite(text, device="cpu").after
    assert after is not None
    assert [dtypes(after, mode, True) for mode in ("train", "test")] == [[torch.float16], [torch.float32]]
    assert [dtypes(after, mode, False) for mode in ("train", "test")] == [[torch.float32], [torch.float32]]


def test_a_check_that_stops_the_constructor_decides_nothing() -> None:
    early = 'if not mode:\n            raise ValueError(mode)\n        if mode == "test":\n            return'
    result = rewrite(program(early), device="cpu")
    assert result.after is not None
    assert not {f.code for f in result.findings} & {"AMP502", "AMP516", "AMP531", "AMP532"}


ENTERED = """
import contextlib
import torch
from apex import amp

SEEN = []
{helper}

{decorator}def evaluate(model):
    with torch.no_grad():
        SEEN.append(model(torch.ones(2, 4)).dtype)


def main(fp16, exact=True):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1", enabled=fp16)
    loss = torch.nn.functional.mse_loss(model(torch.ones(2, 4)), torch.ones(2, 1))
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
{body}
    return SEEN
"""
MANAGER = """
@contextlib.contextmanager
def uncast():
    with amp.disable_casts():
        yield
"""
GIVING = "\ndef uncast():\n    return amp.disable_casts()\n"
INSIDE = "    with {}:\n        evaluate(model)"
FORWARD = "with torch.no_grad():\n            SEEN.append(model(torch.ones(2, 4)).dtype)"
STACK = "    with contextlib.ExitStack() as stack:\n        {}\n        evaluate(model)"
CHOICE = "amp.disable_casts() if exact else contextlib.nullcontext()"


def entered(body: str, helper: str = "", decorator: str = "") -> str:
    return ENTERED.format(body=body, helper=helper, decorator=decorator)


def seen(text: str, fp16: bool, exact: bool = True) -> list[torch.dtype]:
    return names_of(text)["main"](fp16, exact)


@pytest.mark.parametrize(
    ("body", "helper", "decorator"),
    [
        (INSIDE.format("torch.no_grad(), amp.disable_casts()"), "", ""),
        (INSIDE.format("amp.disable_casts()").replace("evaluate(model)", FORWARD), "", ""),
        ("    off = amp.disable_casts()\n" + INSIDE.format("off"), "", ""),
        (STACK.format("stack.enter_context(amp.disable_casts())"), "", ""),
        (INSIDE.format("contextlib.ExitStack() as stack, stack.enter_context(amp.disable_casts())"), "", ""),
        ("    evaluate(model)", "", "@amp.disable_casts()\n"),
        (INSIDE.format("uncast()"), MANAGER, ""),
        (INSIDE.format("uncast()"), GIVING, ""),
    ],
)
def test_however_it_is_entered_nothing_is_half_inside(body: str, helper: str, decorator: str) -> None:
    result = rewrite(entered(body, helper, decorator), device="cpu")
    assert result.after is not None
    assert seen(result.after, True) == [torch.float32]
    assert not found(result, "AMP531")


@pytest.mark.parametrize("body", [INSIDE.format(CHOICE), f"    context = {CHOICE}\n{INSIDE.format('context')}"])
def test_what_is_entered_instead_is_a_region(body: str) -> None:
    after = rewrite(entered(body), device="cpu").after
    assert after is not None
    assert (seen(after, True), seen(after, True, False)) == ([torch.float32], [torch.float16])
    assert (seen(after, False), seen(after, False, False)) == ([torch.float32], [torch.float32])


@pytest.mark.parametrize(
    "body",
    [
        STACK.format("if exact:\n            stack.enter_context(amp.disable_casts())"),
        INSIDE.format("amp.disable_casts() if exact else other()"),
        "    hold(amp.disable_casts())\n    evaluate(model)",
    ],
)
def test_what_is_decided_elsewhere_is_reported(body: str) -> None:
    check_manual(entered(body), "AMP516")


HELPED = """
import contextlib

import torch
from apex import amp


class Trainer:
    def __init__(self, fp16):
        self.fp16 = fp16
        self.net = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        if fp16:
            self.net, self.optimizer = amp.initialize(self.net, self.optimizer, opt_level="O1")

    HELPER

    def forward(self, x, on=True):
        with self.casts(on):
            return self.net(x)

    def train(self):
        seen = [self.forward(torch.ones(1, 4), False).dtype]
        loss = self.net(torch.ones(1, 4)).float().sum()
        self.optimizer.zero_grad()
        if self.fp16:
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        self.optimizer.step()
        return seen


def main(fp16):
    return Trainer(fp16).train()
"""
BY_SWITCH = [
    "def casts(self, on):\n        if self.fp16:\n            return amp.disable_casts()\n"
    "        return contextlib.nullcontext()",
    "def casts(self, on):\n        if not self.fp16:\n            return contextlib.nullcontext()\n"
    "        return amp.disable_casts()",
    "@contextlib.contextmanager\n    def casts(self, on):\n        if self.fp16:\n            with amp.disable_casts():\n"
    "                yield\n        else:\n            yield",
]
NATIVE = [
    ("from apex import amp\n", ""),
    (
        "        loss = self.net",
        '        with torch.autocast("cuda", dtype=torch.float16, enabled=self.fp16):\n            loss = self.net',
    ),
    (
        '        if fp16:\n            self.net, self.optimizer = amp.initialize(self.net, self.optimizer, opt_level="O1")\n',
        '        self.scaler = torch.amp.GradScaler("cuda", enabled=fp16)\n',
    ),
    (
        "        if self.fp16:\n            with amp.scale_loss(loss, self.optimizer) as scaled:\n"
        "                scaled.backward()\n        else:\n            loss.backward()\n        self.optimizer.step()\n",
        "        self.scaler.scale(loss).backward()\n        self.scaler.step(self.optimizer)\n"
        "        self.scaler.update()\n",
    ),
]
BY_CHOICE = [text.replace("self.fp16", "(not on)") for text in BY_SWITCH]


@pytest.mark.parametrize("helper", BY_SWITCH)
def test_a_function_that_gives_it_where_mixed_precision_is_on(helper: str) -> None:
    result = rewrite(HELPED.replace("HELPER", helper), device="cpu")
    assert not [f for f in result.findings if f.status == "manual" or f.code == "AMP531"]
    for fp16 in (True, False):
        assert names_of(result.after)["main"](fp16) == [torch.float32]


@pytest.mark.parametrize("helper", BY_CHOICE)
def test_a_function_that_gives_it_or_not_is_reported(helper: str) -> None:
    (told,) = found(check_manual(HELPED.replace("HELPER", helper), "AMP516"), "AMP516")
    assert "decided at run time" in told.message


@pytest.mark.parametrize("helper", BY_CHOICE)
def test_the_audit_tells_of_what_ran_with_casts_where_a_function_gave_something_else(helper: str) -> None:
    before = HELPED.replace("HELPER", helper).replace("torch.ones(1, 4), False", "torch.ones(1, 4)")
    after = before.replace("amp.disable_casts()", 'torch.autocast("cuda", enabled=False)')
    for old, new in NATIVE:
        assert old in after
        after = after.replace(old, new)
    told = [d.message for d in doubts(before, after) if d.code == "AMP531"]
    assert any("self.net ran in half precision under Apex where" in m and "on" in m for m in told)
