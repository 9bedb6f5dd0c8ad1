"""Plain backwards of programs at O1 whose steps stand elsewhere: in a class that keeps the optimizer, beside other classes and
other scripts."""

from __future__ import annotations

from tests.rules.helpers import rewrite, rewrite_files

LOOP = """
    import torch
    from apex import amp

    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {above}
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        {backward}
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()
"""

WRAPPED = """
    import torch


    class Optimizer:
        def __init__(self, parameters, name, lr):
            kind = getattr(torch.optim, name)
            self.kept = kind(parameters, lr=lr)

        def step(self):
            self.kept.step()

        def clear(self):
            self.kept.zero_grad()


    class Base:
        def __init__(self, args):
            self.args = args

        def set_up(self):
            if self.args.amp:
                from apex import amp

                self.amp_lib = amp
                self.model, self.optimizer.kept = self.amp_lib.initialize(
                    self.model, self.optimizer.kept, opt_level="O1"
                )

        def backward(self, loss):
            loss.backward()
            self.optimizer.step()
"""
TRAIN = """
    import torch
    from base import Base, Optimizer


    class Solver(Base):
        def make(self):
            self.model = torch.nn.Linear(2, 1).cuda()
            self.optimizer = Optimizer(self.model.parameters(), "SGD", 0.1)
            self.set_up()

        def run(self, batches):
            for x in batches:
                self.optimizer.clear()
                loss = self.model(x).sum()
                self.backward(loss)
"""
TEST = """
    import torch
    from base import Base


    class Solver(Base):
        def make(self):
            self.model = torch.nn.Linear(2, 1).cuda()

        def run(self, batches):
            with torch.no_grad():
                return [self.model(x) for x in batches]
"""
MAIN = """
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    if args.test:
        from test_it import Solver
    else:
        from train_it import Solver
    solver = Solver(args)
    solver.make()
    solver.run([])
"""


def test_a_step_of_a_class_that_keeps_the_optimizer_comes_after_the_backward_of_its_callers() -> None:
    """One that is set up by one class beside another: an object of that other one, whose methods have the same names, is none of
    a run that comes by the first."""
    results = rewrite_files({"base.py": WRAPPED, "train_it.py": TRAIN, "test_it.py": TEST, "main.py": MAIN})
    assert not [f for r in results.values() for f in r.findings if f.status == "manual" or f.code == "AMP531"]
    assert "initialize" not in (results["base.py"].after or "initialize")
    train = results["train_it.py"].after
    assert train is not None
    assert "with torch.autocast(" in train
    assert "enabled=self.args.amp)" in train
    assert results["test_it.py"].after is None


def test_a_step_whose_callers_run_no_backward_is_not_taken_for_a_plain_one() -> None:
    base = WRAPPED.replace("            loss.backward()\n", "")
    results = rewrite_files({"base.py": base, "train_it.py": TRAIN, "main.py": MAIN.replace("test_it", "train_it")})
    assert [f.code for r in results.values() for f in r.findings if f.status == "manual"][-1:] == ["AMP116"]


def test_who_only_looks_at_an_optimizer_scales_no_loss_for_it() -> None:
    source = LOOP.format(
        above='model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', backward="loss.backward()"
    )
    source = source.replace(
        "        optimizer.step()\n", '        optimizer.step()\n    print(hasattr(optimizer, "sync"), id(optimizer))\n'
    )
    result = rewrite(source)
    assert result.status == "migrated"


def test_losses_that_another_script_scales_are_no_reason() -> None:
    other = LOOP.format(above='model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', backward="pass")
    other = other.replace(
        "        pass\n", "        with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()\n"
    )
    source = LOOP.format(
        above='model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', backward="loss.backward()"
    )
    source = source.replace("optimizer.step()", "optimizer.step()\n    helper.run(optimizer)").replace(
        "import torch\n", "import torch\n    import helper\n", 1
    )
    guard = '    if __name__ == "__main__":\n        print()\n'
    results = rewrite_files({"train.py": source + guard, "other.py": other + guard})
    (finding,) = [f for f in results["train.py"].findings if f.code == "AMP116"]
    assert "other.py" not in finding.message
