"""Training through a framework: hooks and runners of the project's own, whose callers are out of sight."""

from __future__ import annotations

from pathlib import Path

from tests.rules.helpers import check_files, rewrite_files, run_files

HOOK = """
    import torch
    from framework import Hook

    try:
        import apex
    except ImportError:
        print("apex is not installed")


    class Fp16Hook(Hook):
        def __init__(self, use_fp16=True):
            self.use_fp16 = use_fp16

        def after_iter(self, runner):
            runner.optimizer.zero_grad()
            if self.use_fp16:
                with apex.amp.scale_loss(runner.loss, runner.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                runner.loss.backward()
            torch.nn.utils.clip_grad_norm_(runner.model.parameters(), 1.0)
            runner.optimizer.step()
"""
TRAIN = """
    import argparse
    import json

    import apex
    import torch
    from framework import Runner, build_from_registry
    from hooks import Fp16Hook


    def process(model, batch):
        x, y = batch
        return (model(x).float() - y).pow(2).mean() * 1e-4


    def main():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true", default=True)
        args = parser.parse_args()
        if args.fp16:
            model, optimizer = apex.amp.initialize(model, optimizer, opt_level="O1")
        runner = Runner(model, process, optimizer)
        runner.register(Fp16Hook())
        runner.run([(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)])
        print(json.dumps({"dtypes": runner.dtypes, **runner.SCALER_STATE}))


    if __name__ == "__main__":
        main()
"""
# Not shown to the rewriter: installed beside the project.
FRAMEWORK = """
class Hook:
    pass


class Runner:
    def __init__(self, model, process, optimizer):
        self.model, self.process, self.optimizer = model, process, optimizer
        self.hooks, self.dtypes = [], []
        model.register_forward_hook(lambda module, args, out: self.dtypes.append(str(out.dtype)))

    def register(self, hook):
        self.hooks.append(hook)

    def run(self, batches):
        for batch in batches:
            self.loss = self.process(self.model, batch)
            for hook in self.hooks:
                hook.after_iter(self)


def build_from_registry(name, **arguments):
    return Runner(**arguments)
"""


def test_a_hook_finds_the_scaler_where_the_framework_keeps_the_optimizer(tmp_path: Path) -> None:
    texts = check_files({"hooks.py": HOOK, "train.py": TRAIN}, device="cpu")
    assert "runner = Runner(model, process, optimizer)\n    runner.scaler = scaler\n" in texts["train.py"]
    assert "runner.scaler.scale(runner.loss).backward()" in texts["hooks.py"]
    assert "runner.scaler.unscale_(runner.optimizer)\n        torch.nn.utils.clip_grad_norm_" in texts["hooks.py"]
    result = run_files(tmp_path, {**texts, "framework.py": FRAMEWORK}, "train.py")
    assert result["_growth_tracker"] == 3
    assert result["dtypes"] == ["torch.float16"] * 3  # the framework runs the model: its own forward is wrapped


def test_the_forward_is_wrapped_where_the_function_that_runs_it_is_handed_to_a_framework() -> None:
    results = rewrite_files({"hooks.py": HOOK, "train.py": TRAIN})
    text = results["train.py"].after
    assert text is not None
    assert 'model.forward = torch.autocast("cuda", dtype=torch.float16)(model.forward)\n' in text
    assert "def process(model, batch):" in text
    assert "use_amp" not in text
    assert [f.review for f in results["train.py"].findings if f.code == "AMP509"] == ["review"]


def test_a_model_that_may_be_copied_is_not_given_a_forward_of_its_own() -> None:
    source = TRAIN.replace("import argparse", "import argparse\n    import copy").replace(
        "runner.register(Fp16Hook())", "runner.shadow = copy.deepcopy(model)"
    )
    texts = check_files({"hooks.py": HOOK, "train.py": source})
    assert "model.forward" not in texts["train.py"]
    assert "    hooks.scaler = torch.amp.GradScaler" in texts["train.py"]
    assert "enabled=hooks.scaler.is_enabled()" in texts["train.py"]


RUNNER = """
    import apex
    from framework import Runner
    from saving import save


    class SavingRunner(Runner):
        def checkpoint(self, path):
            save(path, self.optimizer)

        def resume(self, state):
            self.optimizer.load_state_dict(state["optimizer"])
            if "amp" in state:
                apex.amp.load_state_dict(state["amp"])
"""
SAVING = """
    import apex
    import torch


    def save(path, optimizer=None):
        torch.save({"optimizer": optimizer.state_dict(), "amp": apex.amp.state_dict()}, path)
"""


def test_a_runner_of_the_projects_own_is_given_the_scaler_too() -> None:
    train = TRAIN.replace("Runner(model, process, optimizer)", 'build_from_registry("Saving", optimizer=optimizer)')
    texts = check_files({"hooks.py": HOOK, "train.py": train, "runner.py": RUNNER, "saving.py": SAVING})
    assert "save(path, self.scaler, self.optimizer)" in texts["runner.py"] or "scaler=self.scaler" in texts["runner.py"]
    assert 'self.scaler.load_state_dict(state["scaler"])' in texts["runner.py"]
    assert '"scaler": scaler.state_dict()' in texts["saving.py"]


def test_a_program_beside_it_that_never_sets_mixed_precision_up_stays_as_it_is() -> None:
    extract = """
        from train import process


        def features(model, batches):
            return [model(x) for x in batches]


        if __name__ == "__main__":
            features(None, [])
    """
    results = rewrite_files({"hooks.py": HOOK, "train.py": TRAIN, "extract.py": extract})
    assert results["extract.py"].after is None


def test_a_framework_that_runs_the_model_itself_runs_its_forward_under_autocast(tmp_path: Path) -> None:
    """No forward stands in the project: neither the call of the model nor the loss."""
    train = TRAIN.replace("Runner(model, process, optimizer)", "Runner(model, None, optimizer)")
    process = train.index("def process"), train.index("def main")
    train = train[: process[0]] + train[process[1] :]
    own = "(self.model(batch[0]).float() - batch[1]).pow(2).mean() * 1e-4"
    framework = FRAMEWORK.replace("self.process(self.model, batch)", own)
    results = rewrite_files({"hooks.py": HOOK, "train.py": train})
    assert not [f for r in results.values() for f in r.findings if f.code == "AMP502"]
    texts = check_files({"hooks.py": HOOK, "train.py": train}, device="cpu")
    assert "model.forward = torch.autocast(" in texts["train.py"]
    result = run_files(tmp_path, {**texts, "framework.py": framework}, "train.py")
    assert result["dtypes"] == ["torch.float16"] * 3


NODES = """
    import torch
    from framework import Hook


    class Node(Hook):
        def __init__(self, model):
            self.model = model


    class Reader(Node):
        def after_iter(self, x):
            return self.model(x)


    class Generator(Node):
        def predict(self, x):
            return self.model.generate(x)
"""
NODES_TRAIN = """
    import argparse
    import json
    import torch
    from apex import amp
    from nodes import Generator, Reader


    class Net(torch.nn.Linear):
        def generate(self, x):
            return self(x).round()


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--level", default="O1")
        args = parser.parse_args()
        model = Net(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
        for _ in range(2):
            optimizer.zero_grad()
            loss = (model(torch.randn(8, 4)).float() - 1).pow(2).mean() * 1e-4
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        hooks = {"reader": Reader(model), "generator": Generator(model)}
        print(json.dumps({"dtype": str(getattr(hooks["reader"], "after_iter")(torch.randn(2, 4)).dtype)}))


    if __name__ == "__main__":
        main()
"""
SERVE = """
    from nodes import Generator


    def page(model, x):
        return Generator(model).predict(x)
"""


def test_another_method_of_a_model_in_a_program_that_never_sets_apex_up_is_no_reason_to_refuse(tmp_path: Path) -> None:
    files = {"nodes.py": NODES, "train.py": NODES_TRAIN, "serve.py": SERVE}
    results = rewrite_files(files)
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    # The forward takes its region along: a method that only a framework calls runs in half as before.
    assert not [f for f in results["nodes.py"].findings if f.code == "AMP531"]
    texts = check_files(files, device="cpu")
    assert run_files(tmp_path, {**texts, "framework.py": FRAMEWORK}, "train.py") == {"dtype": "torch.float16"}
