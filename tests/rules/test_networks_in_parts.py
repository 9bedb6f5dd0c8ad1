"""Networks that `initialize` is given in parts, and methods of networks that run them whatever they are called."""

from __future__ import annotations

import pytest
import torch

from tests.rules.helpers import names_of, rewrite, rewrite_files
from tests.rules.programs import found

PROGRAM = """
import torch
from apex import amp

torch.manual_seed(0)


class World(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(4, 4)
        self.cell = torch.nn.GRUCell(4, 4)

    def METHOD(self, state, action):
        hidden = self.cell(self.encoder(state["drawn"] + action), state["hidden"])
        return {"drawn": hidden.float().tanh(), "hidden": hidden}

    def features(self, state):
        return torch.cat([state["drawn"], state["hidden"]], -1)

    def forward(self, x):
        return self.METHOD({"drawn": x, "hidden": torch.zeros(8, 4)}, x)


class Trainer:
    def __init__(self):
        self.world = World()
        self.actor = torch.nn.Linear(8, 4)
        self.optimizer = torch.optim.SGD([*self.world.parameters(), *self.actor.parameters()], lr=0.1)
        models, self.optimizer = amp.initialize(GIVEN, self.optimizer, opt_level="O1")
        UNPACKED = models

    def imagine(self, now):
        kept = []
        for _ in range(3):
            feature = self.world.features(now).detach()
            action = self.actor(feature)
            now = self.world.METHOD(now, action)
            kept.append(now["drawn"])
        return torch.cat(kept)

    def train(self, x):
        state = self.world(x)
        loss = (state["drawn"] - x).abs().mean()
        self.optimizer.zero_grad()
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.optimizer.step()
        return self.imagine(state).sum().item()

trainer = Trainer()
seen = [trainer.train(torch.randn(8, 4)) for _ in range(2)]
"""
PARTS = "[self.world.encoder, self.world.cell, self.actor]", "self.world.encoder, self.world.cell, self.actor"
WHOLE = "[self.world, self.actor]", "self.world, self.actor"


def program(given: tuple[str, str], method: str) -> str:
    text = PROGRAM.replace("GIVEN", given[0]).replace("UNPACKED", given[1])
    return text.replace("METHOD", method)


IN_A_REGION = """
            with torch.autocast("cpu", dtype=torch.float16):
                action = self.actor(feature)
                now = self.world.METHOD(now, action)
"""


@pytest.mark.parametrize(
    ("given", "method"), [(PARTS, "advance"), (PARTS, "imagine_next"), (WHOLE, "advance"), (WHOLE, "update_state")]
)
def test_a_method_of_a_network_that_is_given_half_runs_in_a_region(given: tuple[str, str], method: str) -> None:
    result = rewrite(program(given, method), device="cpu")
    assert IN_A_REGION.replace("METHOD", method) in str(result.after)
    assert not [f.code for f in result.findings if f.code in ("AMP502", "AMP507", "AMP535")]
    assert all(map(torch.isfinite, map(torch.tensor, names_of(result.after)["seen"])))


def test_a_network_that_was_given_in_parts_was_not_left_in_float32() -> None:
    text = (
        program(PARTS, "advance").replace('opt_level="O1"', "opt_level=level").replace("seen =", "level = 'O1'; seen =")
    )
    result = rewrite(text)
    assert "state = self.world(x)\n            loss = (" in str(result.after)
    assert not found(result, "AMP507")


SWITCHED = "def __init__(self, on=True):\n        self.world"
RUNS = """
import torch


class Run:
    def __init__(self, trainer):
        self.trainer = trainer
        self.hooks = []

    def go(self, x):
        for hook in self.hooks:
            hook(self, x)


def film(run, x):
    with torch.no_grad():
        seen = run.trainer.world(x)
    return seen["drawn"].sum()
"""
MAIN = """
import torch
from parts import Trainer
from runs import Run, film


def main(on):
    trainer = Trainer(on)
    run = Run(trainer)
    run.hooks.append(film)
    film(run, torch.randn(8, 4))
    for _ in range(2):
        run.go(torch.randn(8, 4))
        trainer.train(torch.randn(8, 4))


main(True)
"""


def test_an_evaluation_that_no_switch_can_be_handed_to_is_told_and_leaves_nothing_with_apex() -> None:
    text = program(PARTS, "advance").replace("def __init__(self):\n        self.world", SWITCHED)
    text = text.replace('opt_level="O1"', 'opt_level="O1", enabled=on').partition("trainer = Trainer()\n")[0]
    results = rewrite_files({"parts.py": text, "runs.py": RUNS, "main.py": MAIN})
    assert "apex" not in str(results["parts.py"].after)
    (told,) = found(results["runs.py"], "AMP502")
    assert told.message.startswith("run.trainer.world runs in float32 but where what calls it is under autocast")
    assert "initialize was given" in told.message


LISTED = """
    import torch
    from apex import amp

    class Trainer:
        def __init__(self, net, head, on):
            self.net, self.head = net, head
            self.optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
            if on:
                models, optimizers = amp.initialize([self.net, self.head], [self.optimizer], opt_level="O1")
                (self.net, self.head) = models
                [self.optimizer] = optimizers
                MORE

        def step(self, x):
            loss = self.head(self.net(x)).sum()
            self.optimizer.zero_grad()
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()
"""


def test_a_list_that_is_only_taken_apart_again_goes() -> None:
    after = rewrite(LISTED.replace("                MORE\n", "")).after
    assert after is not None
    assert "models" not in after
    assert "optimizers" not in after
    assert "if on:" not in after


@pytest.mark.parametrize("more", ["print(len(models))", "self.kept = models"])
def test_a_list_that_something_else_reads_stays(more: str) -> None:
    after = rewrite(LISTED.replace("MORE", more)).after
    assert "models = [self.net, self.head]\n            (self.net, self.head) = models" in str(after)


def test_a_list_that_is_taken_apart_in_another_order_stays() -> None:
    after = rewrite(
        LISTED.replace("                MORE\n", "").replace("(self.net, self.head)", "(self.head, self.net)")
    ).after
    assert (
        "models, optimizers = [self.net, self.head], [self.optimizer]\n            (self.head, self.net) = models"
        in str(after)
    )
