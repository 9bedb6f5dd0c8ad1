"""Functions within a function: they read its half values, and leave in its variables what it goes on with (AMP535)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides

PROGRAM = """
    import torch
    import torch.nn.functional as F
  - from apex import amp

    model = torch.nn.Linear(4, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  - model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  + scaler = torch.amp.GradScaler("cuda")

    def train(loader):
        loss, box, found = None, {}, []
        for x, y in loader:
  -         out = model(x)
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             out = model(x)

DEFINED

CALLED
            optimizer.zero_grad()
  -         with amp.scale_loss(loss, optimizer) as scaled_loss:
  -             scaled_loss.backward()
  -         optimizer.step()
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()

    train(data())
"""
DEFINE = "            def inner({}):\n                {}"


def told_of(defined: str, called: str) -> bool:
    """Whether a half value is told of that Apex had in float32."""
    indented = "\n".join(f"            {line}" for line in called.splitlines())
    before, after = sides(PROGRAM.replace("DEFINED", defined).replace("CALLED", indented))
    return "AMP535" in {d.code for d in doubts(before, after)}


@pytest.mark.parametrize(
    ("parameters", "body", "called"),
    [
        ("", "return F.cross_entropy(out, y)", "loss = inner()"),
        ("", "nonlocal loss\n                loss = F.cross_entropy(out, y)", "inner()"),
        ("", "box['loss'] = F.cross_entropy(out, y)", "inner()\nloss = box['loss']"),
        ("", "found.append(F.cross_entropy(out, y))", "inner()\nloss = found[0]"),
        ("labels", "return F.cross_entropy(out, labels)", "loss = inner(y)"),
        ("", "nonlocal out\n                out = out.view(-1, 3)", "inner()\nloss = F.cross_entropy(out, y)"),
        ("", "found.append(out)", "inner()\nloss = F.cross_entropy(torch.cat(found), y)"),
    ],
)
def test_a_variable_of_the_function_around(parameters: str, body: str, called: str) -> None:
    assert told_of(DEFINE.format(parameters, body), called)


@pytest.mark.parametrize(
    ("parameters", "body", "called"),
    [
        ("out", "return F.cross_entropy(out, y)", "loss = inner(out.float())"),  # another of the same name
        ("", "out = x.float()\n                return F.cross_entropy(out, y)", "loss = inner()"),
        ("", "nonlocal out\n                out = out.float()", "inner()\nloss = F.cross_entropy(out, y)"),
    ],
)
def test_another_variable_or_a_cast(parameters: str, body: str, called: str) -> None:
    assert not told_of(DEFINE.format(parameters, body), called)


def test_its_own_variable_of_the_name_leaves_that_around_alone() -> None:
    body = "out = x.float()\n                return out"
    assert told_of(DEFINE.format("", body), "inner()\nloss = F.cross_entropy(out, y)")


def test_one_that_calls_itself_ends() -> None:
    body = "found.append(out)\n                return inner() if len(found) < 3 else F.cross_entropy(out, y)"
    assert told_of(DEFINE.format("", body), "loss = inner()")
