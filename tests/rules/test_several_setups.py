"""Several `amp.initialize` calls that one scaler takes the place of: it is on where any of them was reached."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.rules.helpers import check_manual, rewrite
from tests.rules.trained import check_trained

BY_OPTIMIZER = """
import torch
from apex import amp


def set_up(model, optimizer, fp16=False, level="O1", teacher=None):
    if fp16:
        if optimizer is None:
            if teacher is None:
                model = amp.initialize(model, optimizer, opt_level=level)
            else:
                model, teacher = amp.initialize([model, teacher], optimizer, opt_level=level)
        else:
            model, optimizer = amp.initialize(model, optimizer, opt_level=level)
    return model, optimizer


def train(args, model, optimizer, loader):
    model, optimizer = set_up(model, optimizer, args.fp16, args.level)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        optimizer.step()


def score(args, model, x):
    model, _ = set_up(model, None, args.fp16, args.level)
    return model(x)
"""


def test_branches_that_set_up_with_and_without_an_optimizer() -> None:
    """The call that only predicts comes first: its condition is not that of training."""
    result = rewrite(BY_OPTIMIZER, device="cpu")
    assert result.after is not None
    assert not [f for f in result.findings if f.status == "manual"]
    names: dict[str, Any] = {}
    exec(result.after, names)
    model, optimizer, teacher = object(), object(), object()
    model = torch.nn.Linear(2, 1)
    for fp16, level, given, other in itertools.product((True, False), ("O0", "O1"), (None, optimizer), (None, teacher)):
        assert names["set_up"](model, given, fp16, level, other) == (model, given)
        assert names["scaler"].is_enabled() is (fp16 and level != "O0")


IN_BRANCHES = """
import torch
from apex import amp


class Trainer:
    def __init__(self, config, model, optimizer):
        self.model, self.optimizer = model, optimizer
        if config.gpus <= 1:
            if config.fp16:
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
            {leave}
        if {second}:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def step(self, x):
        loss = self.model(x).sum()
        with amp.scale_loss(loss, self.optimizer) as scaled:
            scaled.backward()
        self.optimizer.step()
"""


@pytest.mark.parametrize(
    ("leave", "second"), [("return", "True"), ("return", "config.half"), ("pass", "config.gpus > 1 and config.half")]
)
def test_branches_that_leave_and_branches_that_go_on(leave: str, second: str) -> None:
    result = rewrite(IN_BRANCHES.format(leave=leave, second=second), device="cpu")
    assert result.after is not None
    assert not [f for f in result.findings if f.status == "manual"]
    names: dict[str, Any] = {}
    exec(result.after, names)
    for gpus, fp16, half in itertools.product((1, 2), (True, False), (True, False)):

        class config:
            pass

        config.gpus, config.fp16, config.half = gpus, fp16, half  # type: ignore[attr-defined]
        expected = fp16 if gpus <= 1 else (second == "True" or half)
        assert names["Trainer"](config, None, None).scaler.is_enabled() is expected, (gpus, fp16, half, result.after)


def test_a_condition_that_is_known_too_late() -> None:
    """The scaler would be created before `half` is known."""
    source = IN_BRANCHES.format(leave="pass", second="half").replace(
        "        if half:", "        half = read()\n        if half:"
    )
    check_manual(source, "AMP113")


def test_one_condition_for_both_is_asked_once() -> None:
    source = IN_BRANCHES.format(leave="pass", second="config.fp16").replace("if config.gpus <= 1:", "if True:")
    after = rewrite(source).after
    assert after is not None
    assert after.count("GradScaler(") == 1
    assert "enabled=bool(config.fp16)" in after


def test_a_level_that_the_file_sets_and_the_command_line_may() -> None:
    """What is assigned to an option somewhere is not all that it may be, also where a call hands it on."""
    main = """

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--level", default="O1")
args = parser.parse_args()
args.level = "O2"
model = torch.nn.Linear(4, 2).cuda()
train(args, model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
print(score(args, model, x))
"""
    result = rewrite("import argparse\n" + BY_OPTIMIZER + main)
    assert result.after is not None
    assert not [f for f in result.findings if f.code == "AMP531"]


def test_a_branch_without_an_optimizer_gives_back_the_model_alone() -> None:
    """With `optimizers` None, as its branch says, initialize gave the models alone."""
    after = (
        rewrite(
            BY_OPTIMIZER.replace("    return model, optimizer\n", "    print(model)\n    return model, optimizer\n", 1)
        ).after
        or ""
    )
    assert 'enabled=bool(fp16 and level != "O0"))' in after
    set_up = after[after.index("def set_up") : after.index("def train")]
    assert "model =" not in set_up
    assert "teacher = " not in set_up.partition("\n")[2]


HEAD = """
import torch
from apex import amp


class Net(torch.nn.Module):
    def forward(self, x):
        return x

"""
TRAIN = """
    for x in range(3):
        loss = model(x).mean()
        if {flag}:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("second", "enabled"),
    [
        ("args.b", "bool(args.a or args.b)"),
        ("args.a", "bool(args.a)"),
        ("not args.a", ""),
    ],
)
def test_calls_one_after_the_other(second: str, enabled: str) -> None:
    call = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    program = (
        HEAD
        + f"""
def main(args):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.a:
        {call}
    if {second}:
        {call}
"""
        + TRAIN.format(flag="args.a or args.b")
    )
    after = rewrite(program).after or ""
    assert after.count("GradScaler(") == 1
    line = next(line for line in after.splitlines() if "GradScaler(" in line)
    assert (f"enabled={enabled})" in line or f"enabled=({enabled}))" in line) if enabled else "enabled" not in line


def test_what_the_constructor_sets_up_is_not_switched_off() -> None:
    """A disabled scaler for a method that may be called later does not take the place of the constructor's."""
    program = (
        HEAD
        + """
class Trainer:
    def __init__(self, model, optimizer, n, fp16):
        self.model, self.optimizer, self.fp16 = model, optimizer, fp16
        if n == 1 and fp16:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
        if n > 1:
            self.later()

    def later(self):
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def step(self, x):
        loss = self.model(x).mean()
        if self.fp16:
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        self.optimizer.step()
"""
    )
    after = rewrite(program).after or ""
    assert "enabled=bool(n == 1 and fp16))" in after
    assert "enabled=False" not in after
    assert after.count("GradScaler(") == 2


IN_TURN = """
nets, optimizers = [build(), build()], []
for net in nets:
    optimizers.append(torch.optim.SGD(net.parameters(), lr=0.1))
for i in range(len(nets)):
    net, optimizer = amp.initialize(nets[i], optimizers[i], opt_level={level}, verbosity=0)
    nets[i] = net
    optimizers[i] = optimizer{more}
for x, y in loader:
    for i in range(len(nets)):
        net = nets[i]
        optimizer = optimizers[i]
        loss = criterion(net(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        seen.append(clip_grad_norm_(amp.master_params(optimizer), 1.0).item())
        optimizer.step()
        optimizer.zero_grad()
"""


def test_models_that_are_set_up_in_turn_have_one_scaler_that_is_made_once() -> None:
    """What the loop only put back goes, and with it the loop."""
    after = check_trained(IN_TURN.format(level='"O1"', more=""))
    assert '\nscaler = torch.amp.GradScaler("cpu")\nfor x, y in loader:\n' in after
    assert after.count("GradScaler") == 1


@pytest.mark.parametrize(("level", "more"), [("levels[i]", ""), ('"O1"', "\n    print(i)")])
def test_the_loop_stays_for_what_else_is_in_it_or_what_it_turns_over(level: str, more: str) -> None:
    after = rewrite(IN_TURN.format(level=level, more=more).replace("build()", "project.build()")).after
    assert after is None or after.count("for i in range(len(nets)):") == 2
