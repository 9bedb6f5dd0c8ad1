"""Programs that scale losses for the gradients of inputs, and step nothing: their scale never changes."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of

ATTACK = {
    "before": """
        from apex import amp

        def attack(model, x, optimizer):
            loss = model(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            return x + x.grad.sign()
        """,
    "after": """
        import torch

        def attack(model, x, scaler):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).sum()
            scaler.scale(loss).backward()
            return x + x.grad.sign()
        """,
}
SCRIPT = {
    "before": """
        import torch
        from apex import amp
        from attack import attack

        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        attack(model, torch.ones(1, 2, requires_grad=True), optimizer)
        STEP
        """,
    "after": """
        import torch
        from attack import attack

        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda"ENABLED)
        attack(model, torch.ones(1, 2, requires_grad=True), scaler)
        STEP
        """,
}
STEPS = ("optimizer.step()", "scaler.step(optimizer)\n        scaler.update()")


@pytest.mark.parametrize(
    ("steps", "enabled", "told"), [(("", ""), "", True), (STEPS, "", False), (("", ""), ", enabled=False", False)]
)
def test_a_script_that_never_updates_the_scale(steps: tuple[str, str], enabled: str, told: bool) -> None:
    texts = []
    for state, step in zip(("before", "after"), steps, strict=True):
        evaluation = SCRIPT[state].replace("STEP", step).replace("ENABLED", enabled)
        training = SCRIPT[state].replace("STEP", STEPS[state == "after"]).replace("ENABLED", "")
        texts.append({"attack.py": ATTACK[state], "evaluate.py": evaluation, "train.py": training})
    found = [d for d in doubts_of(*texts) if d.code == "AMP241"]
    assert [(d.path, d.verdict) for d in found] == [("attack.py", "review")] * told
    assert all("no run of evaluate.py comes" in d.message for d in found)
