"""Reads that left the test they stood under, attributes of other objects, half tensors that are stepped: AMP131, AMP534."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts, doubts_of

BEFORE = """
import torch
from apex import amp

class Trainer:
    def __init__(self, config):
        self.config = config

    def fit(self, model, optimizer):
        if GUARD:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=READ)
        for x in loader:
            loss = model(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
"""
AFTER = """
import torch

class Trainer:
    def __init__(self, config):
        self.config = config

    def fit(self, model, optimizer):
        NOW
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
                loss = model(x).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
"""
GUARDS = [
    ("'amp' in self.config", "self.config['amp']['scale']"),
    ("'amp' in self.config.keys()", "self.config['amp']['scale']"),
    ("self.config.amp is not None", "self.config.amp.scale"),
    ("hasattr(self.config, 'amp')", "self.config.amp.scale"),
    ("self.config.get('amp')", "self.config['amp']['scale']"),
]


def moved(guard: str, read: str, now: str) -> list[Doubt]:
    before = BEFORE.replace("GUARD", guard).replace("READ", read)
    after = AFTER.replace("NOW", now.replace("GUARD", guard).replace("READ", read))
    return [d for d in doubts(before, after) if d.code == "AMP131"]


@pytest.mark.parametrize(("guard", "read"), GUARDS)
def test_a_read_that_left_its_test(guard: str, read: str) -> None:
    now = "scale = READ\n        scaler = torch.amp.GradScaler(init_scale=scale, enabled=bool(GUARD))"
    (doubt,) = moved(guard, read, now)
    assert doubt.verdict == "refuse"
    assert read.rpartition("[" if read.endswith("]") else ".")[0] in doubt.message


@pytest.mark.parametrize(("guard", "read"), GUARDS)
def test_a_read_that_is_tested_still(guard: str, read: str) -> None:
    now = "scale = READ if GUARD else 1.0\n        scaler = torch.amp.GradScaler(init_scale=scale, enabled=bool(GUARD))"
    assert not moved(guard, read, now)
    now = "scaler = torch.amp.GradScaler(enabled=bool(GUARD) and READ > 0)"
    assert not moved(guard, read, now)
    now = "if not (GUARD):\n            return\n        scaler = torch.amp.GradScaler(init_scale=READ)"
    assert not moved(guard, read, now)


def test_what_was_read_without_a_test_before_may_be() -> None:
    before = BEFORE.replace("GUARD", "'amp' in self.config").replace("READ", "self.config['amp']['scale']")
    before = before.replace("        for x in", "        print(self.config['amp'])\n        for x in")
    after = AFTER.replace("NOW", "scaler = torch.amp.GradScaler(init_scale=self.config['amp']['scale'])")
    after = after.replace("        for x in", "        print(self.config['amp'])\n        for x in")
    assert not [d for d in doubts(before, after) if d.code == "AMP131"]


RUNNER = """
import torch

class Trainer:
    def __init__(self, model):
        self.model = model
        INIT

    def run_steps(self, optimizer):
        self.scaler = torch.amp.GradScaler()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.model(x).sum()
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()

class Predictor:
    def run(self, scaler):
        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
            return model(x)

class Runner:
    def __init__(self, model):
        self.trainer = Trainer(model)
        self.predictor = Predictor()

    def run_training(self):
        self.trainer.run_steps(optimizer)

    def run_prediction(self):
        self.predictor.run(self.trainer.scaler)
"""
RUNNER_BEFORE = """
import torch
from apex import amp

class Trainer:
    def __init__(self, model):
        self.model = model
        INIT

    def run_steps(self, optimizer):
        self.model, optimizer = amp.initialize(self.model, optimizer, opt_level="O1")
        loss = self.model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()

class Predictor:
    def run(self):
        return model(x)

class Runner:
    def __init__(self, model):
        self.trainer = Trainer(model)
        self.predictor = Predictor()

    def run_training(self):
        self.trainer.run_steps(optimizer)

    def run_prediction(self):
        self.predictor.run()
"""
SCRIPT = """
import package

def main(args):
    runner = package.steps.Runner(model)
    RUN

main(args)
"""


def held(run: str, init: str = "pass") -> list[Doubt]:
    init_ = "from package import steps_v1 as steps\n"
    files = {"package/__init__.py": init_, "package/steps_v1.py": RUNNER_BEFORE.replace("INIT", "pass")}
    if run:
        files["run.py"] = SCRIPT.replace("RUN", run.replace("\n", "\n    "))
    found = doubts_of(files, {"package/steps_v1.py": RUNNER.replace("INIT", init)})
    return [d for d in found if "trainer.scaler" in d.message]


def test_an_object_whose_attribute_another_run_assigns() -> None:
    (doubt,) = held("if args.train:\n    runner.run_training()\nif args.predict:\n    runner.run_prediction()")
    assert doubt.verdict == "refuse"
    assert "predict and not train" in doubt.message


def test_an_object_that_always_has_it() -> None:
    assert not held("runner.run_training()\nrunner.run_prediction()")
    assert not held("if args.train:\n    runner.run_training()\n    runner.run_prediction()")
    assert not held("if args.predict:\n    runner.run_prediction()", init="self.scaler = torch.amp.GradScaler()")


def test_a_method_that_nobody_in_sight_calls() -> None:
    (doubt,) = held("")
    assert doubt.verdict == "review"


LEAF = """
import torch
from apex import amp

dtype = torch.half if args.amp else torch.float
x = torch.randn(3, 4, requires_grad=True, dtype=DTYPE)MORE
optimizer = torch.optim.Adam([x], lr=0.1)
if args.amp:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
loss = model(x).sum()
if args.amp:
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
else:
    loss.backward()
optimizer.step()
"""
LEAF_NOW = """
import torch

dtype = torch.half if args.amp else torch.float
x = torch.randn(3, 4, requires_grad=True, dtype=DTYPE)MORE
optimizer = torch.optim.Adam([x], lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
    loss = model(x).sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
"""


def leaves(dtype: str, more: str = "") -> list[str]:
    before, after = (t.replace("DTYPE", dtype).replace("MORE", more) for t in (LEAF, LEAF_NOW))
    return [d.verdict for d in doubts(before, after) if d.code == "AMP534"]


def test_a_half_tensor_that_the_optimizer_steps() -> None:
    assert leaves("dtype") == ["refuse"]
    assert leaves("torch.float16") == ["refuse"]
    assert leaves("torch.float32", ".half()") == ["refuse"]
    assert leaves("torch.float32", ".float().half()") == ["refuse"]


def test_a_tensor_that_is_only_rounded_to_half_is_float32() -> None:
    assert not leaves("torch.float32", ".half().float()")
    assert not leaves("torch.half", ".float().cuda()")


def test_a_tensor_that_is_half_only_without_the_scaler() -> None:
    assert not leaves("torch.float32 if args.amp else torch.half")
    assert not leaves("torch.float32")


def written(write: str) -> list[str]:
    """The same where a function trains the tensor, whose first line is given."""
    before, after = (t.replace("DTYPE", "dtype").replace("MORE", "") for t in (LEAF, LEAF_NOW))
    texts = []
    for text in (before, after):
        above, optimizer, below = text.partition("optimizer = torch.optim.Adam([x], lr=0.1)\n")
        made, call, steps = below.partition("loss = model" if text is before else "with torch.autocast")
        body = "".join(f"    {line}\n" for line in f"{write}\n{call}{steps}".splitlines())
        function = "def fit(model, optimizer, x" + (", scaler" if text is after else "") + f"):\n{body}\n"
        handed = "fit(model, optimizer, x" + (", scaler)" if text is after else ")")
        texts.append(f"{above.replace('dtype =', function + chr(10) + 'dtype =', 1)}{optimizer}{made}{handed}\n")
    return [d.verdict for d in doubts(*texts) if d.code == "AMP534"]


def test_what_is_written_to_a_half_tensor_before_it_is_stepped() -> None:
    assert written("pass") == ["refuse"]
    assert not written("x.data = torch.randn(3, 4, device='cuda')")
    assert not written("x.data = x.data.float()")
    assert written("x.data = torch.randn(3, 4, dtype=torch.half)") == ["refuse"]
    assert written("if args.again:\n    x.data = torch.randn(3, 4)") == ["refuse"]
    assert written("x.data = torch.randn(3, 4)\nx.data = x.data.half()") == ["refuse"]
    assert written("y = torch.ones(3)\ny.data = torch.randn(3, 4)") == ["refuse"]


def test_a_half_leaf_whose_data_are_float32_is_stepped() -> None:
    """What the silence rests on."""
    torch = pytest.importorskip("torch")
    x = torch.ones(2, dtype=torch.half, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    optimizer = torch.optim.SGD([x], lr=0.1)
    x.data = torch.ones(2)
    scaler.scale(x.sum()).backward()
    scaler.step(optimizer)
    assert x.tolist() == pytest.approx([0.9, 0.9])


def test_gradscaler_refuses_half_leaves() -> None:
    """What the refusal rests on."""
    torch = pytest.importorskip("torch")
    x = torch.ones(2, dtype=torch.half, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    optimizer = torch.optim.SGD([x], lr=0.1)
    scaler.scale(x.float().sum()).backward()
    with pytest.raises(ValueError, match="FP16 gradients"):
        scaler.step(optimizer)


MAKER = """
import torch
from apex.fp16_utils import FP16_Optimizer

def build(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = FP16_Optimizer(optimizer)
    return optimizer

def train(model, optimizer):
    optimizer.backward(model(x).sum())
    optimizer.step()
"""
MAKER_NOW = """
import torch

def build(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    return RETURN

def train(model, optimizer, scaler):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def test_a_scaler_that_reaches_nobody() -> None:
    lost = [d for d in doubts(MAKER, MAKER_NOW.replace("RETURN", "optimizer")) if "handed to nobody" in d.message]
    assert [d.verdict for d in lost] == ["review"]
    kept = doubts(MAKER, MAKER_NOW.replace("RETURN", "optimizer, scaler"))
    assert not [d for d in kept if "handed to nobody" in d.message]
