"""What is made float32 for Apex's sake, in runs without it in which the program has half weights by itself."""

from __future__ import annotations

import textwrap

import pytest

from tests.audit.helpers import doubts, doubts_of, sides, told

BEFORE, AFTER = sides("""
    import torch
    import torch.nn.functional as F
  - from apex import amp

    def main(args, data):
        model = torch.nn.Conv2d(3, 4, 3).cuda()
  -     if args.apex:
  -         model = amp.initialize(model, opt_level="O1")
        {halves}
        with torch.no_grad():
            for x in data:
                if args.fp16:
                    x = x.half()
                {line}
  -             print(model(x))
  +             with torch.autocast("cuda", dtype=torch.float16, enabled=args.apex):
  +                 print(model(x))
""")


def found(line: str, halves: str) -> list[tuple[int, str]]:
    lines = BEFORE.format(halves=halves, line="x = F.interpolate(x, (8, 8))"), AFTER.format(halves=halves, line=line)
    return told(doubts(*lines), "AMP546")


CAST = "x = F.interpolate(x.float(), (8, 8))"


@pytest.mark.parametrize(
    "halves",
    [
        "if not args.apex and args.fp16: model = model.half()",
        "if args.fp16: model.half()",
        "if args.fp16: model = model.to(torch.float16)",
        "model = model.to(dtype=torch.half if args.fp16 else torch.float32)",
    ],
)
def test_it_is_told(halves: str) -> None:
    assert found(CAST, halves) == [(14, "review")]


@pytest.mark.parametrize(
    ("line", "halves"),
    [
        (CAST, "if args.apex and args.fp16: model = model.half()"),
        (CAST, "pass"),
        (CAST, "bank = torch.zeros(3).half()"),
        ("x = F.interpolate(x.to(dtype=torch.float32 if args.apex else None), (8, 8))", "if args.fp16: model.half()"),
        ("x = F.interpolate(x, (8, 8)); print(x.float().cpu())", "if args.fp16: model.half()"),
    ],
)
def test_nothing_is_told_where_it_is_none(line: str, halves: str) -> None:
    assert found(line, halves) == []


def test_half_made_after_it_is_none_of_its_business() -> None:
    tail = "        torch.save(model.half(), 'out.pt')\n"
    before = BEFORE.format(halves="pass", line="x = F.interpolate(x, (8, 8))") + tail
    assert told(doubts(before, AFTER.format(halves="pass", line=CAST) + tail), "AMP546") == []


def test_a_cast_of_the_programs_own_is_not_told() -> None:
    was, now = "x = F.interpolate(x.float() + 1, (8, 8))", "x = F.interpolate((x.float() + 1).float(), (8, 8))"
    halves = "if args.fp16: model.half()"
    before, after = BEFORE.format(halves=halves, line=was), AFTER.format(halves=halves, line=now)
    assert [d.message.split(" is made")[0] for d in doubts(before, after) if d.code == "AMP546"] == ["x.float() + 1"]


def test_where_it_is_made_half_is_said() -> None:
    before, after = (
        text.format(halves="lower(args, model)", line=line)
        for text, line in ((BEFORE, "x = F.interpolate(x, (8, 8))"), (AFTER, CAST))
    )
    lower = "def lower(args, model):\n    if args.fp16:\n        model.half()\n"
    here = doubts(f"{before}\n{textwrap.indent(lower, '    ')}", f"{after}\n{textwrap.indent(lower, '    ')}")
    assert [" (line 19)" in d.message for d in here if d.code == "AMP546"] == [True]
    taken = "    from nets import lower\n"
    there = doubts_of({"train.py": taken + before, "nets.py": lower}, {"train.py": taken + after})
    assert [" (line 3 of nets.py)" in d.message for d in there if d.code == "AMP546"] == [True]
