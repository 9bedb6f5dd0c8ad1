"""How the scaler reaches code in other files; what is emitted is run on the CPU, where GradScaler scales as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

PARTS = """
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)]
"""


def test_an_object_that_keeps_the_state_of_amp_is_given_the_scaler(tmp_path: Path) -> None:
    """Its file never names Apex: `amp` comes in through a parameter, and through the one of a helper."""
    files = {
        "parts.py": PARTS,
        "state.py": """
            class TrainingState:
                def __init__(self, amp_state=None):
                    self.amp_state = amp_state

                def track(self, amp):
                    self._keep(amp)

                def _keep(self, amp):
                    self.amp_state = amp.state_dict()


            def loudness(amp):
                return amp.max()
        """,
        "train.py": """
            import json

            import torch
            from apex import amp

            from parts import batches, model, optimizer
            from state import TrainingState


            def main():
                global model, optimizer
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
                state = TrainingState()
                for x, y in batches:
                    loss = (model(x) - y).pow(2).mean() * 1e-4
                    optimizer.zero_grad()
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                    optimizer.step()
                    state.track(amp)
                print(json.dumps(state.amp_state))


            main()
        """,
    }
    texts = check_files(files, device="cpu")
    assert "def track(self, scaler):\n        self._keep(scaler)\n" in texts["state.py"]
    assert "def _keep(self, scaler):\n        self.amp_state = scaler.state_dict()\n" in texts["state.py"]
    assert "def loudness(amp):\n    return amp.max()\n" in texts["state.py"]
    state = run_files(tmp_path, texts, "train.py")
    assert (state["scale"], state["_growth_tracker"]) == (65536.0, 3)


FITTER = """
    import torch
    from apex import amp


    class Fitter:
        def __init__(self, model, config):
            self.model = model
            self.config = config
            self.optimizer = config.build(model.parameters())

        def fit(self, batches):
            for x, y in batches:
                self.optimizer.zero_grad()
                loss = (self.model(x).float() - y).pow(2).mean() * 1e-4
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()

        def state(self):
            return {"model": self.model.state_dict(), "amp": amp.state_dict()}
"""
FIT = """
    import argparse
    import json
    import types

    import torch
    from apex import amp
    from fitter import *
    from parts import batches, model


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true", default=True)
        args = parser.parse_args()
        config = types.SimpleNamespace(loss_scale="1024", build=lambda p: torch.optim.SGD(p, lr=0.1))
        fitter = Fitter(model, config)
        if args.fp16:
            fitter.model, fitter.optimizer = amp.initialize(
                fitter.model, fitter.optimizer, opt_level="O1", loss_scale=fitter.config.loss_scale
            )
        fitter.fit(batches)
        print(json.dumps(fitter.state()["amp"]))


    main()
"""


def test_an_object_whose_optimizer_is_initialized_from_outside_carries_the_scaler(tmp_path: Path) -> None:
    """It comes through a star import; what is read of its configuration under the switch is kept with it."""
    texts = check_files({"parts.py": PARTS, "fitter.py": FITTER, "train.py": FIT}, device="cpu")
    assert "fitter.scaler = torch.amp.GradScaler(" in texts["train.py"]
    assert "enabled=args.fp16" in texts["train.py"]
    assert "self.scaler.scale(loss).backward()" in texts["fitter.py"]
    assert "loss_scale = fitter.config.loss_scale if args.fp16 else None\n" in texts["train.py"]
    assert "self.scaler.update(self.static_loss_scale)" in texts["fitter.py"]
    assert 'fitter.state()["scaler"]' in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py")["scale"] == 1024.0


CARRIED = """
    import torch
    from framework import Model

    class Regression(Model):
        def __init__(self, params):
            super().__init__(params)
            self.amp = None

        def train_step(self, x, y):
            self.optimizer.zero_grad()
            loss = (self.network(x).float() - y).pow(2).mean() * 1e-4
            if self.amp is not None:
                with self.amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()
"""
CARRY = """
    import json
    import sys

    from framework import Model
    from parts import batches
    from regression import Regression


    def initialize_amp(model, opt_level="O1", loss_scale="dynamic"):
        from apex import amp

        model.network, model.optimizer = amp.initialize(
            model.network, model.optimizer, opt_level=opt_level, loss_scale=loss_scale
        )
        model.amp = amp


    def main():
        model = Regression({"lr": 0.1})
        if "--amp" in sys.argv:
            initialize_amp(model)
        for x, y in batches:
            model.train_step(x, y)
        print(json.dumps(model.SCALER_STATE))


    main()
"""
FRAMEWORK = """
    import torch
    from parts import model


    class Model:
        def __init__(self, params):
            self.network = model
            self.optimizer = torch.optim.SGD(model.parameters(), lr=params["lr"])
"""


def test_an_attribute_that_held_amp_or_none_holds_a_scaler_that_may_be_disabled(tmp_path: Path) -> None:
    files = {"parts.py": PARTS, "framework.py": FRAMEWORK, "regression.py": CARRIED, "train.py": CARRY}
    texts = check_files(files, device="cpu")
    assert 'self.scaler = torch.amp.GradScaler("cpu", enabled=False)\n' in texts["regression.py"]
    assert "if self.amp" not in texts["regression.py"]
    assert 'model.scaler = torch.amp.GradScaler("cpu", enabled=opt_level != "O0")\n' in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py") == {}  # nobody asked for it: disabled
    texts["train.py"] = texts["train.py"].replace('if "--amp" in sys.argv', "if True")
    assert run_files(tmp_path, texts, "train.py")["_growth_tracker"] == 3


def test_a_parameter_for_a_dynamic_scale_that_no_call_gives_is_said_to_have_no_effect() -> None:
    files = {"parts.py": PARTS, "framework.py": FRAMEWORK, "regression.py": CARRIED, "train.py": CARRY}
    found = [f for f in rewrite_files(files)["train.py"].findings if f.code == "AMP114"]
    assert [f.review for f in found] == ["review"]
    given = {**files, "train.py": CARRY.replace("initialize_amp(model)", "initialize_amp(model, loss_scale=128.0)")}
    assert "scaler.update(self.static_loss_scale)" in (rewrite_files(given)["regression.py"].after or "")


PREDICT = """
    from apex import amp
    from parts import batches, model


    def main():
        net = amp.initialize(model, opt_level="O1")
        for x, _ in batches:
            net(x)


    main()
"""


def test_another_program_that_sets_itself_up_keeps_its_own_switch() -> None:
    """Both run the model of parts.py; the flag of the training is nothing to the prediction."""
    files = {"parts.py": PARTS, "fitter.py": FITTER, "train.py": FIT, "predict.py": PREDICT}
    text = check_files(files)["predict.py"]
    assert 'with torch.autocast("cuda", dtype=torch.float16):\n            model(x)\n' in text.replace("net(", "model(")
    assert "use_amp" not in text


WRAPPED = {
    "parts.py": PARTS,
    "scaled.py": """
        import torch
        from apex import amp


        class ScaledLoss:
            def __init__(self, value, optimizer):
                self.value, self.kind = value, "mean"
                self.value = value
                self.optimizer = optimizer

            def backward(self):
                with amp.scale_loss(self.value, self.optimizer) as scaled_loss:
                    scaled_loss.backward()

            def __mul__(self, factor):
                return ScaledLoss(torch.mul(self.value, factor), self.optimizer)
        """,
    "train.py": """
        import json

        import torch
        from apex import amp
        from parts import batches, model, optimizer
        from scaled import ScaledLoss


        class Trainer:
            def __init__(self):
                self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")
                self.criterion = torch.nn.MSELoss()
                self.kinds = []

            def loss(self, x, y):
                value = self.criterion(self.model(x), y)
                self.kinds.append(str(value.dtype))
                return ScaledLoss(value, self.optimizer)

            def step(self):
                self.optimizer.step()
                self.optimizer.zero_grad()


        def none():
            return ScaledLoss(torch.ones(()), None) * 2


        trainer = Trainer()
        for x, y in batches:
            (trainer.loss(x, y) * 1e-3).backward()
            trainer.step()
        print(json.dumps({"kinds": trainer.kinds, "none": none().value.item(), **trainer.SCALER_STATE}))
        """,
}


def test_an_object_around_the_loss_is_given_the_scaler_with_the_optimizer(tmp_path: Path) -> None:
    """Where it is given None as the optimizer it is given None as the scaler; what it is given was computed as a loss."""
    texts = check_files(WRAPPED, device="cpu")
    assert "def __init__(self, value, optimizer, scaler):" in texts["scaled.py"]
    assert "return ScaledLoss(torch.mul(self.value, factor), self.optimizer, self.scaler)" in texts["scaled.py"]
    assert "self.scaler.scale(self.value).backward()" in texts["scaled.py"].replace(".float()", "")
    assert "return ScaledLoss(torch.ones(()), None, None) * 2" in texts["train.py"]
    assert (
        'with torch.autocast("cpu", dtype=torch.float16):\n            value = self.criterion(self.model(x), y)\n'
        "        self.kinds.append("
    ) in texts["train.py"]
    result = run_files(tmp_path, texts, "train.py")
    assert result["_growth_tracker"] == 3
    assert result["none"] == 2.0


def test_a_step_after_a_backward_that_may_be_such_an_objects_is_refused() -> None:
    train = WRAPPED["train.py"].replace("(trainer.loss(x, y) * 1e-3).backward()\n            trainer.step()", "pass")
    train = train.replace("def step(self):\n", "def step(self, x, y):\n                self.loss(x, y).backward()\n")
    results = rewrite_files({**WRAPPED, "train.py": train})
    assert all(r.after is None for r in results.values())
    (told,) = [f for r in results.values() for f in r.findings if f.code == "AMP307"]
    assert "ScaledLoss.backward" in told.message


# -- tests, examples and notebooks that set nothing up ---------------------------------------------------------------

LIBRARY = {
    "parts.py": PARTS,
    "engine.py": """
        import torch
        from apex import amp


        class Runner:
            def __init__(self, model, optimizer):
                self.model = model
                self.optimizer = optimizer

            def fit(self, batches):
                losses = []
                for x, y in batches:
                    loss = (self.model(x) - y).pow(2).mean() * 1e-4
                    self.optimizer.zero_grad()
                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                    self.optimizer.step()
                    losses.append(loss.item())
                return losses
    """,
    "train.py": """
        import json

        from apex import amp

        from engine import Runner
        from parts import batches, model, optimizer


        def main(model, optimizer):
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            runner = Runner(model, optimizer)
            print(json.dumps([runner.fit(batches), SCALER_STATE]))


        if __name__ == "__main__":
            main(model, optimizer)
    """,
}
PLAIN = """
    import json

    from engine import Runner
    from parts import batches, model, optimizer

    {line}
    print(json.dumps(Runner(model, optimizer).fit(batches)))
"""


def test_a_test_or_an_example_that_sets_nothing_up_need_not_hand_a_scaler_over(tmp_path: Path) -> None:
    for name in ("examples/plain.py", "tests/test_plain.py"):
        files = LIBRARY | {name: PLAIN.format(line="")}
        texts = check_files(files, device="cpu")
        engine = texts["engine.py"]
        assert "    def __init__(self, model, optimizer, *, scaler=None):\n        if scaler is None:\n" in engine
        assert '            scaler = torch.amp.GradScaler("cpu", enabled=False)\n' in engine
        assert "Runner(model, optimizer, scaler=scaler)" in texts["train.py"]
        assert "Runner(model, optimizer).fit" in texts[name]
        told = rewrite_files(files, device="cpu")["engine.py"].findings
        (left_out,) = (f.message for f in told if f.code == "AMP220" and "left out, as in" in f.message)
        assert left_out.endswith(
            "nothing that it runs is under autocast"
        )  # an object, or an evaluation, does not train
        folder = tmp_path / name.replace("/", "_")
        trained, state = run_files(folder, texts, "train.py")
        assert state["scale"] == 65536.0
        flat = {"plain.py": texts[name], "engine.py": engine, "parts.py": texts["parts.py"]}
        assert run_files(folder, flat, "plain.py") == pytest.approx(trained, rel=2e-2)


def test_an_example_that_gives_the_loop_too_little_is_handed_no_scaler_and_is_told() -> None:
    files = dict(LIBRARY)
    files["engine.py"] = """
        from apex import amp


        def fit(batches, model, optimizer):
            for x, y in batches:
                loss = (model(x) - y).pow(2).mean()
                optimizer.zero_grad()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
    """
    files["train.py"] = """
        from apex import amp

        from engine import fit
        from parts import batches, model, optimizer


        def main(model, optimizer):
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            fit(batches, model, optimizer)


        if __name__ == "__main__":
            main(model, optimizer)
    """
    files["examples/own.py"] = """
        import torch
        from apex import amp

        from engine import fit
        from parts import batches, model


        def run(network):
            adam = torch.optim.Adam(network.parameters())
            network, adam = amp.initialize(network, adam, opt_level="O1")
            fit(batches, network)


        run(model)
    """
    results = rewrite_files(files, device="cpu")
    assert results["train.py"].status == results["engine.py"].status == "migrated"
    assert "    fit(batches, network, use_amp=True)\n" in (results["examples/own.py"].after or "")
    told = [f.message for f in results["engine.py"].findings if f.code == "AMP220"]
    assert any("at examples/own.py:11 it is given too little or too much, which raises TypeError" in m for m in told)


def test_a_call_of_the_program_itself_without_a_scaler_still_holds_it_back() -> None:
    results = rewrite_files(LIBRARY | {"serve.py": PLAIN.format(line="")}, device="cpu")
    told = [f for r in results.values() for f in r.findings if f.code in ("AMP213", "AMP227")]
    assert told
    assert "scaler=None" not in (results["engine.py"].after or "")


def test_what_only_tests_call_is_given_no_parameter_that_nothing_passes() -> None:
    helper = """
        def gradients(model, x):
            loss = model(x).pow(2).mean()
            loss.backward()
            return [p.grad for p in model.parameters()]
    """
    test = """
        from helper import gradients
        from parts import batches, model


        def test_gradients():
            assert gradients(model, batches[0][0])
    """
    files = LIBRARY | {"helper.py": helper, "tests/test_gradients.py": test, "examples/plain.py": PLAIN.format(line="")}
    texts = check_files(files, device="cpu")
    assert "scaler" not in texts["helper.py"]
    assert "scaler=None" in texts["engine.py"]
