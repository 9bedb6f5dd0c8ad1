"""A value of a region that is off in every run which comes there is float32, as it was."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
    import torch
    from elsewhere import pool
    {apex}

    def features(model, batches, source, use_amp=False):
        for x in batches:
            if source:
                {first}
                kept = pool(out)
            else:
                {second}

    def main(model, batches):
        features(model, batches, source=True{early})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        {prepared}
        for x in batches:
            {loss}
            {backward}
        features(model, batches, source={later}{given})

    if __name__ == "__main__":
        main(torch.nn.Linear(4, 2).cuda(), [torch.ones(2, 4).cuda()])
    """
APEX = {
    "apex": "from apex import amp",
    "first": "out = model(x)",
    "second": "out = model(x)",
    "early": "",
    "given": "",
    "prepared": 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")',
    "loss": "loss = model(x).sum()",
    "backward": "with amp.scale_loss(loss, optimizer) as scaled:\n                scaled.backward()\n            optimizer.step()",
}
REGION = 'with torch.autocast("cuda", dtype=torch.float16{}):\n                {}{}'
ON = ", enabled=use_amp"
NATIVE = {
    "apex": "",
    "first": REGION.format(ON, "    ", "out = model(x)"),
    "second": REGION.format(ON, "    ", "out = model(x)"),
    "early": "",
    "given": ", use_amp=True",
    "prepared": 'scaler = torch.amp.GradScaler("cuda")',
    "loss": REGION.format("", "", "loss = model(x).sum()"),
    "backward": "scaler.scale(loss).backward()\n            scaler.step(optimizer)\n            scaler.update()",
}


@pytest.mark.parametrize(
    ("later", "early", "told"), [("False", "", False), ("True", "", True), ("False", ", use_amp=True", True)]
)
def test_what_no_run_makes_half_is_not_told(later: str, early: str, told: bool) -> None:
    before = PROGRAM.format(later=later, **APEX)
    after = PROGRAM.format(later=later, **{**NATIVE, "early": early})
    found = [d for d in doubts(before, after) if d.code == "AMP535" and "pool(out)" in d.message]
    assert bool(found) is told
