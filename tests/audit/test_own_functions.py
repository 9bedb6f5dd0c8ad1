"""Functions that a library's user may call without the one that set Apex up keep the precision that they had then."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides, told

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    def fit(net, loader):
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
  -     net, opt = amp.initialize(net, opt, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda")
        for x in loader:
  -         loss = net(x).mean()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = net(x).mean()
            opt.zero_grad()
  -         with amp.scale_loss(loss, opt) as scaled:
  -             scaled.backward()
  -         opt.step()
  +         scaler.scale(loss).backward()
  +         scaler.step(opt)
  +         scaler.update()
        return net

    def NAME(net, loader, opt=None, use_amp=False):
        net.eval()
        for x in loader:
            REGION:
                out = net(x)
            REST
    """)
RUN = 19
CAST = 'with torch.enable_grad(), torch.autocast("cuda", dtype=torch.float16ENABLED)'
TRAINS = "out.mean().backward()\n            opt.step()"


def _told(name: str, rest: str, enabled: str = "", more: str = "") -> list[tuple[int, str]]:
    texts = (t.replace("NAME", name).replace("REST", rest) + more for t in (BEFORE, AFTER))
    before, after = texts
    region = CAST.replace("ENABLED", enabled)
    found = doubts(before.replace("REGION", "with torch.enable_grad()"), after.replace("REGION", region))
    return told(found, "AMP531")


@pytest.mark.parametrize(
    ("name", "rest", "weight"),
    [("evaluate", "print(out)", "look"), ("predict", "print(out)", "look"), ("tune", TRAINS, "review")],
)
def test_a_function_that_may_be_called_alone(name: str, rest: str, weight: str) -> None:
    assert _told(name, rest) == [(RUN, weight)]
    assert _told(name, rest, ", enabled=use_amp") == []


@pytest.mark.parametrize(("name", "rest"), [("report", "print(out)"), ("note", "out.sum()")])
def test_what_evaluates_nothing_by_its_name_and_trains_nothing(name: str, rest: str) -> None:
    assert _told(name, rest) == []


def test_what_the_program_itself_calls_is_compared() -> None:
    called = "\n    if __name__ == '__main__':\n        evaluate(fit(torch.nn.Linear(4, 2).cuda(), []), [])\n"
    assert _told("evaluate", "print(out)", more=called) == []
