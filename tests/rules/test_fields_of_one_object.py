"""Two trainers with an optimizer each: in one run of a method `self.optimizer` is one of them. And lists that are handed on."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.trained import check_trained

TRAINER = """
class Trainer:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer

{methods}

other = build()
second = torch.optim.SGD(other.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
other, second = amp.initialize(other, second, opt_level="O1")
{use}
"""
ONE_METHOD = """
    def fit(self):
        for x, y in loader:
            self.optimizer.zero_grad()
            with amp.scale_loss(criterion(self.model(x), y), self.optimizer) as scaled_loss:
                scaled_loss.backward()
            seen.append(clip_grad_norm_(amp.master_params(self.optimizer), 0.05).item())
            self.optimizer.step()
"""
SEVERAL_METHODS = """
    def clear(self):
        self.optimizer.zero_grad()

    def backward(self, x, y):
        with amp.scale_loss(criterion(self.model(x), y), self.optimizer) as scaled_loss:
            scaled_loss.backward()

    def step(self):
        self.optimizer.step()

    def fit(self):
        for x, y in loader:
            self.clear()
            self.backward(x, y)
            self.step()
            seen.append(self.model(x).mean().item())
"""
METHODS = {"in one method": ONE_METHOD, "in several": SEVERAL_METHODS}
USES = {
    "made where it is used": "Trainer(model, optimizer).fit()\nTrainer(other, second).fit()",
    "named": "one, two = Trainer(model, optimizer), Trainer(other, second)\none.fit()\ntwo.fit()\none.fit()",
    "in a loop": "for trainer in [Trainer(model, optimizer), Trainer(other, second)]:\n    trainer.fit()",
}


@pytest.mark.parametrize("methods", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_each_run_of_a_method_has_the_optimizer_of_its_object(methods: str, use: str) -> None:
    text = check_trained(TRAINER.format(methods=methods, use=use))
    assert text.count("scaler.step(self.optimizer)") == 1


def test_an_heir_runs_the_method_of_its_base() -> None:
    heir = (
        SEVERAL_METHODS + "\nclass Slow(Trainer):\n    def fit(self):\n        super().fit()\n        super().fit()\n"
    )
    check_trained(TRAINER.format(methods=heir, use="Slow(model, optimizer).fit()\nTrainer(other, second).fit()"))


def test_a_pair_of_optimizers_in_each_object() -> None:
    check_trained("""
class Pair:
    def __init__(self, models, first, second):
        self.one, self.two = models
        self.first = first
        self.second = second

    def fit(self):
        for x, y in loader:
            self.first.zero_grad()
            self.second.zero_grad()
            with amp.scale_loss(criterion(self.one(x), y), self.first) as scaled_loss:
                scaled_loss.backward()
            with amp.scale_loss(criterion(self.two(x), y), self.second) as scaled_loss:
                scaled_loss.backward()
            self.first.step()
            self.second.step()
            seen.append(self.one(x).mean().item())

networks = [model, build(), build(), build()]
adams = [optimizer] + [torch.optim.SGD(n.parameters(), lr=0.1) for n in networks[1:]]
a, b, c, d = adams
[m, n, o, p], [a, b, c, d] = amp.initialize(networks, [a, b, c, d], opt_level="O1")
Pair((m, n), a, b).fit()
Pair((o, p), c, d).fit()
""")


SETTER = """
    def use(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
"""


def test_a_field_that_is_set_between_runs_is_one_in_each() -> None:
    use = "trainer = Trainer(model, optimizer)\ntrainer.fit()\ntrainer.use(other, second)\ntrainer.fit()"
    check_trained(TRAINER.format(methods=SETTER + ONE_METHOD, use=use))


LEFT = {
    "another optimizer comes before the step": (
        SETTER
        + SEVERAL_METHODS.replace(
            "            self.step()\n", "            self.use(other, second)\n            self.step()\n"
        ),
        "Trainer(model, optimizer).fit()\nTrainer(other, second).fit()",
    ),
    "two objects in turn": (
        SEVERAL_METHODS,
        "one, two = Trainer(model, optimizer), Trainer(other, second)\nfor x, y in loader:\n    one.backward(x, y)\n"
        "    two.backward(x, y)\n    one.step()\n    two.step()",
    ),
}


@pytest.mark.parametrize(("methods", "use"), LEFT.values(), ids=LEFT)
def test_gradients_of_two_objects_at_a_time_are_not_taken_apart(methods: str, use: str) -> None:
    source = "import torch\nfrom torch.nn.utils import clip_grad_norm_\nfrom apex import amp\nfrom project import *\n"
    assert rewrite(source + TRAINER.format(methods=methods, use=use)).after is None


HANDED = """
other = build()
pair = [torch.optim.SGD(other[0].parameters(), lr=0.1), torch.optim.SGD(other[2].parameters(), lr=0.1)]

def train(network, optimizer, mixed=True):
    for x, y in loader:
        network.zero_grad()
        loss = criterion(network(x), y)
        if mixed:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        if {test}:
            for o in optimizer:
                o.step()
        else:
            optimizer.step()
        seen.append(loss.item())

model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
other, pair = amp.initialize(other, pair, opt_level="O1")
train(model, optimizer)
train(other, pair)
"""


@pytest.mark.parametrize(
    "test", ["type(optimizer) == list", "isinstance(optimizer, (list, tuple))", "type(optimizer) is list"]
)
def test_a_list_is_stepped_one_by_one(test: str) -> None:
    text = check_trained(HANDED.format(test=test))
    assert "scaler.step(o)" in text
    assert "scaler.step(optimizer)" in text
