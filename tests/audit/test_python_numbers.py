"""Numbers of Python's that a network gives: token ids and scores, whatever they were computed of. AMP535."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import torch
from apex import amp
from collections import Counter
from vocabulary import unknown


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)

    def search(self, x):
        found = []
        rows = self.layer(x)
        for row in rows:
            {each}
        return found


def main(batches):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in batches:
        loss = torch.nn.functional.mse_loss(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        check(model, x)


def check(model, x):
    with torch.no_grad():
        found = model.search(x)
    print(counted(found))


def counted(found):
    return [Counter(items) for items in found]


main([(torch.ones(4, 4).cuda(), torch.ones(4, 4).cuda())])
"""


@pytest.mark.parametrize(
    ("each", "told"),
    [
        ("found.append(row.argmax(-1).tolist())", 0),
        ("found.append(row.tolist())", 0),
        ("found.append([row.max().item()])", 0),
        ("found += [unknown(row).tolist()]", 0),
        ("found.append(row)", 1),
        ("found.append(unknown(row))", 1),
    ],
)
def test_numbers_of_python_are_half_no_more(each: str, told: int) -> None:
    result = rewrite(PROGRAM.format(each=each))
    assert not [f for f in result.findings if f.status == "manual"]
    assert len([f for f in result.findings if f.code == "AMP535"]) == told
