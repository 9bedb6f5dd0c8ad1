"""Regions that ask a scaler at module level: a program that only evaluates sets that, as the one that trains does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

# `save` is a function kept as a value that asks for the state: the scaler cannot be handed there.
RUNNER = """
    from dataclasses import dataclass
    from typing import Any

    import torch

    try:
        from apex import amp
        HAVE_APEX = True
    except ImportError:
        HAVE_APEX = False


    @dataclass
    class Runner:
        model: torch.nn.Module
        optimizer: Any = None
        use_amp: bool = False

        def fit(self, batches, callbacks):
            for x in batches:
                loss = self.model(x).pow(2).mean()
                self.optimizer.zero_grad()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
            for callback in callbacks:
                callback(self)

        def predict(self, x):
            with torch.no_grad():
                return self.model(x)

        def state_dict(self):
            return {"model": self.model.state_dict(), "amp": amp.state_dict()}
    """
MODEL = """
    import torch
    from lib.runner import Runner

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(3, 1)

        def forward(self, x):
            out = self.line(x)
            self.seen = str(out.dtype)
            return out

    def save(runner):
        runner.saved = runner.state_dict()
    """
TRAIN = """
    import json
    import torch
    from apex import amp
    from lib.runner import Runner
    from model import Net, save

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    runner = Runner(model, optimizer, use_amp=True)
    runner.fit([torch.randn(4, 3)], [save])
    runner.predict(torch.randn(4, 3))
    names = list(runner.model.state_dict())
    print(json.dumps({"seen": model.seen, "names": names}))
    """
# Two conditions: what runs the model asks the scaler.
TUNE = TRAIN.replace("model, optimizer = amp", "if os.environ.get('TUNE'):\n        model, optimizer = amp").replace(
    "import json", "import json\n    import os"
)
EVALUATE = """
    import argparse
    import json
    import torch
    from lib.runner import Runner
    from model import Net

    try:
        from apex import amp
        HAVE_APEX = True
    except ImportError:
        HAVE_APEX = False


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--amp", type=str, default="LEVEL")
        args = parser.parse_args()
        model = Net()
        if args.amp:
            if not HAVE_APEX:
                raise ValueError("no Apex")
            model = amp.initialize(model, opt_level=args.amp)
        runner = Runner(model, use_amp=(args.amp != ""))
        runner.predict(torch.randn(4, 3))
        print(json.dumps({"seen": model.seen}))


    if __name__ == "__main__":
        main()
    """
FILES = {
    "lib/__init__.py": "",
    "lib/runner.py": RUNNER,
    "model.py": MODEL,
    "train.py": TRAIN,
    "tune.py": TUNE,
    "evaluate.py": EVALUATE,
}


@pytest.mark.parametrize(("level", "seen"), [("O1", "torch.float16"), ("O0", "torch.float32"), ("", "torch.float32")])
def test_an_evaluation_in_a_process_of_its_own_sets_it(tmp_path: Path, level: str, seen: str) -> None:
    files = {**FILES, "evaluate.py": EVALUATE.replace("LEVEL", level)}
    texts = check_files(files, device="cpu", dtype="float16")
    assert texts["lib/runner.py"].count("enabled=scaler.is_enabled()") == 2
    assert "import runner as runner_module\n" in texts["evaluate.py"]
    assert run_files(tmp_path, texts, "evaluate.py")["seen"] == seen
    assert run_files(tmp_path, texts, "train.py")["seen"] == "torch.float16"
    assert run_files(tmp_path, texts, "tune.py")["seen"] == "torch.float32"


def test_it_says_so_and_nothing_else() -> None:
    results = rewrite_files(FILES)
    told = {f.code: (f.review, f.message) for f in results["evaluate.py"].findings}
    assert told["AMP517"][0] == "as-is"
    assert "runner_module.scaler" in told["AMP517"][1]
    assert told["AMP110"] == ("as-is", "sets the GradScaler that regions of this program ask")
    assert "AMP115" not in told
    assert not [f for r in results.values() for f in r.findings if f.code in ("AMP531", "AMP532")]


def test_it_is_named_by_what_an_imported_file_writes(tmp_path: Path) -> None:
    evaluate = EVALUATE.replace(
        "    from lib.runner import Runner\n    from model import Net\n", "    from model import *\n"
    )
    texts = check_files({**FILES, "evaluate.py": evaluate.replace("LEVEL", "O1")}, device="cpu", dtype="float16")
    assert "from model import *\nfrom lib import runner as runner_module\n" in texts["evaluate.py"]
    assert run_files(tmp_path, texts, "evaluate.py")["seen"] == "torch.float16"


def test_a_function_of_the_file_that_keeps_it_sets_it_as_a_global(tmp_path: Path) -> None:
    ready = """
    def ready(model):
        return amp.initialize(model, opt_level="O1")
    """
    evaluate = EVALUATE.replace("import Runner", "import Runner, ready").replace(
        "model = amp.initialize(model, opt_level=args.amp)", "model = ready(model)"
    )
    files = {**FILES, "lib/runner.py": RUNNER + ready, "evaluate.py": evaluate.replace("LEVEL", "O1")}
    texts = check_files(files, device="cpu", dtype="float16")
    assert "    global scaler\n" in texts["lib/runner.py"]
    assert run_files(tmp_path, texts, "evaluate.py")["seen"] == "torch.float16"


def test_where_it_cannot_be_named_the_region_is_told_to_be_off() -> None:
    evaluate = EVALUATE.replace(
        "    from lib.runner import Runner\n    from model import Net\n", "    import helpers\n"
    )
    evaluate = evaluate.replace("Net()", "helpers.Net()").replace("Runner(model", "helpers.Runner(model")
    helpers = "    import lib.runner as lib_runner\n    from model import Net\n\n    Runner = lib_runner.Runner\n"
    results = rewrite_files({**FILES, "evaluate.py": evaluate, "helpers.py": helpers})
    told = [f for f in results["lib/runner.py"].findings if f.code == "AMP531"]
    assert [f.review for f in told] == ["review"]
    assert "evaluate.py" in told[0].message
    assert "off there now" in told[0].message


# Another class that owns an optimizer, and scales for itself.
FINDER = """
    import torch
    from .plans import steps_of

    try:
        from apex import amp
        HAVE_APEX = True
    except ImportError:
        HAVE_APEX = False


    class Finder:
        def __init__(self, model, optimizer, use_amp=False, clip=0.0):
            self.model, self.optimizer = model, optimizer
            self.use_amp, self.clip = use_amp, clip

        def search(self, batches):
            return [self.one(x) for x in steps_of(batches)]

        def one(self, x):
            self.optimizer.zero_grad()
            loss = self.model(x).pow(2).mean()
            if self.use_amp:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            if self.clip > 0:
                torch.nn.utils.clip_grad_norm_(amp.master_params(self.optimizer), self.clip)
            self.optimizer.step()
            return loss.item()
    """
BOTH = """
    import argparse
    import json
    import torch
    from apex import amp
    from lib.finder import Finder
    from lib.runner import Runner
    from model import Net, save


    def train(args, model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.amp:
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.amp)
        runner = Runner(model, optimizer, use_amp=args.amp != "")
        runner.fit([torch.randn(4, 3)], [save])
        runner.predict(torch.randn(4, 3))


    def resume(model):
        Runner(model, torch.optim.SGD(model.parameters(), lr=0.1)).fit([torch.randn(4, 3)], [save])


    def find(args, model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.amp:
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.amp)
        Finder(model, optimizer, use_amp=args.amp != "", clip=10.0).search([torch.randn(4, 3)])


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--amp", default="O1")
        parser.add_argument("--mode", default="find")
        args = parser.parse_args()
        model = Net()
        if args.mode == "find":
            find(args, model)
        elif args.mode == "resume":
            resume(model)
        else:
            train(args, model)
        print(json.dumps({"seen": model.seen}))


    if __name__ == "__main__":
        main()
    """
PLANS = """
    def steps_of(batches):
        return batches
    """
WITH_FINDER = {**FILES, "lib/finder.py": FINDER, "lib/plans.py": PLANS, "both.py": BOTH}


def test_what_scales_for_itself_asks_its_own_scaler(tmp_path: Path) -> None:
    texts = check_files(WITH_FINDER, device="cpu", dtype="float16")
    assert "enabled=self.scaler.is_enabled()" in texts["lib/finder.py"]
    assert "runner" not in texts["lib/finder.py"]
    assert run_files(tmp_path, texts, "both.py")["seen"] == "torch.float16"


def test_no_region_of_another_is_told_of_where_none_of_its_runs_comes() -> None:
    """Runs that search stand beside those that train or go on: `if args.mode == "find": ... else: ...`."""
    found = [f for f in rewrite_files(WITH_FINDER)["both.py"].findings if f.code == "AMP517"]
    assert found == []
    below = BOTH.replace(
        "            find(args, model)\n", "            find(args, model)\n            resume(model)\n"
    )
    found = [f for f in rewrite_files({**WITH_FINDER, "both.py": below})["both.py"].findings if f.code == "AMP517"]
    assert [f.review for f in found] == ["review"]
    assert "fit (lib/runner.py)" in found[0].message


def test_where_it_stays_with_apex_no_other_writes_a_region_there() -> None:
    private = FINDER.replace("return loss.item()", "return amp._amp_state.handle.unknown(loss)")
    results = rewrite_files({**WITH_FINDER, "lib/finder.py": private})
    assert any(f.status == "manual" for f in results["lib/finder.py"].findings)
    assert not results["lib/finder.py"].changed
    assert results["lib/runner.py"].changed


def test_a_state_that_is_loaded_where_no_run_has_set_the_scaler_is_told_of() -> None:
    """It was loaded into Apex's own state, which was not set up in those runs either."""
    runner = (
        RUNNER
        + """
        def load(self, state):
            amp.load_state_dict(state["amp"])
    """
    )
    lines = "runner = Runner(model, torch.optim.SGD(model.parameters(), lr=0.1))\n        runner.load({})\n        runner.fit"
    resumed = BOTH.replace("Runner(model, torch.optim.SGD(model.parameters(), lr=0.1)).fit", lines)
    assert resumed != BOTH
    later = BOTH.replace("        runner.predict(", "        runner.load({})\n        runner.predict(")
    for both, unset in ((resumed, True), (later, False)):
        results = rewrite_files({**WITH_FINDER, "lib/runner.py": runner, "both.py": both})
        (told,) = (f for f in results["lib/runner.py"].findings if f.code == "AMP402")
        assert told.status == "done"
        assert ("one that is disabled loads nothing" in told.message) is unset
        assert told.review == ("review" if unset else "look")


def test_an_evaluation_between_two_epochs_leaves_the_scaler_as_it_is() -> None:
    """A new one would begin with another scale."""
    evaluate = """
    from apex import amp
    from lib.runner import Runner

    def evaluate(model, x):
        model = amp.initialize(model, opt_level="O1")
        return Runner(model).predict(x)
    """
    ends = "runner.predict(torch.randn(4, 3))"
    train = TRAIN.replace(ends, f"evaluate(runner.model, torch.randn(4, 3))\n    {ends}")
    train = train.replace("from model import", "from check import evaluate\n    from model import")
    texts = {p: r.after for p, r in rewrite_files({**FILES, "check.py": evaluate, "train.py": train}).items()}
    assert "is_enabled" in str(texts["lib/runner.py"])
    assert "GradScaler" not in str(texts["check.py"])
    assert "GradScaler" in str(texts["evaluate.py"])


def test_a_mode_beside_the_one_that_trains_sets_it(tmp_path: Path) -> None:
    modes = BOTH.replace("find(args, model)\n", "check(args, model)\n").replace(
        "    def find(args, model):",
        """    def check(args, model):
        if args.amp:
            model = amp.initialize(model, opt_level=args.amp)
        Runner(model).predict(torch.randn(4, 3))


    def find(args, model):""",
    )
    texts = check_files({**WITH_FINDER, "both.py": modes}, device="cpu", dtype="float16")
    check = texts["both.py"].partition("def check")[2].partition("def find")[0]
    assert 'runner_module.scaler = torch.amp.GradScaler("cpu", enabled=bool(args.amp and args.amp != "O0"))' in check
    assert run_files(tmp_path, texts, "both.py")["seen"] == "torch.float16"
