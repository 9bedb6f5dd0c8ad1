"""Where the state of a model is taken that `network_to_half` had put in a Sequential, the keys are told."""

from __future__ import annotations

import pytest

from amp_migrate.findings import FileResult, Finding
from tests.rules.helpers import names_of, rewrite

SOURCE = """
import torch
from apex.fp16_utils import FP16_Optimizer, network_to_half
from project import build, loader


def keep(network, path):
    torch.save(network.cpu().state_dict(), path)


model = build()
EARLY
HALVED
optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
for x, y in loader:
    loss = model(x, y)
    optimizer.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
SAVED
"""


def told(result: FileResult) -> list[Finding]:
    return [f for f in result.findings if f.code == "AMP720" and "Sequential" in f.message]


def program(saved: str, halved: str = "model = network_to_half(model)", early: str = "pass") -> FileResult:
    return rewrite(SOURCE.replace("SAVED", saved).replace("HALVED", halved).replace("EARLY", early))


@pytest.mark.parametrize(
    ("saved", "line"),
    [
        ('torch.save(model.state_dict(), "a.pt")', 19),
        ('torch.save({"model": model.state_dict()}, "a.pt")', 19),
        ('keep(model, "a.pt")', 7),
    ],
)
def test_the_keys_of_a_state_that_is_taken(saved: str, line: int) -> None:
    result = program(saved)
    assert result.after is not None
    (finding,) = told(result)
    assert (finding.line, finding.status, "`1.`" in finding.message) == (line, "note", True)


def test_states_of_which_the_keys_stay() -> None:
    save = 'torch.save(model.state_dict(), "a.pt")'
    assert not told(program(save, "model.half()"))
    assert not told(program("pass", early=save))  # before it was put there
    assert not told(program('other = build()\ntorch.save(other.state_dict(), "a.pt")'))


def test_files_saved_before_do_not_load_as_they_are() -> None:
    load = 'model.load_state_dict(torch.load("a.pt"))'
    (finding,) = told(program("pass", halved=f"model = network_to_half(model)\n{load}"))
    assert (finding.line, finding.review) == (13, "review")
    assert "Missing key(s)" in finding.message
    assert not told(program("pass", early=load))  # weights of the network itself


ITEMS = """
import torch
from apex.fp16_utils import FP16_Optimizer, network_to_half

model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
first = model[1]
model = network_to_half(model)
optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), static_loss_scale=128.0)


def train():
    loss = model(torch.ones(1, 2)).float().sum()
    optimizer.zero_grad()
    optimizer.backward(loss)
    optimizer.step()


train()
shape = [*ITEM.state_dict()]
"""


def test_the_item_that_the_model_was_is_the_model() -> None:
    result = rewrite(ITEMS.replace("ITEM", "model[1]"), device="cpu")
    assert not [f for f in result.findings if f.status == "manual"]
    assert "model[1] of the Sequential that network_to_half had put it in is model itself now" in {
        f.message for f in result.findings
    }
    assert "first = model[1]" in (result.after or "")
    assert names_of(result.after)["shape"] == ["0.weight", "0.bias", "1.weight", "1.bias"]


@pytest.mark.parametrize("item", ["model[0]", "model[-1]", "model[1:]"])
def test_other_items_are_refused(item: str) -> None:
    result = rewrite(ITEMS.replace("ITEM", item), device="cpu")
    told = [f.message for f in result.findings if f.status == "manual" and f.code == "AMP720"]
    assert any("is an item of the Sequential that network_to_half put model in" in t for t in told)
    assert result.after is None
