"""Where the state of a model is taken that `network_to_half` had put in a Sequential, the keys are told."""

from __future__ import annotations

import pytest

from amp_migrate.findings import FileResult, Finding
from tests.rules.helpers import rewrite

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
