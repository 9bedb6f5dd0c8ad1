"""Models that `initialize` is given by the names of the fields that hold them: who runs them elsewhere gets a region."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

TRAINER = """
import torch
from apex import amp

class Trainer:
    BODY
    def __init__(self, params):
        self.optimizer = torch.optim.Adam(self.net.parameters())
        if params.fp16:
            self.set_up(params)

    def set_up(self, params):
        models = GIVEN
        models, self.optimizer = amp.initialize(models, self.optimizer, opt_level="O1")
        for name, model in zip(self.NAMES, models):
            setattr(self, name, model)

    def optimize(self, loss):
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.optimizer.step()

class Own(Trainer):
    def __init__(self, net, params):
        FIELD
        self.net = net
        super().__init__(params)

    def train(self, loader):
        for x, y in loader:
            self.optimize(torch.nn.functional.cross_entropy(self.net(x), y))
"""
EVALUATOR = """
import torch

class Evaluator:
    def __init__(self, trainer, data):
        self.net = trainer.net
        self.data = data

    @torch.no_grad()
    def run(self):
        return [self.net(x).argmax(1) for x in self.data]
"""
MAIN = """
import argparse
import torch
from evaluator import Evaluator
from trainer import Own

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
params = parser.parse_args()
trainer = Own(torch.nn.Linear(4, 2).cuda(), params)
trainer.train(loader)
print(Evaluator(trainer, data).run())
"""
BY_NAME = "[getattr(self, name) for name in self.NAMES]"


@pytest.mark.parametrize(
    ("given", "body", "field"),
    [
        (BY_NAME, "", 'self.NAMES = ["net"]'),
        (BY_NAME, 'NAMES = ("net",)\n', ""),
        ('[getattr(self, name) for name in ["net"]]', 'NAMES = ["net"]\n', ""),
        ('[getattr(self, "net")]', 'NAMES = ["net"]\n', ""),
    ],
)
def test_what_runs_them_in_another_file_gets_a_region(given: str, body: str, field: str) -> None:
    text = TRAINER.replace("GIVEN", given).replace("BODY", body).replace("FIELD", field)
    after = check_files({"trainer.py": text, "evaluator.py": EVALUATOR, "main.py": MAIN})
    assert "torch.autocast(" in after["evaluator.py"]
    assert "enabled=" in after["evaluator.py"]


def test_a_field_of_another_name_is_none_of_them() -> None:
    text = TRAINER.replace("GIVEN", BY_NAME).replace("BODY", "").replace("FIELD", 'self.NAMES = ["net"]')
    text = text.replace("self.net = net\n", "self.net = net\n        self.table = torch.Tensor.numpy\n")
    other = EVALUATOR.replace("trainer.net", "trainer.table")
    after = check_files({"trainer.py": text, "evaluator.py": other, "main.py": MAIN})
    assert "evaluator.py" not in after or "autocast" not in after["evaluator.py"]


BASE = """
from apex import amp

class Base:
    def __init__(self, fp16):
        self.fp16 = fp16

    def set_up(self):
        nets, solvers = [], []
        for name in self.nets:
            nets.append(getattr(self, name))
        SOLVERS
        amp.initialize(nets, solvers, opt_level="O1")
"""
PAIR = """
import torch
from apex import amp
from base import Base

class Pair(Base):
    def __init__(self, fp16, names):
        super().__init__(fp16)
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
        self.one = torch.optim.SGD(self.first.parameters(), lr=10.0)
        self.two = torch.optim.SGD(self.second.parameters(), lr=10.0)
        self.nets = ["first", "second"]
        self.names = NAMES
        if self.fp16:
            self.set_up()

    def train(self, x):
        for step in range(2):
            for solver in (self.one, self.two):
                solver.zero_grad()
            loss = torch.nn.functional.mse_loss(self.second(self.first(x)), x[:, :1]) / 100
            if self.fp16:
                with amp.scale_loss(loss, [self.one, self.two]) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.one.step()
            self.two.step()
        return [p.item() for p in self.second.parameters() for p in p.flatten()]
"""
RUN = """
import json
import torch
from pair import Pair

print(json.dumps([Pair(fp16, ["one", "two"]).train(torch.ones(4, 2)) for fp16 in (True, False)]))
"""
APPENDED = "for name in self.names:\n            solvers.append(getattr(self, name))"


@pytest.mark.parametrize(
    ("solvers", "names"),
    [
        (APPENDED, '["one", "two"]'),
        ("solvers = [getattr(self, name) for name in self.names]", '["one", "two"]'),
        ("for solver in (self.one, self.two):\n            solvers.append(solver)", "names"),
        (APPENDED, "names"),  # known when it runs
    ],
)
def test_optimizers_that_are_collected_for_initialize(tmp_path: Path, solvers: str, names: str) -> None:
    """Apex prepares them where they are, under whatever name the steps have them."""
    files = {"base.py": BASE.replace("SOLVERS", solvers), "pair.py": PAIR.replace("NAMES", names), "run.py": RUN}
    after = check_files(files, device="cpu")
    assert "self.scaler.step(self.one)" in after["pair.py"]
    mixed, plain = run_files(tmp_path, after, "run.py")
    assert mixed == pytest.approx(plain, rel=1e-2)


def test_a_field_that_a_function_gives_back_alone_or_with_the_optimizer_is_a_model() -> None:
    """`prepared(model)` for inference: what comes back whole is no optimizer, though its place is that of both."""
    trainer = """
        import torch
        from apex import amp

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 4)

            def encode(self, x):
                return self.layer(x)

        def prepared(model, *, level=None, optimizer=None):
            if level is not None:
                return amp.initialize(model, optimizer, opt_level=level)
            return model if optimizer is None else (model, optimizer)

        class Stepper:
            def __init__(self, size, optimizer):
                self.size = size
                self.optimizer = optimizer

            def step(self, loss):
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()

        class Trainer:
            def __init__(self, model, level):
                self.model = model.cuda()
                base = torch.optim.SGD(self.model.parameters(), lr=0.1)
                self.model, base = prepared(self.model, optimizer=base, level=level)
                self.optimizer = Stepper(self.model.size, base)

            def train(self, loader):
                for x, y in loader:
                    self.optimizer.step(torch.nn.functional.mse_loss(self.model.encode(x), y))

            def predict(self, x):
                return self.model.encode(x).argmax(1)
        """
    main = "import sys\nfrom trainer import Net, Trainer\n\ntrainer = Trainer(Net(), sys.argv[1])\n"
    main += "trainer.train(loader)\nprint(trainer.predict(loader[0][0]))\n"
    after = {name: r.after or r.before for name, r in rewrite_files({"trainer.py": trainer, "main.py": main}).items()}
    assert after["trainer.py"].count("torch.autocast(") == 2
