"""What a model gives and a program moves to the CPU in one go is float32 there: in comprehensions, `map`, tuples, dictionaries."""

from __future__ import annotations

import pytest

from amp_migrate.findings import FileResult
from tests.rules.helpers import rewrite_files

NET = """
from torch import nn


class Teller(nn.Module):
    def __init__(self, other):
        super().__init__()
        self.sound = nn.Linear(8, 2)
        self.stop = nn.Linear(8, 1)
        self.other = other

    def forward(self, x):
        sound, stop = self.sound(x), self.stop(x)
        RETURN

    def tidy(self, outputs, mask=None):
        if mask is not None:
            outputs[0].masked_fill_(mask, 0.0)
        return outputs


class Both(nn.Module):
    def forward(self, given, wanted):
        READ
        whole, ends = wanted
        return nn.MSELoss()(sound, whole) + nn.BCEWithLogitsLoss()(stop.view(-1), ends.view(-1))
"""
PROGRAM = """
import torch
from apex import amp
from data import batches, other
from net import Both, Teller

net = Teller(other).cuda()
optimizer = torch.optim.Adam(net.parameters())
net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
both = Both()
for x, y in batches:
    optimizer.zero_grad()
    outputs = net(x)
    MOVED
    loss = both(given, y)
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
"""
LISTED = "given = [output.cpu() for output in outputs]"
GUARDED = "given = [(output.float() if output.is_floating_point() else output).cpu() for output in outputs]"


def migrated(moved: str, gives: str = "return [sound, stop]", read: str = "sound, stop = given") -> FileResult:
    net = NET.replace("RETURN", gives).replace("READ", read)
    found = rewrite_files({"run.py": PROGRAM.replace("MOVED", moved), "net.py": net})
    assert not [f for f in found["net.py"].findings if f.code == "AMP535"]
    return found["run.py"]


@pytest.mark.parametrize(
    ("moved", "written"),
    [
        (LISTED, "given = [output.float().cpu() for output in outputs]"),
        ("given = tuple(o.cpu() for o in outputs)", "given = tuple(o.float().cpu() for o in outputs)"),
        ("given = list(map(lambda o: o.cpu(), outputs))", "given = list(map(lambda o: o.float().cpu(), outputs))"),
        (
            "sound, stop = outputs\n    given = sound.cpu(), stop.cpu()",
            "given = sound.float().cpu(), stop.float().cpu()",
        ),
    ],
)
def test_what_is_floating_for_sure_is_cast(moved: str, written: str) -> None:
    assert written in (migrated(moved).after or "")


def test_so_are_the_values_of_a_dictionary() -> None:
    found = migrated(
        "given = {name: output.cpu() for name, output in outputs.items()}",
        'return {"sound": sound, "stop": stop}',
        'sound, stop = given["sound"], given["stop"]',
    )
    assert "{name: output.float().cpu() for name, output in outputs.items()}" in (found.after or "")


def test_a_list_that_a_method_hands_back_is_what_it_was_given() -> None:
    assert "output.float().cpu()" in (migrated(LISTED, "return self.tidy([sound, stop])").after or "")


@pytest.mark.parametrize("beside", ["stop.argmax(-1)", "self.other(x)"])
def test_what_may_hold_whole_numbers_beside_halves_is_cast_where_it_holds_none(beside: str) -> None:
    found = migrated(LISTED, f"return [sound, stop, {beside}]", "sound, stop, _ = given")
    assert GUARDED in (found.after or "")
    assert [f.review for f in found.findings if f.code == "AMP504"] == ["as-is"]


def test_nothing_is_cast_where_nothing_is_half_for_sure() -> None:
    gives = "return [self.other(x), stop.argmax(-1)]"
    net = NET.replace("RETURN", gives).replace("READ", "sound, stop = given")
    found = rewrite_files({"run.py": PROGRAM.replace("MOVED", LISTED), "net.py": net})["run.py"]
    assert LISTED in (found.after or "")
    assert [f.review for f in found.findings if f.code == "AMP504"] == ["look"]


def test_what_is_only_read_for_its_size_keeps_its_dtype() -> None:
    found = migrated(
        "given = outputs\n    sizes = [o.cpu().size() for o in outputs]",
        "return [sound, stop, stop.argmax(-1)]",
        "sound, stop, _ = given",
    )
    assert "[o.cpu().size() for o in outputs]" in (found.after or "")
