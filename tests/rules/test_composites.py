"""Metrics that a composite keeps, however they came into it: what they compute of half values is float32 as before."""

from __future__ import annotations

import textwrap

import pytest
import torch

from tests.audit.helpers import doubts
from tests.rules.helpers import names_of, rewrite
from tests.rules.programs import found

PROGRAM = """
import collections
import torch
from apex import amp

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)

    def forward(self, x):
        return {"logits": self.body(x)}

class Scores:
    def __init__(self):
        self.found = []

    def update(self, outputs):
        self.found.append(torch.softmax(outputs["logits"], dim=1)[:, 1])

class Composite:
    def __init__(self, *metrics, **named):
        self.metrics = HOLDS

ADD
    def update(self, outputs):
        for metric in READ:
            metric.update(outputs)

def fill(held, scores):
    held.append(scores)

def main(loader, composite):
    model = Net().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    for x, y in loader:
        outputs = model(x)
        loss = torch.nn.functional.cross_entropy(outputs["logits"], y)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        composite.update(outputs)

def run(loader):
    scores = Scores()
    MADE
    main(loader, composite)
    return scores
"""
ALL, VALUES, VAL = "self.metrics", "self.metrics.values()", 'self.metrics["val"]'
WAYS = {
    "append": ("[]", "self.metrics.append(metric)", ALL),
    "insert": ("[]", "self.metrics.insert(0, metric)", ALL),
    "extend": ("[]", "self.metrics.extend([metric])", ALL),
    "plus": ("[]", "self.metrics += [metric]", ALL),
    "joined": ("[]", "self.metrics = self.metrics + [metric]", ALL),
    "slice": ("[]", "self.metrics[:] = [metric]", ALL),
    "other name": ("[]", "held = self.metrics\nheld.append(metric)", ALL),
    "names of names": (
        "{}",
        'groups = self.metrics\nheld = groups.setdefault("val", [])\nheld.append(metric)',
        VAL,
    ),
    "several": ("[]", "self.metrics.append(metric)", "sorted(self.metrics)"),
    "backwards": ("[]", "self.metrics.append(metric)", "reversed(self.metrics)"),
    "key": ("{}", 'self.metrics["val"] = metric', VALUES),
    "named": ("{}", "self.metrics.update(val=metric)", VALUES),
    "mapping": ("{}", 'self.metrics.update({"val": metric})', VALUES),
    "merged": ("{}", 'self.metrics = self.metrics | {"val": metric}', VALUES),
    "setdefault": ("{}", 'self.metrics.setdefault("val", []).append(metric)', VAL),
    "setdefault and a name": ("{}", 'held = self.metrics.setdefault("val", [])\nheld.append(metric)', VAL),
    "defaultdict": ("collections.defaultdict(list)", 'self.metrics["val"].append(metric)', VAL),
    "deep": ('{"val": {}}', 'self.metrics["val"]["one"] = metric', VAL + ".values()"),
}
ADDED = "composite = Composite()\ncomposite.add(scores)"


def program(way: str = "append", made: str = ADDED, add: str = "def add(self, metric):", device: str = "'cuda'") -> str:
    holds, body, read = WAYS[way]
    add = textwrap.indent(f"{add}\n{textwrap.indent(body, '    ')}\n", "    ")
    text = PROGRAM.replace("HOLDS", holds).replace("READ", read).replace("ADD", add).replace("DEVICE", device)
    return text.replace("MADE", textwrap.indent(made, "    ").lstrip())


@pytest.mark.parametrize("way", WAYS)
def test_whichever_way_a_metric_came_into_the_composite(way: str) -> None:
    result = rewrite(program(way))
    assert 'torch.softmax(outputs["logits"].float(), dim=1)' in (result.after or "")
    assert [f.review for f in found(result, "AMP522")] == ["as-is"]
    assert not found(result, "AMP535")


@pytest.mark.parametrize("way", WAYS)
def test_the_audit_sees_it_without_the_rule(way: str) -> None:
    before, after = program(way), rewrite(program(way)).after or ""
    untold = after.replace('outputs["logits"].float()', 'outputs["logits"]')
    assert [d.by for d in doubts(before, untold) if d.code == "AMP535"] == ["AMP522"]
    assert not [d for d in doubts(before, after) if d.code == "AMP535"]


@pytest.mark.parametrize(
    ("add", "way", "made"),
    [
        ("def add(self, *metrics):", "joined several", "composite = Composite()\ncomposite.add(scores)"),
        ("def add(self, *metrics):", "spread", "composite = Composite()\ncomposite.add(scores, None)"),
        ("def add(self, **metrics):", "spread named", "composite = Composite()\ncomposite.add(one=scores)"),
        ("def add(self, metric):", "append", "composite = Composite()\nfor one in [scores]:\n    composite.add(one)"),
        (
            "def add(self, metric):",
            "append",
            "composite = Composite()\nfor one in (Scores,):\n    composite.add(one())",
        ),
        (
            "def add(self, metric):",
            "append",
            "composite, more = Composite(), Composite()\ncomposite.add(metric=scores)",
        ),
        (
            "def add(self, metric):",
            "append",
            "inner, composite = Composite(), Composite()\ninner.add(scores)\ncomposite.add(inner)",
        ),
        ("def add(self, metric):", "append", "composite = Composite()\nfill(composite.metrics, scores)"),
        (
            "def add(self, metric):",
            "append",
            "composite, kept = Composite(), []\nfill(kept, scores)\ncomposite.metrics = kept",
        ),
        ("def register(self, metric):", "append", "composite = Composite()\ncomposite.register(scores)"),
        ("def add(self, metric):", "given", "composite = Composite(scores)"),
        ("def add(self, metric):", "given by name", "composite = Composite(one=scores)"),
    ],
)
def test_whatever_method_adds_it(add: str, way: str, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {
        "joined several": ("[]", "self.metrics.extend(metrics)", ALL),
        "spread": ("[]", "for one in metrics:\n    self.metrics.append(one)", ALL),
        "spread named": ("{}", "self.metrics.update(metrics)", VALUES),
        "given": ("list(metrics)", "pass", ALL),
        "given by name": ("named", "pass", VALUES),
    }
    monkeypatch.setattr("tests.rules.test_composites.WAYS", {**WAYS, **ways})
    assert 'torch.softmax(outputs["logits"].float(), dim=1)' in (rewrite(program(way, made, add)).after or "")


def test_an_object_that_is_called() -> None:
    text = (
        program()
        .replace("def update(self, outputs)", "def __call__(self, outputs)")
        .replace(".update(outputs)", "(outputs)")
    )
    assert 'torch.softmax(outputs["logits"].float(), dim=1)' in (rewrite(text).after or "")


def test_another_composite_adds_nothing_to_this_one() -> None:
    """Of two classes with a method of the name, each has what its own objects were given."""
    add = "def add(self, metric):\n        self.kept.append(metric)"
    other = f"class Bag:\n    def __init__(self):\n        self.kept = []\n\n    {add}\n"
    made = "composite, bag = Composite(), Bag()\nbag.add(scores)"
    text = program(made=made).replace("def main(", f"{other}\ndef main(")
    assert ".float()" not in (rewrite(text).after or ".float()")


@pytest.mark.parametrize("way", ["append", "setdefault", "named", "other name"])
def test_the_scores_are_float32_when_it_runs(way: str) -> None:
    torch.manual_seed(0)
    names = names_of(rewrite(program(way, device="'cpu'"), device="cpu").after)
    scores = names["run"]([(torch.randn(8, 4), torch.randint(2, (8,)))])
    assert [s.dtype for s in scores.found] == [torch.float32]
