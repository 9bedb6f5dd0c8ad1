"""Two classes with a base in common are two objects: what one keeps has to be handed to the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

PROGRAM = """
import json

import torch
from apex import amp


class Base:
    def train(self, steps):
        for _ in range(steps):
            self.run_step()

    def run_step(self):
        raise NotImplementedError


class Plain(Base):
    def __init__(self, model, data, optimizer):
        super().__init__()
        self.model = model
        self.data = data
        self.optimizer = optimizer

    def run_step(self):
        loss = torch.nn.functional.mse_loss(self.model(self.data[0]), self.data[1])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Mixed(Plain):
    def run_step(self):
        loss = torch.nn.functional.mse_loss(self.model(self.data[0]), self.data[1])
        self.optimizer.zero_grad()
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.optimizer.step()
        self.last = loss.item()


class Runner(Base):
    def __init__(self, model, data, optimizer, fp16=True):
        kept = dict(optimizer=optimizer)
        if fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            kept.update(dict(amp=amp))
        self.stepper = (Mixed if fp16 else Plain)(model, data, optimizer)
        self.kept = kept

    def run_step(self):
        self.stepper.run_step()


torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
data = torch.ones(3, 2), torch.zeros(3, 1)
runner = Runner(model, data, torch.optim.SGD(model.parameters(), lr=0.1))
runner.train(2)
plain = Runner(model, data, torch.optim.SGD(model.parameters(), lr=0.1), fp16=False)
plain.train(1)
print(json.dumps([sorted(runner.kept), runner.stepper.last, sorted(plain.kept)]))
"""


def test_the_scaler_is_handed_to_the_object_that_steps(tmp_path: Path) -> None:
    texts = check_files({"train.py": PROGRAM}, device="cpu")
    assert "(Mixed if fp16 else Plain)(model, data, optimizer, scaler)" in texts["train.py"]
    assert "def __init__(self, model, data, optimizer, scaler):" in texts["train.py"]
    kept, loss, plain = run_files(tmp_path, texts, "train.py")
    assert kept == ["optimizer", "scaler"]
    assert plain == ["optimizer"]
    assert 0 < loss < 10


TRANSLATOR = """
class Translator:
    def __init__(self, model):
        self.model = model

    def translate(self, x):
        return self.model.encode(x)
"""
FIELDS = """
import torch
from apex import amp
from translator import Translator


class Learner:
    def __init__(self, model, data):
        self.model = model
        self.data = data


class Classifier(Learner):
    def __init__(self, model, data, fp16=True):
        super().__init__(model, data)
        self.fp16 = fp16

    def find(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        if self.fp16:
            self.model, optimizer = amp.initialize(self.model, optimizer, opt_level="O1")
        for x, y in self.data:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            optimizer.zero_grad()
            if self.fp16:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()


class Summarizer(Learner):
    def __init__(self, model, data):
        super().__init__(model, data)
        self.predictor = Translator(self.model)

    def validate(self):
        return [self.model(x) for x, _ in self.data]
"""


def test_a_field_of_a_base_is_another_variable_in_an_object_of_another_class() -> None:
    """A model that never meets initialize ran in float32, whatever class its holder has in common with another."""
    texts = check_files({"learners.py": FIELDS, "translator.py": TRANSLATOR})
    assert texts["learners.py"].count("torch.autocast(") == 1
    assert "autocast" not in texts["learners.py"].split("class Summarizer")[1] + texts["translator.py"]


def test_objects_of_both_classes_that_are_given_one_model() -> None:
    """What one of them sets up the other one runs."""
    main = "\n\ndef main(model, data):\n    Classifier(model, data).find()\n    print(Summarizer(model, data).validate())\n"
    results = rewrite_files({"learners.py": FIELDS + main, "translator.py": TRANSLATOR})
    told = {f.code: f.line for f in results["learners.py"].findings}
    assert told["AMP502"] == FIELDS.count("\n", 0, FIELDS.index("[self.model(x)"))


def test_what_scales_in_a_sibling_that_nothing_sets_up_holds_back_no_other() -> None:
    base = """
        class Agent:
            def __init__(self):
                self.history = []

            def run(self, batches):
                for x, y in batches:
                    self.history.append(self.step(x, y))
        """
    agent = """
        import torch
        from apex import amp
        from base import Agent


        class {name}(Agent):
            def __init__(self):
                super().__init__()
                self.model = torch.nn.Linear(2, 1)
                self.{optimizer} = torch.optim.SGD(self.model.parameters(), lr=0.1)
                {setup}

            def step(self, x, y):
                self.{optimizer}.zero_grad()
                loss = (self.model(x) - y).pow(2).mean()
                with amp.scale_loss(loss, self.{optimizer}) as scaled_loss:
                    scaled_loss.backward()
                self.{optimizer}.step()
                return loss.item()
        """
    setup = 'self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")'
    main = (
        "from one import One\nfrom two import Two\nfrom bare import Bare\n\nAGENTS = {'1': One, '2': Two, '3': Bare}\n"
    )
    files = {
        "base.py": base,
        "one.py": agent.format(name="One", optimizer="optimizer", setup=setup),
        "two.py": agent.format(name="Two", optimizer="optimizer", setup=setup),
        "bare.py": agent.format(name="Bare", optimizer="gen_optimizer", setup="self.level = 'O1'"),
        "main.py": main,
    }
    results = rewrite_files(files)
    for name in ("one.py", "two.py"):
        assert not [f for f in results[name].findings if f.status == "manual"]
        assert "self.scaler.scale(loss).backward()" in (results[name].after or "")
    (left,) = [f for f in results["bare.py"].findings if f.status == "manual"]
    assert "no amp.initialize is given self.gen_optimizer" in left.message


def test_a_field_that_two_siblings_have_from_one_base_is_two_optimizers() -> None:
    base = """
        class Agent:
            optimizer = None
        """
    agent = """
        import torch
        from apex import amp
        from base import Agent


        class {name}(Agent):
            def __init__(self):
                self.model = torch.nn.Linear(2, 1)
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                {setup}

            def step(self, x, y):
                self.optimizer.zero_grad()
                loss = (self.model(x) - y).pow(2).mean()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                torch.nn.utils.clip_grad_norm_(amp.master_params(self.optimizer), 1.0)
                self.optimizer.step()
        """
    setup = 'self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")'
    bare = agent.format(name="Bare", setup="self.level = 'O1'")
    files = {
        "base.py": base,
        "one.py": agent.format(name="One", setup=setup),
        "two.py": agent.format(name="Two", setup=setup),
        "bare.py": bare,
        "main.py": "from one import One\nfrom two import Two\nfrom bare import Bare\n\nAGENTS = [One(), Two(), Bare()]\n",
    }
    results = rewrite_files(files)
    for name in ("one.py", "two.py"):
        assert not [f for f in results[name].findings if f.status == "manual"]
        assert "self.scaler.unscale_(self.optimizer)" in (results[name].after or "")
    assert results["bare.py"].after is None


NO_MASTERS = "at O3 the half weights were stepped by their own gradients, unscaled"
MASTERS = "at {} the float32 masters of half weights, which get gradients from amp.scale_loss alone, were not stepped"
CASTS = "at O1 only the casts were Apex's, at O0 amp did nothing; scale"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ('"O2"', f"backward: {MASTERS.format('O2')}; scale"),
        ('"O3"', f"backward: {NO_MASTERS}; scale"),
        ('"O3", master_weights=True', f"backward: {MASTERS.format('O3')}; scale"),
        ("args.level", f"backward: {NO_MASTERS}, {MASTERS.format('O2')}, {CASTS}"),
        (
            "args.level, master_weights=args.kept",
            f"{MASTERS.format('O2 and O3')} where master_weights has them made, {CASTS}",
        ),
    ],
)
def test_an_optimizer_that_steps_after_a_plain_backward_is_told_so(asked: str, told: str) -> None:
    program = f"""
        import argparse
        import torch
        from apex import amp

        def prepare(model, args):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            return amp.initialize(model, optimizer, opt_level={asked})

        def train(x, y, args):
            model, optimizer = prepare(torch.nn.Linear(2, 1), args)
            loss = (model(x) - y).pow(2).mean()
            loss.backward()
            optimizer.step()

        parser = argparse.ArgumentParser()
        parser.add_argument("--level", default="O0")
        parser.add_argument("--kept", action="store_true")
        """
    (found,) = [f for f in rewrite_files({"train.py": program})["train.py"].findings if f.status == "manual"]
    assert "which train.py:13 steps after a plain backward" in found.message
    assert told in found.message


@pytest.mark.parametrize("kept", ['["steps_a", "steps_b"]', "options.names"])
@pytest.mark.parametrize("names", [("steps_a", "steps_b"), ("netA_optimizer", "netB_optimizer")])
def test_a_list_that_getattr_fills_may_hold_the_optimizers_of_a_subclass(kept: str, names: tuple[str, str]) -> None:
    base = """
        import options
        from apex import amp


        class Base:
            def _set_up(self):
                models, optimizers = [], []
                for name in self.model_names:
                    models.append(getattr(self, name))
                for name in self.optimizer_names:
                    optimizers.append(getattr(self, name))
                models, optimizers = amp.initialize(models, optimizers, opt_level="O1", num_losses=2)
        """
    train = f"""
        import options
        import torch
        from apex import amp
        from base import Base


        class Pair(Base):
            def __init__(self):
                self.a, self.b = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
                self.model_names = ["a", "b"]
                self.steps_a = torch.optim.SGD(self.a.parameters(), lr=0.1)
                self.steps_b = torch.optim.SGD(self.b.parameters(), lr=0.1)
                self.optimizer_names = {kept}
                self._set_up()

            def step(self, x, y):
                self.steps_a.zero_grad()
                loss = (self.a(x) - y).pow(2).mean()
                with amp.scale_loss(loss, self.steps_a, loss_id=0) as scaled_loss:
                    scaled_loss.backward()
                self.steps_a.step()
                self.steps_b.zero_grad()
                loss = (self.b(x) - y).pow(2).mean()
                with amp.scale_loss(loss, self.steps_b, loss_id=1) as scaled_loss:
                    scaled_loss.backward()
                self.steps_b.step()


        Pair().step(torch.ones(1, 2), torch.ones(1, 1))
        """
    for old, new in zip(("steps_a", "steps_b"), names, strict=True):
        train = train.replace(old, new)
    texts = check_files(
        {"base.py": base, "train.py": train, "options.py": "import json\nnames = json.load(open('a'))\n"}
    )
    assert "amp.initialize" not in texts["base.py"]
    assert "self.scaler.scale(loss).backward()" in texts["train.py"]
