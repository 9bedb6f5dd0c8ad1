"""Trainers that wrap their optimizers: what tells where a model was half, and when their scaler is there."""

from __future__ import annotations

from tests.rules.helpers import check_files, rewrite_files

MAIN = """
    from halving import network_to_half
    from trainer import Pair, Single
    from project import build

    def main(args):
        if args.single:
            model = build(args)
        else:
            one, two = build(args)
        if args.fp16:
            if args.single:
                model = network_to_half(model)
            else:
                one = network_to_half(one)
                two = network_to_half(two)
        trainer = Single(model, args) if args.single else Pair(one, two, args)
        trainer.train()
    """
HALVING = """
    def network_to_half(network):
        return network.half()
    """
SERVE = """
    from halving import network_to_half
    from project import build

    def serve(args):
        return network_to_half(build(args))(args.inputs)
    """
TRAINER = """
    import torch
    from apex.fp16_utils import FP16_Optimizer

    class Trainer:
        def __init__(self, args):
            self.args = args

        def wrap(self, params):
            optimizer = torch.optim.SGD(params, lr=0.1)
            if self.args.fp16:
                optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
            return optimizer

        def optimize(self, loss):
            if self.args.fp16:
                self.optimizer.backward(loss)
            else:
                loss.backward()
            self.optimizer.step()

    class Single(Trainer):
        def __init__(self, model, args):
            self.model = model
            self.args = args
            self.optimizer = self.wrap(model.parameters())
            super().__init__(args)

        def train(self):
            for x in self.args.loader:
                self.optimize(self.model(x))

    class Pair(Trainer):
        def __init__(self, one, two, args):
            self.one = one
            self.two = two
            self.args = args
            self.optimizer = self.wrap([*one.parameters(), *two.parameters()])
            super().__init__(args)

        def train(self):
            for x in self.args.loader:
                self.optimize(self.two(self.one(x)))
    """
FILES = {"main.py": MAIN, "halving.py": HALVING, "serve.py": SERVE, "trainer.py": TRAINER}


def test_a_setting_that_another_object_keeps_is_the_same_condition() -> None:
    texts = check_files(FILES)
    assert "half" not in texts["main.py"]
    assert "half()" in texts["halving.py"]  # the other program trains nothing
    assert texts["serve.py"].count("network_to_half") == 2


def test_another_setting_of_the_same_object_is_another_condition() -> None:
    results = rewrite_files({**FILES, "main.py": MAIN.replace("args.fp16", "args.half")})
    (told,) = {f.message for r in results.values() for f in r.findings if f.code == "AMP720"}
    assert "made half where" in told
    assert "args.half" in told


def test_a_scaler_of_a_constructor_that_runs_its_bases_last_stays() -> None:
    """A disabled one at the end of the base's would take its place."""
    text = check_files(FILES)["trainer.py"]
    assert text.count("torch.amp.GradScaler(") == 1
    assert "enabled=False" not in text


def test_constructors_that_differ_in_when_the_base_runs() -> None:
    line = "            self.optimizer = self.wrap(model.parameters())\n"
    base = "            super().__init__(args)\n"
    results = rewrite_files({**FILES, "trainer.py": TRAINER.replace(line + base, base + line, 1)})
    told = [f.message for f in results["trainer.py"].findings if f.status == "manual"]
    assert any("before the constructor of the base runs" in message for message in told)
