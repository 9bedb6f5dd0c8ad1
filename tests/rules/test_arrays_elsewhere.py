"""What NumPy is given in a function that half values are handed to, or of their mean, is cast: AMP504."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found

PROGRAM = """
import torch
from apex import amp

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(4, 2)
        self.two = torch.nn.Linear(4, 2)

    def forward(self, x):
        return GIVEN

def collect(rows):
    return ARRAY

def main(loader):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x)[0], y)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        for x, y in loader:
            outputs = model(x)
            USE
"""


@pytest.mark.parametrize(
    ("array", "written"),
    [
        ("rows.detach().cpu().numpy()", "rows.detach().float().cpu().numpy()"),
        ("rows.cpu().data.numpy()", "rows.float().cpu().data.numpy()"),
    ],
)
def test_a_function_that_is_handed_what_is_half_for_sure(array: str, written: str) -> None:
    program = PROGRAM.replace("GIVEN", "self.one(x), self.two(x)").replace("USE", "print(collect(outputs[0]))")
    result = rewrite(program.replace("ARRAY", array))
    assert f"return {written}" in (result.after or "")
    assert [f.review for f in found(result, "AMP504")] == ["as-is"]
    assert not found(result, "AMP535")


@pytest.mark.parametrize(
    ("given", "array"),
    [
        ("self.one(x), self.two(x).argmax(1)", "rows.cpu().numpy()"),  # handed outputs[1]
        ("self.one(x), self.two(x).softmax(1)", "rows.cpu().numpy()"),
        ("self.one(x), self.two(x)", "rows.float().cpu().numpy()"),
        ("self.one(x), self.two(x)", "rows.argmax(1).cpu().numpy()"),
    ],
)
def test_whole_numbers_and_float32_stay(given: str, array: str) -> None:
    program = PROGRAM.replace("GIVEN", given).replace("USE", "print(collect(outputs[1]))")
    result = rewrite(program.replace("ARRAY", array))
    assert f"return {array}" in (result.after or "")
    assert not found(result, "AMP535")


def test_of_two_arrays_in_a_line_only_the_half_one_is_cast() -> None:
    use = "preds, y = outputs[0].detach().cpu().numpy(), y.detach().cpu().numpy()\n            print(preds, y)"
    program = PROGRAM.replace("GIVEN", "self.one(x), self.two(x)").replace("USE", use).replace("ARRAY", "rows")
    result = rewrite(program)
    assert "outputs[0].detach().float().cpu().numpy(), y.detach().cpu().numpy()" in (result.after or "")
    assert [f.review for f in found(result, "AMP504")] == ["as-is"]


def test_the_mean_of_what_is_half_goes_to_the_cpu_in_float32() -> None:
    use = "rows = [model(x) for _ in range(2)]\n            found = torch.stack(rows).mean(0).cpu()\n            "
    program = PROGRAM.replace("GIVEN", "self.one(x)").replace("USE", use + "print(found[0].numpy())")
    result = rewrite(program.replace("ARRAY", "rows"))
    assert "torch.stack(rows).mean(0).float().cpu()" in (result.after or "")
    assert not found(result, "AMP535")
