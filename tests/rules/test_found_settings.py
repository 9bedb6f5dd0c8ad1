"""A loss scale that is an item of settings which may lack it: it is read where a test has found it, as it was."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files

MODEL = """
    import torch

    class Model:
        def __init__(self, params):
            self.net = torch.nn.Linear(2, 2)
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
            self.use_amp = {kept}
            if {asked}:
                from apex import amp
                self.amp = amp
                self.net, self.optimizer = amp.initialize(
                    self.net, self.optimizer, opt_level="O1", loss_scale=params["amp"]["loss_scale"]
                )

        def train_step(self, x):
            self.optimizer.zero_grad()
            loss = self.net(x).sum()
            if self.use_amp:
                with self.amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()
"""


@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        ('"amp" in params', "self.use_amp"),
        ('not params.get("plain") and "amp" in params', "self.use_amp"),
        ('"amp" in params', '"amp" in params'),
    ],
)
def test_it_is_read_where_it_was_found(kept: str, asked: str) -> None:
    after = check_files({"model.py": MODEL.replace("{kept}", kept).replace("{asked}", asked)})["model.py"]
    made: dict[str, object] = {}
    exec(after, made)
    model = made["Model"]
    model({}).train_step(__import__("torch").ones(1, 2))  # type: ignore[operator]
