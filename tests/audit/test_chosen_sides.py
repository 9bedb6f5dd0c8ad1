"""A run that asked for Apex, where a native side stands beside it, has that side."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, sides

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    def main(args, model, optimizer, data):
        {choice}
        scaler = None
  -     if {apex}:
  -         model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  -     elif {native}:
  -         scaler = torch.cuda.amp.GradScaler()
  +     if {native}:
  +         scaler = torch.amp.GradScaler("cuda")
        for x in data:
            loss = model(x).mean()
  -         if {apex}:
  -             with amp.scale_loss(loss, optimizer) as scaled:
  -                 scaled.backward()
  -             optimizer.step()
  -         elif scaler is not None:
  +         if scaler is not None:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                optimizer.step()
""")
KIND = {"apex": 'kind == "apex"', "native": 'kind == "native"'}
KEPT = {"apex": "with_apex", "native": "native"}
ALONE = 'kind = None\n        if args.native:\n            kind = "native"'
FLAG = {"apex": "args.apex", "native": "args.native"}
TOGETHER = """with_apex = native = False
        if args.apex:
            with_apex = True
        elif args.native:
            native = True
"""
ANSWERS = """with_apex = native = False
        if args.apex or args.native:
            native = True
"""
CHOICE = """kind = None
        if args.apex:
            kind = "apex"
        elif args.native:
            kind = "native"
"""


def found(before: dict[str, str], after: dict[str, str]) -> list[str]:
    told = doubts(BEFORE.format(**before), AFTER.format(**after))
    return [d.message for d in told if d.code == "AMP531" and d.verdict == "review" and "GradScaler" in d.message]


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (
            {**KIND, "choice": CHOICE},
            {**KIND, "choice": ALONE},
            True,
        ),
        (
            {**KIND, "choice": CHOICE},
            {**KIND, "choice": 'kind = None\n        if args.apex or args.native:\n            kind = "native"'},
            False,
        ),
        ({**FLAG, "choice": "pass"}, {**FLAG, "choice": "pass"}, True),
        ({**KEPT, "choice": TOGETHER}, {**KEPT, "choice": TOGETHER}, True),
        ({**KEPT, "choice": TOGETHER}, {**KEPT, "choice": ANSWERS}, False),
        ({**KIND, "choice": f"spare = {CHOICE}"}, {**KIND, "choice": f"spare = {ALONE}"}, True),
        ({**FLAG, "choice": "pass"}, {**FLAG, "choice": "pass", "native": "args.apex or args.native"}, False),
    ],
)
def test_it_is_told_of_a_run_that_gets_neither(before: dict[str, str], after: dict[str, str], lost: bool) -> None:
    assert bool(found(before, after)) is lost


def test_a_scaler_of_another_program_is_no_native_side_of_this_one() -> None:
    apex = """
        import torch
        from apex import amp

        def main(model, loader):
            model = amp.initialize(model, opt_level="O1")
            return [model(x) for x in loader]
    """
    now = """
        import torch

        def main(model, loader):
            with torch.autocast("cuda", dtype=torch.float16):
                return [model(x) for x in loader]
    """
    own = """
        import torch

        def run(args, model, optimizer, loader):
            scaler = torch.cuda.amp.GradScaler() if args.native else None
    """
    after = {"bench.py": now, "other.py": own.replace("torch.cuda.amp.GradScaler()", 'torch.amp.GradScaler("cuda")')}
    assert not [d for d in doubts_of({"bench.py": apex, "other.py": own}, after) if "native side" in d.message]
