"""Methods of a model that an evaluation runs where no switch can be seen; files that work with another framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import rewrite_files, run_files, texts_of

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
OTHER = """
from mmlib import run
from segment import Segment
from settings import loader, Net

print('{"dtype": "%s"}' % run(Segment, Net(), loader[0][0]).dtype)
"""
LIBRARY = """
class Base:
    def __call__(self, x):
        return self.encode(x)


def run(kind, model, x):
    return kind(model)(x)
"""


def test_an_evaluation_by_another_method_is_told_and_no_refusal(tmp_path: Path) -> None:
    results = rewrite_files({"train.py": TRAIN, "segment.py": SEGMENT, "settings.py": SETTINGS}, device="cpu")
    assert results["train.py"].after is not None
    assert results["segment.py"].after is None
    (told,) = results["segment.py"].findings
    assert (told.code, told.review) == ("AMP502", "review")
    assert "self.model.encode_image runs in float32 but where what calls it is under autocast" in told.message
    texts = texts_of(results)
    texts["mmlib.py"] = LIBRARY
    assert run_files(tmp_path, texts, "train.py") == {"dtype": "torch.float16"}  # by a call that is seen, as with Apex
    texts["other.py"] = OTHER
    assert run_files(tmp_path, texts, "other.py") == {"dtype": "torch.float32"}


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


def test_branches_that_step_through_a_method_of_a_longer_file() -> None:
    """The optimizer is compared as it reads where the step is seen from, not by a line of the file that holds the step."""
    base = """
        import torch
        from apex import amp

        LINES

        class Base:
            def __init__(self, model, optimizer):
                self.model, self.optimizer = amp.initialize(model, optimizer)

            def advance(self):
                self.optimizer.step()
    """.replace("LINES", "\n".join(f"        LINE_{i} = {i}" for i in range(60)).strip())
    train = """
        import torch
        from apex import amp
        from base import Base

        class Trainer(Base):
            def run(self, batches, last):
                for x, y in batches:
                    self.optimizer.zero_grad()
                    loss = torch.nn.functional.cross_entropy(self.model(x), y)
                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                    if last:
                        torch.nn.utils.clip_grad_norm_(amp.master_params(self.optimizer), 1.0)
                        self.advance()
                    else:
                        self.advance()
    """
    results = rewrite_files({"base.py": base, "train.py": train})
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    text = results["train.py"].after or ""
    assert (
        "            if last:\n                self.scaler.unscale_(self.optimizer)\n                torch.nn" in text
    )
