"""Models that are kept in the fields of a record, or run by a method with another name than `forward`."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.trained import check_trained

RECORD = """
from typing import Any, NamedTuple


class State(NamedTuple):
    epoch: int
    model: torch.nn.Module
    optimizer: Any = None


class Trainer:
    def __init__(self, model, optimizer, level):
        model, optimizer = amp.initialize(model, optimizer, opt_level=level)
        self.state = STATE

    def train(self):
        for x, y in loader:
            self.state.optimizer.zero_grad()
            loss = criterion(self.state.model(x), y)
            with amp.scale_loss(loss, self.state.optimizer) as scaled_loss:
                scaled_loss.backward()
            torch.nn.utils.clip_grad_norm_(amp.master_params(self.state.optimizer), 1.0)
            self.state.optimizer.step()

    def evaluate(self):
        self.state.model.eval()
        with torch.no_grad():
            for x, y in loader:
                seen.append(criterion(self.state.model(x), y))


trainer = Trainer(model, optimizer, "O1")
trainer.train()
trainer.evaluate()
"""


@pytest.mark.parametrize("state", ["State(0, model=model, optimizer=optimizer)", "State(0, model, optimizer)"])
def test_a_record_keeps_the_model(state: str) -> None:
    after = check_trained(RECORD.replace("STATE", state))
    evaluate = after.partition("def evaluate")[2]
    assert "torch.autocast(" in evaluate.partition("self.state.model(x)")[0]


METHODS = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(x)

    def get_scores(self, x):
        return self.head(x).detach()

    def get_width(self):
        return self.head.in_features


def train(model, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()


def validate(model):
    width = model.get_width()
    with torch.no_grad():
        for x, _ in loader:
            scores = model.get_scores(x)
            seen.append(scores.float().mean() * width)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
train(net, optimizer)
validate(net)
"""


def test_a_getter_that_computes_is_a_forward() -> None:
    validate = check_trained(METHODS).partition("def validate")[2]
    assert validate.index("torch.autocast(") < validate.index("model.get_scores(x)")
    assert validate.index("model.get_width()") < validate.index("torch.autocast(")


MADE = """
    import torch
    from apex import amp

    KINDS = {"small": ("config", torch.nn.Linear)}

    def load(kind, path):
        model = KINDS[kind][1]
        model = model(2, 2)
        model.load_state_dict(torch.load(path))
        return model

    def main(kind, path, data):
        model = load(kind, path)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in data:
            optimizer.zero_grad()
            loss = model(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        with torch.no_grad():
            scores = model(x)
            {indices}
            return scores.cpu().numpy()
"""
BY_KIND = "(scores.float() if scores.is_floating_point() else scores).cpu().numpy()"


@pytest.mark.parametrize(
    ("indices", "taken"),
    [
        ("if len(data) > 2: scores = scores.argmax(-1)", BY_KIND),
        ("if len(data) > 2: scores = torch.argmax(scores, dim=-1)", BY_KIND),
        ("if len(data) > 2: scores = scores + 1", "scores.float().cpu().numpy()"),
    ],
)
def test_a_class_that_a_name_holds_is_made_in_no_region_and_indices_are_not_cast(indices: str, taken: str) -> None:
    after = rewrite(MADE.replace("{indices}", indices)).after or ""
    assert "    model = model(2, 2)\n" in after.partition("def main")[0]
    assert "autocast" not in after.partition("def main")[0]
    assert taken in after
