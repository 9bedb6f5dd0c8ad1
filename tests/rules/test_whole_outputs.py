"""Whole numbers among what a model returns: class numbers and labels are never made float32."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import rewrite
from tests.rules.trained import check_trained

PROGRAM = """
NAMES = ["first", "second", "third"]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 3)

    def forward(self, x, y, task="classes", extra=False):
        y = y.to(x.device)
        logits = self.body(x)
        if task == "number":
            best = CHOSEN
        else:
            best = logits.argmax(-1)
        if extra:
            return logits, y, best, x
        return logits, y, best


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
for x, y in loader:
    y = y.view(-1).long() % 3
    optimizer.zero_grad()
    logits, y, _ = model(x, y)
    loss = torch.nn.functional.cross_entropy(logits, y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(model.parameters(), 100)
    optimizer.step()


def evaluate(model):
    with torch.no_grad():
        for x, y in loader:
            y = y.view(-1).long() % 3
            TAKEN
            for known, place in zip(labels, places):
                seen.append(len(NAMES[known] + NAMES[place]) * 0.0)


evaluate(model)
"""
LISTS = "labels, places = y.cpu().numpy().tolist(), best.cpu().numpy().tolist()"
UNPACKED = "logits, y, best = model(x, y)"
ENTRIES = "out = model(x, y)"
TAKEN = (
    f"{UNPACKED}\n{LISTS}",
    f"{UNPACKED}\ny = y.view(-1)\n{LISTS}",
    f"_, y, best = model(x, y)\n{LISTS}",
    "_, _, best, _ = model(x, y, extra=True)\nlabels, places = y.tolist(), best.view(-1).cpu().tolist()",
    f"{ENTRIES}\nlabels, places = out[1].cpu().numpy().tolist(), out[2].cpu().numpy().tolist()",
    f"{ENTRIES}\ny, best = out[1], out[2]\n{LISTS}",
    f"{ENTRIES}\nbest = out[2]\n{LISTS}",
)


def program(taken: str, chosen: str = "logits.argmax(1)") -> str:
    return PROGRAM.replace("CHOSEN", chosen).replace("TAKEN", textwrap.indent(taken, " " * 12).lstrip())


def told(source: str) -> list[str]:
    result = rewrite("import torch\nfrom apex import amp\nfrom data import loader, clip_grad_norm_\n" + source)
    return [f.message for f in result.findings if f.code in ("AMP503", "AMP504")]


@pytest.mark.parametrize("taken", TAKEN)
def test_class_numbers_and_labels_that_a_model_hands_back_stay_whole(taken: str) -> None:
    after = check_trained(program(taken))
    assert ".float()" not in after
    assert not told(program(taken))


@pytest.mark.parametrize("taken", TAKEN[:3])
def test_of_what_is_whole_on_some_ways_alone_the_doubt_stands_for_the_cast(taken: str) -> None:
    source = program(taken, "logits")
    assert ".float()" not in check_trained(source)
    (message,) = told(source)
    assert message.startswith("best may be float16 for NumPy")
    assert "unless it holds whole numbers" in message


def test_of_one_tensor_that_is_whole_on_some_ways_alone_too() -> None:
    taken = "best = model(x, y)\nlabels, places = y.tolist(), best.cpu().numpy().tolist()"
    source = program(taken, "logits").replace("return logits, y, best\n", "return logits if self.training else best\n")
    source = source.replace("logits, y, _ = model(x, y)", "logits = model(x, y)").replace(
        "    with torch.no_grad", "    model.eval()\n    with torch.no_grad"
    )
    source = source.replace("        if extra:\n            return logits, y, best, x\n", "")
    assert ".float()" not in check_trained(source)
    (message,) = told(source)
    assert "best may be float16 for NumPy" in message


def test_a_model_out_of_sight_may_give_class_numbers() -> None:
    taken = "scores, best = net(x)\nlabels, places = y.tolist(), best.cpu().numpy().tolist()"
    source = program(taken).replace("def evaluate(model)", "def evaluate(net)")
    source = source.replace("class Net(torch.nn.Module)", "from models import Net\n\n\nclass Other(torch.nn.Module)")
    result = rewrite("import torch\nfrom apex import amp\nfrom data import loader, clip_grad_norm_\n" + source)
    assert result.after is not None
    assert ".float()" not in result.after
    (message,) = told(source)
    assert "unless it holds whole numbers" in message


def test_what_the_caller_computed_in_a_region_is_half_where_it_is_handed_back() -> None:
    taken = "logits, z, best = model(x, y)\n_, again, _ = model(x, logits)\n"
    taken += "seen.append(again.cpu().numpy().sum() * 0.0)\nlabels = places = []"
    assert any(m.startswith("again") for m in told(program(taken)))


@pytest.mark.parametrize(
    ("level", "said"),
    [('"O1"', "O1"), ('"O2"', "O2"), ('"O3"', "O3"), ('"O2" if x else "O0"', "O2"), ('"O2" if x else "O1"', "Apex")],
)
def test_the_level_that_is_asked_for_is_named(level: str, said: str) -> None:
    source = program(TAKEN[0], "logits").replace('"O2"', level)
    (message,) = told(source)
    assert f"where {said} made it float32" in message


LENGTHS = """
from vocoder import build

model = build().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = model(x, y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    mel, found = model.infer(x)
    print(len(found[0].cpu()))
    USE
"""


@pytest.mark.parametrize(
    ("use", "whole"),
    [
        ("show(torch.repeat_interleave(torch.eye(4), found[0].cpu(), dim=0))", True),
        ("show(mel.repeat_interleave(found[0].cpu(), 0))", True),
        ("show(x.repeat_interleave(repeats=found[0].cpu()))", True),
        ("show(torch.repeat_interleave(found.cpu(), 2))", False),
        ("show(found.repeat_interleave(2).cpu())", False),
        ("show(found[0].cpu())", False),
    ],
)
def test_what_is_handed_to_what_takes_whole_numbers_is_no_half(use: str, whole: bool) -> None:
    assert any("found" in message for message in told(LENGTHS.replace("USE", use))) is not whole
