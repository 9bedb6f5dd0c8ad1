"""Entries of what a model gives that autocast computes in float32, and levels that a program speaks of: AMP504, AMP112."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import torch
from apex import amp


class Settings:
    def __init__(self, fp16=True, level="O1"):
        self.fp16 = fp16
        self.level = level
        TEXT


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(3, 2)

    def forward(self, x, labels=None, mode="prob"):
        output = self.head(x)
        if mode == "prob":
            return torch.nn.functional.softmax(output, dim=1)
        elif mode == "loss":
            return torch.nn.CrossEntropyLoss()(output, labels)
        prob = torch.nn.functional.softmax(output, dim=1)
        loss = torch.nn.CrossEntropyLoss()(output, labels)
        return GIVEN


CLASSES = {"net": Net}


class Trainer:
    def __init__(self, settings, name):
        self.settings = settings
        self.model_class = CLASSES[name]

    def train(self, loader):
        model = MADE
        model.cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if self.settings.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level=LEVEL)
        for x, y in loader:
            optimizer.zero_grad()
            loss = model(x, y, mode="loss")
            if self.settings.fp16:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()
        with torch.no_grad():
            for x, y in loader:
                outputs = model(x, y, mode="evaluate")
                print(outputs[1].cpu().numpy())


def main(loader):
    settings = Settings()
    settings.__dict__ = {"fp16": False, "level": "O1"}
    Trainer(settings, "net").train(loader)
"""


def said(code: str, text: str = "pass", given: str = "output, prob, loss", **other: str) -> list[str]:
    source = PROGRAM.replace("TEXT", text).replace("GIVEN", given)
    source = source.replace("MADE", other.get("made", "Net()")).replace(
        "LEVEL", other.get("level", "self.settings.level")
    )
    return [f.message for f in rewrite(source).findings if f.code == code]


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ("output, prob, loss", 0),
        ("output, prob", 0),
        ("prob, output, loss", 1),
        ("output, prob.half(), loss", 1),
        ("(*(output, output), prob)", 1),
    ],
)
@pytest.mark.parametrize("made", ["Net()", 'self.model_class.from_pretrained("a")', "self.model_class()"])
def test_an_entry_that_is_a_softmax_is_float32_on_the_cpu_as_well(given: str, count: int, made: str) -> None:
    assert len(said("AMP504", given=given, made=made)) == count


@pytest.mark.parametrize(
    ("text", "level", "wanted"),
    [
        (
            '"""One of O0, O1, O2 and O3."""',
            "self.settings.level",
            ["O2 and O3, where asked for at run time, now mean"],
        ),
        ("pass  # or O2", "self.settings.level", ["O2, where asked for at run time, now means"]),
        ("pass", "self.settings.level", []),
        ('"""One of O0, O1, O2 and O3."""', '"O1"', []),
    ],
)
def test_levels_that_are_documented_for_a_setting_may_be_asked_for(text: str, level: str, wanted: list[str]) -> None:
    found = said("AMP112", text=text, level=level)
    assert [m for m in found if "O2" in m or "O3" in m] == [
        m for m, w in zip(found, wanted, strict=True) if m.startswith(w)
    ]


ASKED = """
import argparse
import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--level", type=TYPE)
args = parser.parse_args()
model = torch.nn.Linear(2, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, GIVEN)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""


def levels_told(given: str, option: str = "str", **options: str) -> list[tuple[str, str]]:
    result = rewrite(ASKED.replace("GIVEN", given).replace("TYPE", option), **options)
    assert result.after is not None
    assert "amp.initialize" not in result.after
    return [(f.review, f.message) for f in result.findings if f.code == "AMP112"]


@pytest.mark.parametrize(
    ("given", "option", "named"),
    [
        ('opt_level="O" + str(args.level)', "int, choices=[0, 1, 2, 3, 4, 5]", "O4 and O5"),
        ('opt_level="O%d" % args.level', "int, choices=(0, 4)", "O4"),
        ('opt_level=f"O{args.level}"', 'str, choices=["1", "5"]', "O5"),
        ("opt_level=args.level", 'str, help="O1, or O4 for bfloat16"', "O4"),
        ('opt_level="O4"', "str", "O4"),
        ('opt_level="O" + str(args.level)', "int, choices=[0, 1, 2, 3]", ""),
        ("opt_level=args.level", 'str, help="O1"', ""),
        ('opt_level="O1"', 'str, help="not O4"', ""),
    ],
)
def test_levels_of_bfloat16_are_told(given: str, option: str, named: str) -> None:
    told = [(r, m) for r, m in levels_told(given, option) if "bfloat16" in m]
    assert [(r, m.partition(",")[0]) for r, m in told] == ([("review", named)] if named else [])
    assert not [m for _, m in levels_told(given, option, dtype="bfloat16") if "ROCm" in m]


def test_a_level_of_bfloat16_is_no_other() -> None:
    assert not [m for _, m in levels_told('opt_level="O4"') if "O2" in m]


@pytest.mark.parametrize(
    ("scale", "scaled", "left_out"),
    [
        (", loss_scale=128.0", True, False),
        (", loss_scale=args.scale", True, True),
        (", loss_scale=1.0", False, False),
        (", loss_scale=None", False, False),
        ("", False, False),
    ],
)
def test_a_loss_scale_that_was_asked_for_scaled_at_o0_too(scale: str, scaled: bool, left_out: bool) -> None:
    ((_, message),) = levels_told(f"opt_level=args.level{scale}")
    assert ("O0 still switches mixed precision off" in message) is not scaled
    assert ("Apex scaled there in float32" in message) is scaled
    assert ("left out steps" in message) is left_out


def test_a_dynamic_loss_scale_still_scales_at_o0() -> None:
    ((_, message),) = levels_told('opt_level=args.level, loss_scale="dynamic"')
    assert message.endswith("; O0 still switches the casts off alone: it scales its loss, as it did")
