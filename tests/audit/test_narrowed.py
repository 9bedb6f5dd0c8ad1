"""A loss that the program itself makes half was half under Apex, too: its gradient is limited as it was."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
    import sys
    import torch
    from apex import amp

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = torch.nn.Linear(3, 2)

        def forward(self, mode, **kwargs):
            if mode == "fwd":
                return self.proj(kwargs["x"])
            return self.predict(**kwargs)

        def predict(self, x, y):
            scores = self.proj(x)
            loss = LOSS
            return scores, loss

    class Trainer:
        def __init__(self, level):
            self.model = Net().cuda()
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=level)

        def step(self, x, y, weight):
            self.optimizer.zero_grad()
            _, loss = self.model("predict", x=x, y=y)
            loss = SCALED
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
            self.optimizer.step()

    trainer = Trainer(sys.argv[1])
    trainer.step(torch.ones(4, 3).cuda(), torch.zeros(4).long().cuda(), 0.5)
    """
SCALE = "with amp.scale_loss(loss, self.optimizer) as scaled:\n                scaled.backward()"
CROSS = "torch.nn.functional.cross_entropy(scores.float(), y)"


@pytest.mark.parametrize(
    ("loss", "scaled", "count"),
    [
        (f"{CROSS}.type_as(scores)", "weight * loss", 0),
        (f"{CROSS}.to(scores)", "loss", 0),
        (f"{CROSS}.to(torch.float16)", "weight * loss", 0),
        (f"{CROSS}.half()", "loss / 2", 0),
        (f"{CROSS}.half()", "loss.clone()", 0),
        ("scores.max()", "loss", 1),
        ("scores.max().type_as(scores)", "loss * 2", 1),
        (CROSS, "weight * loss", 0),
    ],
)
def test_a_loss_that_the_program_makes_half_itself(loss: str, scaled: str, count: int) -> None:
    before = BEFORE.replace("LOSS", loss).replace("SCALED", scaled)
    after = before.replace("    from apex import amp\n", "").replace(SCALE, "self.scaler.scale(loss).backward()")
    region = 'with torch.autocast("cuda", dtype=torch.float16):\n                _, loss'
    after = after.replace("_, loss = self", f"{region} = self").replace(
        "self.optimizer.step()", "self.scaler.step(self.optimizer)"
    )
    made = "self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=level)"
    after = after.replace(made, 'self.scaler = torch.amp.GradScaler("cuda", enabled=level != "O0")')
    assert len([d for d in doubts(before, after) if d.code == "AMP535" and "32768" in d.message]) == count
