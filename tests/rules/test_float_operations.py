"""Operations outside of the regions that Apex ran in float32: what they are given is made float32 where it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from amp_migrate.rules.regions import float_operations
from tests.rules.helpers import rewrite
from tests.rules.programs import apex, found
from tests.rules.trained import check_trained

PROGRAM = """
import torch.nn.functional as F
import numpy as np

model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
for x, y in loader:
    optimizer.zero_grad()
    output = model(x)
    loss = criterion(output, y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(amp.master_params(optimizer), 10.0))
    optimizer.step()
with torch.no_grad():
    for x, y in loader:
        output = model(x)
        LINES
"""


def lines(*given: str, level: str = "O1") -> str:
    return PROGRAM.replace("LEVEL", level).replace("LINES", "\n        ".join(given))


@pytest.mark.parametrize("example", [e for c in float_operations.CODES for e in c.examples])
def test_the_documented_examples_hold(example: Any) -> None:
    imports = "from apex import amp\nimport torch.nn.functional as F"
    tail = "with torch.no_grad():\n    output = model(x)\n    {}\n"
    result = rewrite(apex(imports=imports, tail=tail.format(example.before)))
    assert result.after is not None
    assert f"    {example.after}\n" in result.after
    assert [f.review for f in found(result, "AMP522")] == ["as-is"]


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("value = F.softmax(output, dim=1)", "F.softmax(output.float(), dim=1)"),
        ("value = output.exp()", "output.float().exp()"),
        ("value = torch.norm(output, dim=1)", "torch.norm(output.float(), dim=1)"),
        ("value = torch.exp(output / 2)", "torch.exp(output.float() / 2)"),
        ("value = output.exp().sum(1)", "output.float().exp().sum(1)"),
        ("value = F.softmax(output[:, :1], dim=1).log()", "F.softmax(output[:, :1].float(), dim=1).log()"),
        ("value = F.softmax(output.float(), dim=1)", "F.softmax(output.float(), dim=1)"),
        ("probs = F.softmax(output, dim=1); value = probs.log().sum()", "value = probs.log().sum()"),
        ("value = F.gelu(output)", "F.gelu(output.float())"),
        ("value = F.interpolate(output[None], size=4)", "F.interpolate(output[None].float(), size=4)"),
    ],
)
def test_it_computes_in_float32(line: str, written: str, level: str) -> None:
    check = "assert value.dtype is torch.float32"
    after = check_trained(lines(*line.split("; "), check, "seen.append(value.sum() / 100)", level=level))
    whole = ["output = model(x).float()" in after, written in after]
    assert any(whole)  # O2: where every use is a tensor's, once for all
    assert ".float().float()" not in after


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("value = torch.sigmoid(output).cpu().numpy()", "torch.sigmoid(output.float()).cpu().numpy()"),
        ("value = torch.sigmoid(output[:, 0, ...]).cpu().numpy()", "torch.sigmoid(output[:, 0, ...].float()).cpu()"),
        ("value = torch.softmax(output, dim=1).cpu().numpy()[:, :1]", "torch.softmax(output.float(), dim=1).cpu()"),
        ("value = output.sigmoid().view(-1).cpu().numpy()", "output.float().sigmoid().view(-1).cpu().numpy()"),
        ("value = torch.sigmoid(output).round().cpu().numpy()", "torch.sigmoid(output).round().float().cpu().numpy()"),
        ("value = torch.sigmoid(output).cpu()", "torch.sigmoid(output.float()).cpu()"),
    ],
)
def test_what_goes_to_numpy_is_computed_in_float32(line: str, written: str) -> None:
    check = 'assert str(value.dtype).endswith("float32")'
    after = check_trained(lines(line, check, "seen.append(float(value.mean()))"))
    assert written in after
    assert after.count(".float()") == 1


@pytest.mark.parametrize(
    "line",
    [
        "value = torch.argmax(output, 1).cpu().numpy()",
        "value = output.argmax(1).sum()",
        "value = (output.max(1)[1] == y[:, 0]).sum()",
        "value = (torch.sigmoid(output) > 0.5).sum().cpu().numpy()",
        "_, best = torch.max(output, 1); value = best.sum()",
        "value = len(output)",
        "value = torch.tensor(output.shape).sum()",
    ],
)
def test_whole_numbers_stay_whole(line: str) -> None:
    after = check_trained(lines(*line.split("; "), "seen.append(int(value if np.ndim(value) == 0 else value.sum()))"))
    assert ".float()" not in after


def test_the_inside_of_a_region_needs_none() -> None:
    loop = "loss = F.softmax(model(x), dim=1).sum()\n"
    scaled = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()"
    result = rewrite(apex(loop + scaled, imports="from apex import amp\nimport torch.nn.functional as F"))
    assert result.after is not None
    assert ".float()" not in result.after


def test_what_a_region_made_float32_is_not_cast_again() -> None:
    tail = "with torch.no_grad():\n    for x, y in loader:\n        probs = F.softmax(model(x), dim=1)\n        LINES\n"
    lines = "keep(probs.log(), probs.sum(), torch.norm(probs))"
    result = rewrite(
        apex(imports="from apex import amp\nimport torch.nn.functional as F", tail=tail.replace("LINES", lines))
    )
    assert result.after is not None
    assert ".float()" not in result.after


BANK = "bank = torch.nn.functional.normalize(torch.randn(5, 1), dim=1)\n"


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("value = torch.mm(output, bank.t())", "torch.mm(output.float(), bank.t())"),
        ("value = output @ bank.t()", "output.float() @ bank.t()"),
        ("value = bank.matmul(output.t())", "bank.matmul(output.t().float())"),
        ("value = F.linear(output, bank)", "F.linear(output.float(), bank)"),
        ("value = torch.bmm(output[None], bank.t()[None])", "torch.bmm(output[None].float(), bank.t()[None])"),
        ("value = torch.dot(output[:5, 0], bank[:, 0])", "torch.dot(output[:5, 0].float(), bank[:, 0])"),
        ("value = torch.mm(output, memory[0].t())", "torch.mm(output.float(), memory[0].t().float())"),
        ("every = torch.cat([model(x) for x, _ in loader]); value = every @ bank.t()", "every.float() @ bank.t()"),
    ],
)
def test_a_product_with_what_is_float32(line: str, written: str, level: str) -> None:
    made = f"{BANK}        memory = [bank]"
    after = check_trained(lines(made, *line.split("; "), "seen.append(float(value.abs().mean()))", level=level))
    assert written in after or (level == "O2" and "output = model(x).float()" in after)
    assert ".float().float()" not in after


def test_what_o1_made_alike_is_told_and_what_o2_gave_is_as_it_was() -> None:
    tail = "    every = [model(x) for x, _ in loader]\nevery = torch.cat(every)\nLINE\n"
    tail = "bank = torch.randn(5, 1)\nwith torch.no_grad():\n" + tail

    def reviews(line: str, level: str) -> list[str]:
        program = apex(imports="import torch\nfrom apex import amp", tail=tail.replace("LINE", line))
        return [f.review for f in found(rewrite(program.replace('"O1"', f'"{level}"')), "AMP522")]

    assert reviews("print(every @ bank.t())", "O1") == ["look"]
    assert reviews("print(every @ bank.t())", "O2") == ["as-is"]
    assert reviews("print(every @ every.t())", "O1") == []  # both half, as they were
    assert reviews("print(every @ every.t())", "O2") == ["as-is"]
    assert reviews("print(torch.einsum('nc,kc->nk', every, bank))", "O2") == ["as-is"]
    assert reviews("print(torch.einsum('nc,kc->nk', every, bank))", "O1") == []  # not patched: bank is half as well
    assert reviews("print(bank @ bank.t())", "O1") == []
    assert reviews("print(every * bank, torch.maximum(every, bank))", "O2") == []  # which promote


ELSEWHERE = """
import torch.nn.functional as F


def score(rows):
    return F.softmax(rows, 1).sum()


def scores(kept):
    return score(torch.cat(kept["rows"]))


class Meter:
    def __init__(self):
        self.rows = []

    def keep(self, rows):
        self.rows.append(rows)

    def total(self):
        return score(torch.cat(self.rows))


model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    optimizer.zero_grad()
    with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(amp.master_params(optimizer), 10.0))
    optimizer.step()
meter = Meter()
with torch.no_grad():
    for x, y in loader:
        GIVEN
        seen.append(USED)
"""
UNSEEN = """
import torch
from apex import amp
from project import loader, criterion, seen, clip_grad_norm_

model = torch.hub.load("owner/name", "network").cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
WHOLE = ("scores({'rows': [output]})", "(meter.keep(output), meter.total())[1]")


@pytest.mark.parametrize("used", WHOLE)
def test_what_another_function_computes_from_is_cast_where_the_model_gives_it(used: str) -> None:
    text = check_trained(ELSEWHERE.replace("GIVEN", "output = model(x)").replace("USED", used))
    assert "output = model(x).float()\n" in text
    assert "F.softmax(rows, 1).sum()" in text


def test_what_may_be_a_tuple_is_cast_where_it_is_used() -> None:
    source = ELSEWHERE.replace("GIVEN", "output = model(x)").replace("USED", "scores({'rows': [output[0]]})")
    result = rewrite(UNSEEN + source)
    assert "F.softmax(rows.float(), 1).sum()" in (result.after or "")
    assert ".float()\n" not in (result.after or "")
    assert {f.code for f in result.findings} >= {"AMP522"}
    assert not found(result, "AMP535")


@pytest.mark.parametrize("counted", ["rows.sum()", "rows.pow(2)", "rows.cumsum(0)"])
def test_what_whole_numbers_have_too_is_told_and_not_cast(counted: str) -> None:
    source = ELSEWHERE.replace("F.softmax(rows, 1).sum()", counted)
    source = source.replace("GIVEN", "output = model(x)").replace("USED", "scores({'rows': [output[0]]})")
    result = rewrite(UNSEEN + source)
    assert f"return {counted}" in (result.after or "")
    assert [f.review for f in found(result, "AMP535")] == ["review"]


@pytest.mark.parametrize(
    ("made", "cast"),
    [
        ("(rows > 0).to(torch.float)", False),
        ("(rows > 0).type(torch.float32)", False),
        ("torch.ones(4, 1)", False),
        ("rows.to(rows.device)", True),
    ],
)
def test_what_is_made_float32_beside_what_a_model_gives_is_not_cast(made: str, cast: bool) -> None:
    two = f"window = {made}\n    return F.softmax(rows, 1).sum() / window.mean(0).exp()"
    source = ELSEWHERE.replace("return F.softmax(rows, 1).sum()", two)
    source = source.replace("GIVEN", "output = model(x)").replace("USED", "scores({'rows': [output[0]]})")
    result = rewrite(UNSEEN + source)
    assert "F.softmax(rows.float(), 1).sum()" in (result.after or "")
    assert ("window.float().mean(" in (result.after or "")) is cast
    said = [f.message for f in result.findings if f.code == "AMP522"]
    assert any("from window" in message for message in said) is cast
