"""A step under a condition beside one that is always made: one update after both, where nothing uses the gradients of the
optimizer that was not stepped before they are cleared. What is emitted is run."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import check_refused, found
from tests.rules.trained import PRELUDE, check_trained

TWO = """
class Pair(torch.nn.Module):
    def __init__(self, one, two):
        super().__init__()
        self.one, self.two = one, two

    def forward(self, x):
        return self.one(x) + self.two(x)


other = build()
both = Pair(model, other)
first = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.SGD(other.parameters(), lr=0.1)
both, [first, second] = amp.initialize(both, [first, second], opt_level="O1")
for i, (x, y) in enumerate(loader):
{body}
    seen.append(loss.item())
"""
LOSS = "    loss = criterion(both(x), y)\n"
SCALED = """\
    with amp.scale_loss(loss, [first, second]) as scaled_loss:
        scaled_loss.backward()
"""
STEPS = "    first.step()\n    if i % 2:\n        second.step()\n"
CLEAR = "    first.zero_grad()\n    second.zero_grad()\n"

BODIES = {
    "cleared before": CLEAR + LOSS + SCALED + STEPS,
    "cleared after": LOSS + SCALED + STEPS + CLEAR,
    "the model cleared": LOSS + SCALED + STEPS + "    both.zero_grad()\n",
    "the condition first": CLEAR + LOSS + SCALED + "    if i % 2:\n        second.step()\n    first.step()\n",
    "cleared where not stepped": CLEAR
    + LOSS
    + SCALED
    + "    first.step()\n    if i % 2:\n        second.step()\n    else:\n        second.zero_grad()\n",
    "both clipped": CLEAR
    + LOSS
    + SCALED
    + "    clip_grad_norm_(amp.master_params(first), 0.01)\n    if i % 2:\n"
    + "        clip_grad_norm_(amp.master_params(second), 0.01)\n"
    + STEPS,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_one_update_follows_both_and_what_was_not_stepped_is_cleared(body: str) -> None:
    after = check_trained(TWO.format(body=body))
    assert after.count("scaler.update()") == 1
    assert "scaler.step(first)" in after
    assert "scaler.step(second)" in after


def test_one_of_two_is_stepped_and_updated_after() -> None:
    body = CLEAR + LOSS + SCALED + "    if i % 2:\n        second.step()\n    else:\n        first.step()\n"
    assert check_trained(TWO.format(body=body)).count("scaler.update()") == 2


def test_as_many_updates_as_backwards_are_no_accumulation() -> None:
    result = rewrite(PRELUDE + TWO.format(body=BODIES["cleared before"]))
    assert not found(result, "AMP207")
    fewer = "    if i % 2:\n        first.step()\n        second.step()\n        both.zero_grad()\n"
    assert found(rewrite(PRELUDE + TWO.format(body=LOSS + SCALED + fewer)), "AMP207")


USED = {
    "added to": "    first.zero_grad()\n" + LOSS + SCALED + STEPS.replace(".step()\n    if", ".step()\n    if")
    + "    if i % 2:\n        second.zero_grad()\n",
    "never cleared": "    first.zero_grad()\n" + LOSS + SCALED + STEPS,
    "cleared in some turns": "    first.zero_grad()\n    if i % 3:\n        second.zero_grad()\n" + LOSS + SCALED + STEPS,
    "another model cleared": LOSS + SCALED + STEPS + "    model.zero_grad()\n",
}  # fmt: skip


@pytest.mark.parametrize("body", USED.values(), ids=list(USED))
def test_gradients_that_are_used_after_an_update_are_refused(body: str) -> None:
    result = check_refused(PRELUDE + TWO.format(body=body), "AMP307")
    (finding,) = found(result, "AMP307")
    assert "clear what is not stepped with" in finding.message


def test_gradients_that_are_read_after_the_update_are_refused() -> None:
    body = CLEAR + LOSS + SCALED + STEPS + "    seen.append(grad_norm(other))\n"
    result = rewrite(PRELUDE + TWO.format(body=body))
    assert result.after is None or result.after.index("unscale_(second)") < result.after.index("scaler.update()")


METHOD = """
class Trainer:
    def __init__(self, first, second, net):
        self.first, self.second, self.net = first, second, net
        self.net, [self.first, self.second] = amp.initialize(self.net, [self.first, self.second], opt_level="O1")

    def train_step(self, x, y, often):
{before}        loss = criterion(self.net(x), y)
        with amp.scale_loss(loss, [self.first, self.second]) as scaled_loss:
            scaled_loss.backward()
        self.first.step()
        if often:
            self.second.step()
        self.first.zero_grad()
{after}"""


def method(before: str = "", after: str = "") -> str:
    head = "import torch\nfrom apex import amp\nfrom project import criterion\n\n"
    return head + METHOD.format(before=before, after=after)


@pytest.mark.parametrize(
    "where", [{"before": "        self.second.zero_grad()\n"}, {"after": "        self.second.zero_grad()\n"}]
)
def test_a_method_whose_callers_are_not_seen_may_be_called_again(where: dict[str, str]) -> None:
    result = rewrite(method(**where))
    assert result.after is not None
    assert result.after.count(".update()") == 1


def test_a_method_that_leaves_gradients_to_its_next_call_is_refused() -> None:
    check_refused(method(), "AMP307")
    check_refused(method(after="        if often:\n            self.second.zero_grad()\n"), "AMP307")


KEEPS = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = build(), build()

    def forward(self, x):
        return self.one(x) + self.two(x)

    def build_optimizers(self):
        ones, twos = [], []
        for name, parameter in self.named_parameters():
            (ones if "one" in name else twos).append(parameter)
        self.first = torch.optim.SGD(ones, lr=0.1)
        self.second = torch.optim.SGD(twos, lr=0.1)

    def train_step(self, x, y, often):
        loss = criterion(self(x), y)
        with amp.scale_loss(loss, [self.first, self.second]) as scaled_loss:
            scaled_loss.backward()
        self.first.step()
        if often:
            self.second.step()
        self.zero_grad()
        seen.append(loss.item())


if len(loader) > 2:
    kind = Net
else:
    raise SystemExit
net = {made}
net.build_optimizers()
net, [net.first, net.second] = amp.initialize(net, [net.first, net.second], opt_level="O1")
for i, (x, y) in enumerate(loader):
    net.train_step(x, y, i % 2 == 0)
"""


@pytest.mark.parametrize("made", ["Net()", "kind()"])
def test_a_network_clears_what_the_optimizers_that_it_keeps_step(made: str) -> None:
    after = check_trained(KEEPS.replace("{made}", made))
    assert after.count("scaler.update()") == 1
    assert "scaler.step(self.second)" in after
