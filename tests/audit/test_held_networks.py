"""Networks that a module was handed beside the model: O2 left them in float32; and networks seen to be made, whatever their name."""

from __future__ import annotations

import pytest

from tests.audit.helpers import Doubt, doubts, sides

BEFORE, AFTER = sides("""
    import torch
    from torch.optim.swa_utils import AveragedModel
  - from apex import amp

    class Guided(torch.nn.Module):
        def __init__(self, net, guide):
            super().__init__()
            self.net = net
            self.guide = guide
            self.own = torch.nn.Linear(4, 4)

        def forward(self, x):
            with torch.no_grad():
                target = self.guide(x)
            return (self.own(self.net(x)) - target).abs().mean()

    class Features(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.a(x)

    def main():
        net = torch.nn.Linear(4, 4).cuda()
        guide = torch.nn.Linear(4, 4).cuda()
        features = Features().cuda()
        GIVEN
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
  -     MODEL, opt = amp.initialize(MODEL, opt, opt_level=LEVEL)
  +     scaler = torch.amp.GradScaler("cuda")
        MADE
        for _ in range(3):
            x = torch.randn(2, 4).cuda()
  -         loss = RUN
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = RUN
            opt.zero_grad()
  -         with amp.scale_loss(loss, opt) as scaled:
  -             scaled.backward()
  -         opt.step()
  +         scaler.scale(loss).backward()
  +         scaler.step(opt)
  +         scaler.update()
        LAST

    main()
    """)
GUIDE, STEP, LAST = 14, 35, 40
WRAPPED = "whole = Guided(net, guide)"


def _found(
    run: str, level: str = '"O2"', *, given: str = "pass", made: str = "pass", model: str = "net", last: str = "pass"
) -> list[Doubt]:
    filled = {"GIVEN": given, "MADE": made, "MODEL": model, "RUN": run, "LEVEL": level, "LAST": last}
    texts = [BEFORE, AFTER]
    for name, value in filled.items():
        texts = [t.replace(name, value) for t in texts]
    return [d for d in doubts(*texts) if d.code == "AMP531"]


def test_what_a_module_was_handed_beside_the_model_was_float32() -> None:
    (told,) = _found("whole(x)", made=WRAPPED)
    assert (told.line, told.verdict) == (GUIDE, "review")
    assert told.message.startswith("self.guide runs under autocast now")


@pytest.mark.parametrize(
    ("level", "given", "made", "model"), [('"O1"', "pass", WRAPPED, "net"), ('"O2"', WRAPPED, "pass", "whole")]
)
def test_it_was_half_at_o1_and_in_a_module_that_apex_was_given(level: str, given: str, made: str, model: str) -> None:
    assert _found("whole(x)", level, given=given, made=made, model=model) == []


def test_a_network_is_one_whatever_its_name() -> None:
    (told,) = _found("(features(net(x)) - features(x)).abs().mean()")
    assert (told.line, told.verdict) == (STEP, "review")
    assert told.message.startswith("features was not given to amp.initialize: O2 and O3 left it in float32")


def test_an_averaged_model_is_a_network_and_no_optimizer() -> None:
    (told,) = _found("net(x).mean()", '"O1"', made="swa = AveragedModel(net)", last="print(swa(x))")
    assert (told.line, told.verdict) == (LAST, "review")
    assert told.message.startswith("swa ran in half precision under Apex")
