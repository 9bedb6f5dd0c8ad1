"""A network that runs itself in a method, which code out of sight may call once Apex is set up: AMP531."""

from __future__ import annotations

import textwrap

import pytest

from tests.audit.helpers import doubts

NET = """
    import torch
    {imports}

    class Net(torch.nn.Sequential):
        def encode(self, texts):
            with torch.no_grad(){region}:
                return {runs}

        def forward(self, x):
            {forward}

        def fit(self, loader, evaluator):
            optimizer = torch.optim.SGD(self.parameters(), 0.1)
            {set_up}
            for x in loader:
                {train}
            return evaluator(self)

    {calls}
"""
EVALUATOR = "class Evaluator:\n        def __call__(self, model):\n            return model.encode(self.texts)"
SCRIPT = "print(Net(torch.nn.Linear(4, 4)).encode(load()))"
REGION = ', torch.autocast("cuda", dtype=torch.float16)'


WRAP = '{0}.forward = torch.autocast("cuda", dtype=torch.float16)({0}.forward)'
OTHER = "class Other(torch.nn.Linear):\n        pass\n\n    other = Other(4, 4)"


def found(
    calls: str,
    *,
    runs: str = "self.forward(texts)",
    region: str = "",
    forward: str = "return x @ x",
    wrap: str = "pass",
) -> list[str]:
    values = {"calls": calls, "runs": runs, "forward": forward}
    before = NET.format(
        imports="from apex import amp",
        region="",
        set_up='model, optimizer = amp.initialize(self, optimizer, opt_level="O1")',
        train="with amp.scale_loss(model(x).sum(), optimizer) as scaled: scaled.backward()\n                optimizer.step()",
        **values,
    )
    after = NET.format(
        imports="",
        region=region,
        set_up=f'model, scaler = self, torch.amp.GradScaler("cuda")\n            {wrap}',
        train='with torch.autocast("cuda", dtype=torch.float16): loss = model(x).sum()\n'
        "                scaler.scale(loss).backward()\n                scaler.step(optimizer)\n                scaler.update()",
        **values,
    )
    told = doubts(textwrap.dedent(before), textwrap.dedent(after))
    return [d.verdict for d in told if d.code == "AMP531"]


@pytest.mark.parametrize("runs", ["self.forward(texts)", "self(texts)"])
def test_a_method_that_objects_out_of_sight_call(runs: str) -> None:
    assert found(EVALUATOR, runs=runs) == ["look"]


def test_a_method_that_a_script_calls_or_nothing() -> None:
    assert not found(SCRIPT)
    assert not found("")


def test_a_method_with_a_region_of_its_own() -> None:
    assert not found(EVALUATOR, region=REGION)


def test_a_method_that_the_forward_runs() -> None:
    assert not found(EVALUATOR, forward="return self.encode(x)")


def test_a_constructor_that_tries_the_network() -> None:
    calls = "class Other(Net):\n        def __init__(self):\n            Net.__init__(self)\n            self.forward(load())"
    assert not found(f"{calls}\n\n    def make(cls):\n        return cls.__init__(load())")


@pytest.mark.parametrize("runs", ["self.forward(texts)", "self(texts)"])
def test_a_method_of_what_had_its_own_forward_wrapped(runs: str) -> None:
    """Which takes its region along, however it is run; that of another network does not."""
    assert not found(EVALUATOR, runs=runs, wrap=WRAP.format("model"))
    assert not found(EVALUATOR, runs=runs, wrap=WRAP.format("kept.net"))  # not seen of which class it is
    assert found(f"{OTHER}\n\n    {EVALUATOR}", runs=runs, wrap=WRAP.format("other")) == ["look"]
