"""Methods that scale the loss and are overridden, or override: the step of their class sees scaled gradients from all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files, run_files
from tests.rules.programs import check_refused, found
from tests.rules.trained import check_trained

BASE = """
class Base:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def backward(self, loss):
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()

    def step(self, x, y):
        loss = criterion(self.model(x), y)
        self.optimizer.zero_grad()
        self.backward(loss)
        seen.append(torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.05))
        self.optimizer.step()


"""
LOOP = "\n\nfor x, y in loader:\n    trainer.step(x, y)\n"
IMPORTS = "import torch\nfrom apex import amp\n\nfrom project import criterion, loader, model, optimizer, seen\n\n"


def test_a_subclass_with_a_plain_backward_is_scaled_too() -> None:
    sub = "class Sub(Base):\n    def backward(self, loss):\n        (loss * 2).backward()\n\n\n"
    after = check_trained(BASE + sub + "trainer = Sub(model, optimizer)" + LOOP)
    assert "        self.scaler.scale(loss * 2).backward()\n" in after


def test_the_override_is_shown_for_review() -> None:
    sub = (
        "class Sub(Base):\n    def backward(self, loss):\n        loss.backward()\n\n\ntrainer = Sub(model, optimizer)"
    )
    (finding,) = found(rewrite(IMPORTS + BASE + sub + LOOP), "AMP222")
    assert finding.review == "review"


def test_a_subclass_that_calls_the_method_it_overrides_needs_nothing() -> None:
    sub = "class Sub(Base):\n    def backward(self, loss):\n        super().backward(loss * 2)\n\n\n"
    after = check_trained(BASE + sub + "trainer = Sub(model, optimizer)" + LOOP)
    assert after.count(".scale(") == 1


def test_a_subclass_with_a_step_of_its_own_stays_plain() -> None:
    sub = (
        "class Plain(Base):\n    def backward(self, loss):\n        loss.backward()\n\n"
        "    def step(self, x, y):\n        self.backward(criterion(self.model(x), y))\n        self.optimizer.step()\n\n\n"
    )
    result = rewrite(IMPORTS + BASE + sub + "trainer = Base(model, optimizer)" + LOOP)
    assert result.after is None or ".scale(loss).backward()" in result.after.partition("class Plain")[2]


def test_a_base_class_with_a_plain_backward_and_the_step_is_refused() -> None:
    program = """
class Base:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def backward(self, loss):
        loss.backward()

    def step(self, x, y):
        self.backward(criterion(self.model(x), y))
        self.optimizer.step()


class Mixed(Base):
    def __init__(self, model, optimizer):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def backward(self, loss):
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()


trainer = Mixed(model, optimizer)
"""
    check_refused(IMPORTS + program + LOOP, "AMP222")


ITERATIONS = """
    import json

    import torch
    from apex import amp


    class Trainer:
        def __init__(self, model, loader, optimizer):
            self.model, self.loader, self.optimizer = model, iter(loader), optimizer

        def run_step(self):
            losses = sum(self.model(next(self.loader)).values())
            self.optimizer.zero_grad()
            losses.backward()
            self.optimizer.step()


    class AMPTrainer(Trainer):
        def run_step(self):
            losses = sum(self.model(next(self.loader)).values())
            self.optimizer.zero_grad()
            with amp.scale_loss(losses, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()


    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x):
            return {"loss": self.layer(x).float().pow(2).mean() * 1e-3}


    def train(fp16):
        torch.manual_seed(0)
        model = Heads()
        optimizer = torch.optim.SGD(model.parameters(), lr=100.0)
        if fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        trainer = (AMPTrainer if fp16 else Trainer)(model, [torch.ones(2, 4)] * 4, optimizer)
        for _ in range(4):
            trainer.run_step()
        return model.layer.weight.sum().item()


    if __name__ == "__main__":
        print(json.dumps({"plain": train(False), "mixed": train(True)}))
"""


def test_a_whole_plain_iteration_that_is_overridden_by_a_scaling_one_stays_plain(tmp_path: Path) -> None:
    texts = check_files({"train.py": ITERATIONS}, device="cpu")
    plain, _, mixed = texts["train.py"].partition("class AMPTrainer")
    assert "        losses.backward()\n        self.optimizer.step()\n" in plain
    assert "autocast" not in plain
    assert "autocast" in mixed
    assert "scaler.scale(losses).backward()" in mixed
    assert mixed.count("scaler.step(self.optimizer)") == 1
    result = run_files(tmp_path, texts, "train.py")
    assert result["mixed"] == pytest.approx(result["plain"], rel=1e-2)
    assert result["mixed"] != result["plain"]
    findings = [f for r in rewrite_files({"train.py": ITERATIONS}).values() for f in r.findings]
    (told,) = [f for f in findings if f.code == "AMP502"]
    assert "AMPTrainer.run_step, which scales, overrides it" in told.message


def test_one_that_never_came_by_the_set_up_of_a_derived_class_is_not_told_of() -> None:
    """`AMPTrainer` sets itself up: objects of its base ran in float32 with Apex, too."""
    set_up = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    made = f"""class AMPTrainer(Trainer):
        def __init__(self, model, loader, optimizer):
            {set_up}
            super().__init__(model, loader, optimizer)

"""
    source = ITERATIONS.replace(f"        if fp16:\n            {set_up}\n", "").replace(
        "class AMPTrainer(Trainer):\n", made
    )
    assert source.count(set_up) == 1
    (result,) = rewrite_files({"train.py": source}).values()
    assert result.after is not None
    plain, _, mixed = result.after.partition("class AMPTrainer")
    assert "autocast" not in plain
    assert "autocast" in mixed
    assert not [f for f in result.findings if f.code in ("AMP502", "AMP531")]


def test_an_iteration_that_scales_and_is_overridden_by_one_that_scales_too_is_migrated() -> None:
    """The optimizer is the program's own and reads gradients in its step, which only the scaler calls."""
    iteration = """
    def step(self, x, y):
        loss = criterion(self.model(x), y){}
        self.optimizer.zero_grad()
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.optimizer.step()
"""
    source = (
        IMPORTS
        + """
class Descent(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.sub_(p.grad, alpha=0.1)


class Base:
    def __init__(self, model):
        self.model, self.optimizer = model, Descent(model.parameters())
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
"""
        + iteration.format("")
        + "\n\nclass Sub(Base):"
        + iteration.format(" * 2")
        + "\n\ntrainer = Sub(model)"
        + LOOP
    )
    after = check_files({"train.py": source})["train.py"]
    assert after.count("self.scaler.step(self.optimizer)") == 2
    assert "self.optimizer.step()" not in after


def test_an_override_of_the_method_that_steps_inherits_no_step() -> None:
    """`engine.backward(loss)` beside the base's scaled backward: what is called is no tensor, and what steps is another."""
    base = BASE.replace(
        "self.backward(loss)", "with amp.scale_loss(loss, self.optimizer) as scaled:\n            scaled.backward()"
    )
    sub = (
        "class Engine(Base):\n    def step(self, x, y):\n        loss = criterion(self.model(x), y)\n"
        "        self.model.backward(loss)\n        self.model.step()\n\n\n"
    )
    result = rewrite(IMPORTS + base + sub + "trainer = Base(model, optimizer)" + LOOP)
    assert result.after is not None
    assert "        self.model.backward(loss)\n        self.model.step()\n" in result.after
    assert not found(result, "AMP222")


APART = """
class Solver:
    def __init__(self, params):
        self.opt = torch.optim.SGD(params, lr=0.1)

    def zero_grad(self):
        self.opt.zero_grad()

    def step(self):
        self.opt.step()


class Engine:
    def __init__(self, args, model, solver):
        self.args, self.model, self.solver = args, model, solver

    def end(self):
        if self.args.apex:
            with amp.scale_loss(self.loss, self.solver.opt) as scaled_loss:
                scaled_loss.backward()
        else:
            self.loss.backward()
        self.solver.step()

    def train(self):
        for x, y in loader:
            self.solver.zero_grad()
            self.loss = criterion(self.model(x), y)
            self.end()


class Center(Engine):
    def end(self):
        self.loss.backward()
        {step}


def run(args):
    solver = Solver(model.parameters())
    network = model
    if args.apex:
        network, solver.opt = amp.initialize(network, solver.opt, opt_level="O1")
    kind = Center if args.center else Engine
    kind(args, network, solver).train()


run(parse())
"""


@pytest.mark.parametrize("step", ["self.solver.step()", "print(self.loss)\n        self.solver.step()"])
def test_an_override_is_scaled_where_another_objects_method_steps(step: str) -> None:
    """Nothing in sight says what `self.solver` is: of that name the program has one method that steps."""
    result = rewrite(IMPORTS + APART.replace("{step}", step))
    after = result.after or ""
    assert after.count("scaler.scale(self.loss).backward()") == 2, result.findings
    assert found(result, "AMP222")


def test_an_override_with_an_optimizer_of_its_own_stays_plain() -> None:
    after = rewrite(IMPORTS + APART.replace("{step}", "self.own_optimizer.step()")).after or ""
    assert "self.loss.backward()" in after.partition("class Center")[2]
