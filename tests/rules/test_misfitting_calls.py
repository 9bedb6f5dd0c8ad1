"""Calls that Python refuses for what they give: they are left as they are, and not said to hand the scaler over."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found

PROGRAM = """
    import functools
    import torch
    from apex import amp


    {decorated}
    def fit(log, model, loader, optimizer, epochs, *, every=1):
        for _ in range(epochs):
            for x in loader:
                optimizer.zero_grad()
                loss = model(x).sum()
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
                optimizer.step()


    def main(loader, averaged):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        if averaged:
            {call}
        else:
            fit(print, model, loader, optimizer, 3)
    """
SAID = "which every call in sight that fits it hands over; at train.py:22 it is given too little or too much"
PLAIN = "# for each epoch"


@pytest.mark.parametrize(
    "call",
    [
        "fit(print, model, loader, optimizer)",
        "fit(print, model, loader, optimizer, 3, 4)",
        "fit(print, model, loader, optimizer, 3, often=2)",
    ],
)
def test_a_call_that_does_not_fit_is_left_and_told(call: str) -> None:
    result = rewrite(PROGRAM.format(call=call, decorated=PLAIN))
    assert result.after is not None
    assert call in result.after
    assert "fit(print, model, loader, optimizer, scaler, 3)" in result.after
    (finding,) = found(result, "AMP220")
    assert SAID in finding.message


@pytest.mark.parametrize(
    ("call", "decorated"),
    [
        ("fit(print, model, loader, optimizer, 2)", PLAIN),
        ("fit(print, model, loader, optimizer, epochs=2, every=2)", PLAIN),
        ("fit(print, *given, 3)", PLAIN),
        ("fit(print, model, loader, **given)", PLAIN),
        ("functools.partial(fit, print)(model, loader, optimizer, 3)", PLAIN),
        ("fit(print, model, loader, optimizer)", "@project.configured"),
    ],
)
def test_one_that_may_fit_hands_it_over(call: str, decorated: str) -> None:
    result = rewrite(PROGRAM.format(call=call, decorated=decorated))
    assert result.after is not None
    assert call not in result.after
    assert not [f for f in found(result, "AMP220") if "fits it" in f.message]


def test_one_that_is_all_that_is_in_sight_hands_it_over_as_before() -> None:
    alone = PROGRAM.replace("            fit(print, model, loader, optimizer, 3)\n", "            print(1)\n")
    result = rewrite(alone.format(call="fit(print, model, loader, optimizer)", decorated=PLAIN))
    assert result.after is not None
    assert "fit(print, model, loader, optimizer, scaler" in result.after
