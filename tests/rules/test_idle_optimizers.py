"""Several optimizers under one scaler: one that gets no gradient makes `scaler.step` raise."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import apex, found

MODEL = (
    "a, b = build(), build()\none = torch.optim.SGD(a.parameters(), lr=0.1)\n"
    "two = torch.optim.SGD(b.parameters(), lr=0.1)"
)
INITIALIZE = '[a, b], [one, two] = amp.initialize([a, b], [one, two], opt_level="O1")'
LOOP = """
loss = criterion(a(x), y)
{}
with amp.scale_loss(loss, [one, two]) as scaled_loss:
    scaled_loss.backward()
one.step()
{}
"""


def program(forward: str, step: str = "two.step()") -> str:
    imports = "from apex import amp\nfrom project import warm"
    return apex(LOOP.format(forward, step), INITIALIZE, imports=imports, model=MODEL)


def test_an_optimizer_that_may_have_no_gradient_is_reported() -> None:
    findings = found(rewrite(program("if warm:\n    loss = loss + criterion(b(x), y)")), "AMP219")
    assert {f.review for f in findings} == {"review"}
    assert any("two" in f.message for f in findings)


@pytest.mark.parametrize(
    "forward",
    [
        "loss = loss + criterion(b(x), y)",
        "if warm:\n    loss = loss + criterion(b(x), y)\nelse:\n    loss = b(x).sum()",
    ],
)
def test_optimizers_that_always_get_gradients_are_not_meant(forward: str) -> None:
    assert not found(rewrite(program(forward)), "AMP219")


BY_KEY = """
loss = criterion(nets["one"](x), y)
if warm:
    loss = loss + criterion(nets["two"](x), y)
with amp.scale_loss(loss, [steppers["one"], steppers["two"]]) as scaled_loss:
    scaled_loss.backward()
steppers["one"].step()
steppers["two"].step()
"""


@pytest.mark.parametrize(
    "made",
    [
        'steppers = {k: None for k in nets}\nsteppers["one"] = SGD(nets["one"].parameters(), lr=0.1)\n'
        'steppers["two"] = SGD(nets["two"].parameters(), lr=0.1)',
        'steppers = {"one": SGD(nets["one"].parameters(), lr=0.1), "two": SGD(nets["two"].parameters(), lr=0.1)}',
    ],
)
def test_entries_of_a_mapping_are_told_apart(made: str) -> None:
    initialize = (
        '[nets["one"], nets["two"]], [steppers["one"], steppers["two"]] = amp.initialize(\n'
        '    [nets["one"], nets["two"]], [steppers["one"], steppers["two"]], opt_level="O1"\n)'
    )
    imports = "from apex import amp\nfrom torch.optim import SGD\nfrom project import warm"
    model = f'nets = {{"one": build(), "two": build()}}\n{made}'
    (finding,) = found(rewrite(apex(BY_KEY, initialize, imports=imports, model=model)), "AMP219")
    assert 'where steppers["two"] gets no gradient' in finding.message
