"""What a forward keeps of what it computed in half, and another method hands to NumPy: float32 there, as under O1. AMP504."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.audit.helpers import doubts
from tests.rules.helpers import names_of, rewrite
from tests.rules.programs import found

PROGRAM = """
import numpy as np
import torch
from apex import amp

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)
        self.head = torch.nn.Linear(2, 2)
        self.kept = HOLDS

    def forward(self, x, key="a"):
        h = self.body(x)
        KEEP
        return self.head(h)

    def summary(self, key="a"):
        return READ

def main(loader):
    model = Net().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
    return model.summary()
"""
CAT = "torch.cat(self.kept).numpy()"
WAYS = {
    "list": ("[]", "self.kept.append(h.detach().cpu())", CAT),
    "extend": ("[]", "self.kept.extend(h.detach().cpu())", "torch.stack(self.kept).numpy()"),
    "plus": ("[]", "self.kept += [h.detach().cpu()]", CAT),
    "attribute": ("None", "self.kept = h", "self.kept.detach().cpu().numpy()"),
    "added to": (
        "None",
        "self.kept = h if self.kept is None else torch.cat([self.kept, h])",
        "self.kept.detach().cpu().numpy()",
    ),
    "key": ("{}", "self.kept[key] = h.detach().cpu()", "self.kept[key].numpy()"),
    "lists": ("{}", "self.kept.setdefault(key, []).append(h.detach().cpu())", "torch.cat(self.kept[key]).numpy()"),
    "mapping": ("{}", "self.kept[key] = {'real': h.detach().cpu(), 'n': 1}", "self.kept[key]['real'].numpy()"),
    "joined for NumPy": ("[]", "self.kept.append(h.detach().cpu())", "np.asarray(torch.cat(self.kept))"),
    "array": ("[]", "self.kept.append(h.detach().cpu().numpy())", "np.concatenate(self.kept)"),
}


def program(way: str, level: str = "O1", device: str = "'cuda'") -> str:
    holds, keep, read = WAYS[way]
    text = PROGRAM.replace("HOLDS", holds).replace("KEEP", keep).replace("READ", read)
    return text.replace("LEVEL", level).replace("DEVICE", device)


def given_back(source: str) -> np.dtype:
    """The type of the array that a program gives back, which ran once it was migrated."""
    torch.manual_seed(0)
    names = names_of(rewrite(source, device="cpu").after)
    array: np.ndarray = names["main"]([(torch.randn(8, 4), torch.randint(2, (8,)))])
    return array.dtype


@pytest.mark.parametrize("way", WAYS)
def test_what_was_half_is_cast_once(way: str) -> None:
    result = rewrite(program(way))
    assert (result.after or "").count(".float()") == 1
    assert [f.review for f in found(result, "AMP504")] == ["as-is"]
    assert not found(result, "AMP535")
    assert given_back(program(way, device="'cpu'")) == np.float32


@pytest.mark.parametrize("way", WAYS)
def test_the_audit_sees_it_without_the_rule(way: str) -> None:
    after = rewrite(program(way)).after or ""
    assert [d.by for d in doubts(program(way), after.replace(".float()", "")) if d.code == "AMP535"] == ["AMP504"]
    assert not [d for d in doubts(program(way), after) if d.code == "AMP535"]


@pytest.mark.parametrize("way", WAYS)
def test_at_o2_it_was_half_as_it_is_now(way: str) -> None:
    result = rewrite(program(way, "O2"))
    assert ".float()" not in (result.after or ".float()")
    assert not found(result, "AMP535")


@pytest.mark.parametrize(
    ("holds", "keep", "read"),
    [
        ("[]", "self.kept.append(x.cpu())", CAT),  # the input
        ("[]", "self.kept.append(h.softmax(1).detach().cpu())", CAT),
        ("[]", "self.kept.append(h.detach().float().cpu())", CAT),
        ("[]", "self.kept.append(h.argmax(1).cpu())", CAT),
        ("torch.zeros(8, 2)", "self.kept[:4] = h[:4].detach()", "self.kept.cpu().numpy()"),
        ("torch.zeros(8, 2, dtype=torch.uint8)", "self.kept[:4] = h[:4].detach()", "self.kept.cpu().numpy()"),
        ("[]", "self.kept.append((h * 255).detach().to(torch.uint8).cpu())", CAT),
        ("[]", "self.kept.append((h * 255).detach().byte().cpu())", CAT),
        ("[]", "self.kept.append(h.detach().type(torch.ByteTensor))", CAT),
        ("[]", "kind = torch.uint8\n        self.kept.append(h.detach().cpu().to(kind))", CAT),
    ],
)
def test_what_is_not_half_stays_and_is_not_told(holds: str, keep: str, read: str) -> None:
    text = PROGRAM.replace("HOLDS", holds).replace("KEEP", keep).replace("READ", read)
    result = rewrite(text.replace("LEVEL", "O1").replace("DEVICE", "'cuda'"))
    assert read in (result.after or "")
    assert keep in (result.after or "")
    assert not [*found(result, "AMP504"), *found(result, "AMP535")]


def read_outside(way: str, device: str = "'cuda'") -> str:
    """The same where no method of the network reads it, but whoever has the network, or a wrapper of that."""
    read = WAYS[way][2].replace("self.", "net.").replace("[key]", "['a']")
    text = program(way, device=device).replace("return model.summary()", "return report(model)")
    return text.replace("def main(", f"def report(net):\n    return {read}\n\ndef main(").replace(WAYS[way][2], "None")


@pytest.mark.parametrize("way", WAYS)
def test_what_is_read_of_the_network_from_outside_is_cast(way: str) -> None:
    result = rewrite(read_outside(way))
    assert (result.after or "").count(".float()") == 1
    assert not found(result, "AMP535")
    assert given_back(read_outside(way, "'cpu'")) == np.float32


@pytest.mark.parametrize("way", WAYS)
def test_the_audit_sees_what_is_read_from_outside(way: str) -> None:
    after = rewrite(read_outside(way)).after or ""
    assert [d.by for d in doubts(read_outside(way), after.replace(".float()", "")) if d.code == "AMP535"] == ["AMP504"]


@pytest.mark.parametrize("kept", ["h.argmax(1)", "h.softmax(1).detach()", "len(h)", "x", "h.detach().float()"])
def test_what_else_is_read_from_outside_stays(kept: str) -> None:
    read = "self.kept.detach().cpu().numpy()"
    text = PROGRAM.replace("HOLDS", "None").replace("KEEP", f"self.kept = {kept}").replace("READ", "None")
    text = text.replace("LEVEL", "O1").replace("DEVICE", "'cuda'")
    result = rewrite(text.replace("return model.summary()", read.replace("self", "return model")))
    assert result.after is not None
    assert result.after.count(".float()") == kept.count(".float()")
    assert not [*found(result, "AMP504"), *found(result, "AMP535")]


GIVEN = "outputs = model(x)\n        loss = outputs.float().sum()\n        meter.add(outputs.detach())"
METER = """class Meter:
    def __init__(self):
        self.seen = []

    def add(self, value):
        self.seen.append(value)

"""


def test_what_a_meter_was_given_is_cast_where_others_read_it() -> None:
    text = program("list").replace("return model.summary()", "return torch.cat(meter.seen).cpu().numpy()")
    text = text.replace("class Net", METER + "class Net").replace("    for x, y", "    meter = Meter()\n    for x, y")
    text = text.replace("loss = torch.nn.functional.cross_entropy(model(x), y)", GIVEN)
    assert "return torch.cat(meter.seen).float().cpu().numpy()" in (rewrite(text).after or "")
