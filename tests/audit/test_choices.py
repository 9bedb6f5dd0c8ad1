"""What a variable was chosen to be is asked for by the tests that chose it."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    def main(args, model, optimizer, data):
        model = torch.nn.Linear(4, 4).cuda()
        mode = 0
  -     if args.apex:
  -         mode = {apex}
  +     {apex}
        if args.native:
            mode = 2
  -     if mode == {apex}:
  -         model = amp.initialize(model, opt_level="O1")
        for x in data:
  -         with torch.cuda.amp.autocast(enabled=mode == 2):
  +         with torch.autocast("cuda", enabled=mode == 2):
                print(model(x))

    main(parse(), None, None, [])
""")


@pytest.mark.parametrize("apex", ["1", "'apex'"])
@pytest.mark.parametrize(("now", "lost"), [("if args.apex: mode = 2", False), ("mode = 0", True)])
def test_it_is_compared_by_what_chose_it(apex: str, now: str, lost: bool) -> None:
    told = doubts(BEFORE.format(apex=apex), AFTER.format(apex=now))
    found = [d.message for d in told if d.code == "AMP531"]
    assert bool(found) is lost
    assert all("where apex and not native" in message or "where apex" in message for message in found)
