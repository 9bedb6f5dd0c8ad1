"""A model that is traced or exported on what the program makes half: the weights are float32 now, and it raises."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
    import torch
    from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base = torch.nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return self.base(x)

    def main(level, path):
        model = Net().cuda()
        model, _ = amp.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), opt_level=level)
        {given}
        torch.onnx.export({model}, dummy, path)

    main(parse(), "out.onnx")
"""
HALF = 'dummy = torch.randn(1, 3, 8, 8, device="cuda").half()'


def said(given: str = HALF, model: str = "model.base", now: str | None = None) -> list[tuple[str, str]]:
    setup = "model, _ = amp.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), opt_level=level)"
    before = BEFORE.format(given=given, model=model)
    after = before.replace("    from apex import amp\n", "").replace(setup, "pass").replace(given, now or given)
    return sorted((d.code, d.verdict) for d in doubts(before, after) if "torch.onnx.export" in d.message)


@pytest.mark.parametrize("model", ["model", "model.base"])
@pytest.mark.parametrize("given", [HALF, "dummy = torch.zeros(1, 3, 8, 8, dtype=torch.half)"])
def test_it_is_told_that_it_raises(given: str, model: str) -> None:
    assert said(given, model) == [("AMP531", "look"), ("AMP540", "review")]


@pytest.mark.parametrize("model", ["model", "model.base"])
def test_on_float32_the_change_of_what_is_written_is_told(model: str) -> None:
    assert said(model=model, now=HALF.replace(".half()", "")) == [("AMP531", "look")]


def test_not_of_another_model() -> None:
    assert not said(model="torch.nn.Linear(3, 4).half()")
