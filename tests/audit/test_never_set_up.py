"""A set-up before which all runs with Apex on are ended: told as that, and nothing is said of what would have run in half."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides, told

BEFORE, AFTER = sides("""
    import argparse
    import torch
  - from apex import amp

    def evaluate(net, loader):
        net.eval()
        return [net(x) for x in loader]

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        parser.add_argument("--level", default="O1")
        args = parser.parse_args()
        CHECK
        net = torch.nn.Linear(4, 2).cuda()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
  -     if args.fp16:
  -         net, opt = amp.initialize(net, opt, opt_level=args.level)
  +     scaler = torch.amp.GradScaler("cuda", enabled=args.fp16 and args.level != "O0")
        for _ in range(3):
  -         loss = net(torch.randn(2, 4).cuda()).mean()
  +         with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
  +             loss = net(torch.randn(2, 4).cuda()).mean()
            opt.zero_grad()
  -         if args.fp16:
  -             with amp.scale_loss(loss, opt) as scaled:
  -                 scaled.backward()
  -         else:
  -             loss.backward()
  -         opt.step()
  +         scaler.scale(loss).backward()
  +         scaler.step(opt)
  +         scaler.update()
        evaluate(net, [torch.randn(2, 4).cuda()])

    main()
    """)
SET_UP, EVALUATED = 18, 7


def _told(check: str, code: str) -> list[tuple[int, str]]:
    return told(doubts(*(t.replace("CHECK", check) for t in (BEFORE, AFTER))), code)


@pytest.mark.parametrize(
    "check",
    [
        "assert not args.fp16",
        "assert args.fp16 == False, 'not yet'",
        "assert args.fp16 != True",
        "if args.fp16:\n            raise NotImplementedError",
        "if args.fp16:\n            print('no')\n            exit(1)",
    ],
)
def test_what_no_run_comes_by(check: str) -> None:
    assert _told(check, "AMP138") == [(SET_UP + check.count("\n"), "look")]
    assert _told(check, "AMP531") == []


@pytest.mark.parametrize(
    "check",
    [
        "pass",
        "assert args.level != 'O3'",
        "assert args.fp16",
        "if args.fp16 and args.level == 'O3':\n            raise NotImplementedError",
        "args.fp16 = False",  # a setting, which people change
    ],
)
def test_what_some_run_comes_by_or_would(check: str) -> None:
    assert _told(check, "AMP138") == []


def test_the_evaluation_of_a_run_that_sets_up_is_told_of() -> None:
    assert [line for line, _ in _told("pass", "AMP531")] == [EVALUATED]


def test_a_check_above_a_choice_is_no_part_of_what_is_told() -> None:
    rank = "rank = int(args.level[1:])\n        assert rank >= 0\n        chosen = None\n"
    check = f"{rank}        if args.fp16:\n            chosen = 'apex'"
    asked = "if chosen == 'apex':\n            net,"
    texts = (t.replace("CHECK", check).replace("if args.fp16:\n            net,", asked) for t in (BEFORE, AFTER))
    (told_of,) = [d for d in doubts(*texts) if d.code == "AMP531"]
    assert "rank" not in told_of.message
