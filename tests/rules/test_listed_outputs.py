"""What a model gives in a list is as well known as in a tuple, and one place is told of once: AMP504."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found
from tests.rules.trained import check_trained

HEAD = "import torch\nfrom apex import amp\nfrom data import loader, clip_grad_norm_\n"
PROGRAM = """
class Detector(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 3)
        self.place = torch.nn.Linear(4, 3)

    def forward(self, x):
        found = torch.sigmoid(self.body(x))
        if found.sum() == 0:
            return [torch.zeros(0), torch.zeros(0), torch.zeros(0, 3)]
        best, kind = found.max(dim=1)
        return [best, kind, self.place(x)]


model = Detector()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    best, _, place = model(x)
    loss = criterion(place, y) + best.mean() / 10
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(model.parameters(), 100)
    optimizer.step()


def evaluate(model):
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            TAKEN
            scores, kinds, boxes = scores.cpu(), kinds.cpu(), boxes.cpu()
            for score, kind, box in zip(scores, kinds, boxes):
                seen.append(["first", "second", "third"][kind] and float(score) + float(box[0]))


evaluate(model)
"""


@pytest.mark.parametrize("taken", ["scores, kinds, boxes = model(x)", "[scores, kinds, boxes] = model(x)"])
@pytest.mark.parametrize("given", [("[", "]"), ("(", ")"), ("", "")])
def test_class_numbers_in_a_list_stay_whole_and_what_is_floating_is_cast(taken: str, given: tuple[str, str]) -> None:
    source = PROGRAM.replace("TAKEN", textwrap.indent(taken, " " * 12).lstrip())
    source = source.replace("return [", f"return {given[0]}").replace("0, 3)]", f"0, 3){given[1]}")
    source = source.replace("self.place(x)]", f"self.place(x){given[1]}")
    after = check_trained(source)
    assert "kinds.cpu()" in after
    assert "scores.float().cpu()" in after
    assert "boxes.float().cpu()" in after
    assert {f.review for f in found(rewrite(HEAD + source), "AMP504")} == {"as-is"}


@pytest.mark.parametrize("read", [".data.numpy()", "[:, 0].numpy()", ".detach().data.T.numpy()", ".numpy()"])
def test_what_is_cast_for_numpy_is_not_asked_for_again(read: str) -> None:
    source = HEAD + PROGRAM.replace("return [best, kind, self.place(x)]", "return self.place(x)")
    source = source.replace(
        "            return [torch.zeros(0), torch.zeros(0), torch.zeros(0, 3)]", "            x = x + 1"
    )
    source = source.replace("best, _, place = model(x)", "place = model(x)").replace(" + best.mean() / 10", "")
    taken = f"marks = model(x)\nif y is None:\n    marks = marks[0]\nmarks = marks.cpu(){read}"
    start = source.index("TAKEN")
    source = source[:start] + textwrap.indent(taken, " " * 12).lstrip() + "\n\n\nevaluate(model)\n"
    result = rewrite(source)
    assert result.after is not None
    assert ".float().cpu()" in result.after
    assert [f.review for f in found(result, "AMP504")] == ["as-is"]
