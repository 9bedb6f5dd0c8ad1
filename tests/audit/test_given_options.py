"""Whether an option was given may be asked in several ways, and by a field of a record: one condition all the same (AMP532)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
import argparse
from dataclasses import dataclass
import torch
from apex import amp


HEAD
    def fit(self, batches):
        for x in batches:
            loss = self.model(x).mean()
            if self.use_amp:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()


class Tuner(Trainer):
    pass


def main():
    parser = argparse.ArgumentParser()
    OPTION
    args = parser.parse_args()
    model = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    if ASKED:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    trainer = MADE
    trainer.fit([torch.randn(2, 4)])


main()
"""
AFTER = BEFORE.replace("from apex import amp\n", "")
for old, new in (
    (
        """            loss = self.model(x).mean()
            if self.use_amp:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()
""",
        """            with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
                loss = self.model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()
""",
    ),
    (
        """    if ASKED:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
""",
        """    scaler = torch.amp.GradScaler("cuda", enabled=bool(ASKED and args.level != "O0"))
""",
    ),
    ("fit(self, batches)", "fit(self, batches, scaler)"),
    ("[torch.randn(2, 4)]", "[torch.randn(2, 4)], scaler"),
):
    assert old in AFTER
    AFTER = AFTER.replace(old, new)
PLAIN = """class Trainer:
    def __init__(self, model, optimizer, use_amp=False):
        self.model, self.optimizer = model, optimizer
        self.use_amp = use_amp
"""
RECORD = """@dataclass
class Trainer:
    model: torch.nn.Module
    optimizer: object
    use_amp: bool = False
"""
TEXT = 'parser.add_argument("--level", type=str, default="")'


def told(head: str, option: str, made: str, more: str = "", asked: str = "args.level") -> list[str]:
    swaps = (("HEAD", head), ("OPTION", option), ("MADE", made), ("ASKED", asked))
    texts = [BEFORE + more, AFTER + more]
    for old, new in swaps:
        texts = [text.replace(old, new) for text in texts]
    return [d.message for d in doubts(*texts) if d.code == "AMP532" and "not scaled here" in d.message]


@pytest.mark.parametrize(
    "option",
    [
        TEXT,
        'parser.add_argument("--level", default="")',
        'parser.add_argument("--level", default="O1", action="store")',
        'parser.add_argument("--level", required=True)',
        'arg = parser.add_argument; arg("--level", type=str, default="")',
    ],
)
@pytest.mark.parametrize("head", [PLAIN, RECORD])
def test_a_text_that_is_not_empty_was_given(head: str, option: str) -> None:
    assert told(head, option, 'Trainer(model, optimizer, use_amp=args.level != "")') == []
    assert told(head, option, 'Trainer(model, optimizer, args.level not in ("", None))') == []


@pytest.mark.parametrize(
    "option",
    [
        'parser.add_argument("--level", type=str)',
        'parser.add_argument("--level", type=str, default=None)',
        'parser.add_argument("--level", default="", type=lambda text: text or None)',
        'parser.add_argument("--level", default="", nargs="?")',
        'parser.add_argument("--level", default=""); parser.set_defaults(level=None)',
        'parser.add_argument("--level", default=""); parser.add_argument("--no", action="store_const", dest="level")',
    ],
)
@pytest.mark.parametrize("asked", ['args.level != ""', '"" != args.level'])
def test_what_may_be_none_is_another_condition(option: str, asked: str) -> None:
    made = "Trainer(model, optimizer, bool(args.level))"
    assert told(RECORD, option, made, asked=asked)
    assert told(RECORD, TEXT, made, asked=asked) == []


def test_what_is_given_a_value_by_the_program_is_not_known() -> None:
    option = f"{TEXT}\n    args = parser.parse_args()\n    args.level = None if args.level == 'no' else args.level"
    assert told(RECORD, option, "Trainer(model, optimizer, bool(args.level))", asked='args.level != ""')


@pytest.mark.parametrize("cls", ["Trainer", "Tuner"])
def test_a_field_of_a_record_is_what_its_call_gives_it(cls: str) -> None:
    assert told(RECORD, TEXT, f"{cls}(model, optimizer, bool(args.level))") == []
    assert told(RECORD, TEXT, f"{cls}(model, optimizer, use_amp=args.level)") == []
    assert told(RECORD, TEXT, f"{cls}(model, optimizer, True)") == []
    assert told(RECORD, TEXT, f"{cls}(model, optimizer)")
    assert told(RECORD, TEXT, f"{cls}(model, optimizer, not args.level)")
    assert told(RECORD, TEXT, f"{cls}(*(model, optimizer), use_amp=bool(args.level))")


def test_a_field_that_is_given_another_value_from_outside_is_not_known() -> None:
    made = "Trainer(model, optimizer, bool(args.level))"
    assert told(RECORD, TEXT, made, "\n\ndef off(trainer):\n    trainer.use_amp = False\n")
    assert told(RECORD, TEXT, made, "\n\nclass Other:\n    def off(self):\n        self.use_amp = False\n") == []
