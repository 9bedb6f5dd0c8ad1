"""A network that is picked out of some is that network: what it ran in is told (AMP531)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides, told

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    def main(data, other):
        model = torch.nn.Linear(4, 4).cuda()
        plain = torch.nn.Linear(4, 4).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  -     model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
  +     scaler = torch.amp.GradScaler("cuda")
        for x in data:
  -         loss = model(x).mean()
  -         with amp.scale_loss(loss, optimizer) as scaled_loss:
  -             scaled_loss.backward()
  -         optimizer.step()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = model(x).mean()
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()
        for x in other:
            print({run})

    main([], [])
    """)


@pytest.mark.parametrize(
    "picked",
    [
        "model",
        "max([model], key=id)",
        "min(plain, model, key=id)",
        "next(iter([model]))",
        "next(iter([plain]), model)",
        "sorted([plain, model], key=id)[0]",
        "[plain, model][1]",
    ],
)
def test_what_it_was_is_told(picked: str) -> None:
    found = doubts(BEFORE.replace("{run}", f"{picked}(x)"), AFTER.replace("{run}", f"{picked}(x)"))
    assert told(found, "AMP531") == [(15, "review")]


@pytest.mark.parametrize("picked", ["max([plain], key=id)", "next(iter([plain]))", "[plain, model][0]"])
def test_another_network_ran_in_float32(picked: str) -> None:
    found = doubts(BEFORE.replace("{run}", f"{picked}(x)"), AFTER.replace("{run}", f"{picked}(x)"))
    assert told(found, "AMP531") == []


def test_a_function_of_the_programs_own_picks_what_it_will() -> None:
    own = "def max(nets, key):\n        return torch.nn.Linear(4, 4).cuda()\n\n    def main("
    texts = (text.replace("def main(", own).replace("{run}", "max([model], key=id)(x)") for text in (BEFORE, AFTER))
    assert told(doubts(*texts), "AMP531") == []
