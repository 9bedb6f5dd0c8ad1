"""Methods of a model that an evaluation runs where no switch can be seen; files that work with another framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import rewrite_files, run_files

TRAIN = """
    import torch
    from apex import amp
    from segment import Segment
    from settings import args, loader, Net

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
    print('{"dtype": "%s"}' % Segment(model)(loader[0][0]).dtype)
    """
SEGMENT = """
    from mmlib import Base


    class Segment(Base):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def encode(self, x):
            return self.model.encode_image(x)
    """
SETTINGS = """
    import torch
    from types import SimpleNamespace

    args = SimpleNamespace(fp16=True)
    loader = [(torch.randn(4, 3), torch.randn(4, 2))]


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def encode_image(self, x):
            return self.layer(x)

        def forward(self, x):
            return self.encode_image(x)

    """
LIBRARY = """
class Base:
    def __call__(self, x):
        return self.encode(x)
"""


def test_an_evaluation_by_another_method_is_told_and_no_refusal(tmp_path: Path) -> None:
    results = rewrite_files({"train.py": TRAIN, "segment.py": SEGMENT, "settings.py": SETTINGS}, device="cpu")
    assert results["train.py"].after is not None
    assert results["segment.py"].after is None
    (told,) = results["segment.py"].findings
    assert (told.code, told.review) == ("AMP502", "review")
    assert "self.model.encode_image runs in float32" in told.message
    texts = {name: r.before if r.after is None else r.after for name, r in results.items()}
    texts["mmlib.py"] = LIBRARY
    assert run_files(tmp_path, texts, "train.py") == {"dtype": "torch.float32"}


@pytest.mark.parametrize("framework", ["tensorflow", "mindspore"])
def test_a_trainer_of_another_framework_needs_no_scaler(framework: str) -> None:
    other = f"""
        import {framework} as other
        from segment import Segment

        class Trainer:
            def fit(self, loss):
                optimizer = self.make(optimizer=True)
                self.lr = optimizer.lr
                optimizer.step(loss)

            def make(self, optimizer):
                return other.Optimizer(optimizer)
        """
    files = {"train.py": TRAIN.replace("    RUN[0](Segment(model), loader[0][0])\n", ""), "other.py": other}
    results = rewrite_files({**files, "segment.py": "import train\n" + "Segment = object\n"})
    assert results["train.py"].after is not None
    assert results["other.py"].after is None
    assert not results["other.py"].findings
