"""What is said of a function that needs the scaler where no call is known to be one of its (AMP213, AMP227)."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

TRAINER = """
    import torch
    from apex import amp

    class Trainer:
        def discriminate(self, x, model, optimizer):
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
    """
SUIT = """
    import importlib
    import torch
    from apex import amp

    class Suit:
        def __init__(self, trainer, model):
            self.trainer = trainer
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

        def epoch(self, loader):
            for x in loader:
                CALL

    def main(loader, name):
        trainer = getattr(importlib.import_module(name), "Trainer")()
        Suit(trainer, torch.nn.Linear(4, 4).cuda()).epoch(loader)
    """


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            "self.trainer.discriminate(x, self.model, self.optimizer)",
            "discriminate needs the scaler, and whether self.trainer.discriminate (suit.py:13) calls it is not seen",
        ),
        ("self.trainer.run(x)", "discriminate needs the scaler, but nothing in sight calls it with one"),
        (
            "self.trainer.discriminate(x, 1, 2, 3)",
            "discriminate needs the scaler, but nothing in sight calls it with one",
        ),
    ],
)
def test_a_call_by_that_name_of_what_is_not_seen_is_named(call: str, said: str) -> None:
    results = rewrite_files({"trainer.py": TRAINER, "suit.py": SUIT.replace("CALL", call)})
    told = [f.message for r in results.values() for f in r.findings if f.code in ("AMP213", "AMP227")]
    assert any(said in message for message in told), told
