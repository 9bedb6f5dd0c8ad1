"""Programs that run their models in one function: its region serves all of them, each with its own switch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

DETECTOR: dict[str, str] = {
    "detector/__init__.py": "",
    "detector/settings.py": """
        import os

        class Settings:
            DTYPE = os.environ.get("DTYPE", "float16")

        cfg = Settings()
        """,
    "detector/model.py": """
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 3)
                self.seen = []

            def forward(self, x):
                out = self.layer(x)
                self.seen.append(str(out.dtype))
                return out

        def build(cfg):
            torch.manual_seed(0)
            return Net()
        """,
    "detector/checkpoint.py": """
        class Keeper:
            def __init__(self, model, folder=""):
                self.model = model
                self.folder = folder

        class Restorer(Keeper):
            def __init__(self, cfg, model, folder=""):
                super().__init__(model, folder)
                self.cfg = cfg
                self.dtype = cfg.DTYPE.lower()
        """,
    "detector/engine.py": """
        import torch

        def run(model, loader, flip):
            model.eval()
            results = []
            for x, _ in loader:
                with torch.no_grad():
                    if flip:
                        output = flipped(model, x)
                    else:
                        output = model(x)
                results.append(output.float().sum().item())
            return results

        def flipped(model, x):
            return model(x.flip(0))

        def inference(
            model,
            loader,
            flip=False,
            folder=None,
        ):
            results = run(model, loader, flip)
            return results
        """,
    "train.py": """
        import json
        import torch
        from apex import amp
        from detector.settings import cfg
        from detector.engine import inference
        from detector.model import build

        def train(cfg, loader):
            model = build(cfg)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            use_mixed_precision = cfg.DTYPE == "float16"
            opt_level = "O1" if use_mixed_precision else "O0"
            model, optimizer = amp.initialize(model, optimizer, opt_level=opt_level)
            for x, y in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
            return model

        def main():
            loader = [(torch.ones(2, 4), torch.tensor([0, 1])) for _ in range(3)]
            model = train(cfg, loader)
            inference(
                model,
                loader,
                folder=None,
            )
            print(json.dumps(model.seen))

        if __name__ == "__main__":
            main()
        """,
    "evaluate.py": """
        import argparse
        import json
        import torch
        from detector.settings import cfg
        from detector.checkpoint import Restorer
        from detector.engine import inference
        from detector.model import build

        try:
            from apex import amp
        except ImportError:
            raise ImportError("Apex is needed for mixed precision")

        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("--flip", action="store_true")
            args = parser.parse_args([])
            model = build(cfg)
            half = cfg.DTYPE == "float16"
            amp_handle = amp.init(enabled=half, verbose=False)
            restorer = Restorer(cfg, model)
            loader = [(torch.ones(2, 4), None) for _ in range(2)]
            for flip in (args.flip, True):
                inference(
                    model,
                    loader,
                    flip=flip,
                )
            print(json.dumps(model.seen))

        if __name__ == "__main__":
            main()
        """,
}
EXPORT = """
    import json
    import torch
    from detector.engine import inference
    from detector.model import build

    def main():
        model = build(None)
        inference(model, [(torch.ones(2, 4), None)])
        print(json.dumps(model.seen))

    if __name__ == "__main__":
        main()
    """


def test_a_test_script_hands_its_switch_to_the_function_that_it_shares() -> None:
    texts = check_files(DETECTOR)
    evaluate = texts["evaluate.py"]
    assert "            flip=flip,\n            use_amp=half,\n" in evaluate
    assert "use_amp" not in evaluate.replace("use_amp=half", "")
    assert "amp_handle" not in evaluate
    assert "apex" not in evaluate
    assert "autocast" not in texts["detector/checkpoint.py"]
    assert 'use_amp=cfg.DTYPE == "float16"' in texts["train.py"]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("entry", ["train.py", "evaluate.py"])
def test_each_program_runs_its_model_as_its_switch_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, dtype: str
) -> None:
    texts = check_files(DETECTOR, device="cpu")
    monkeypatch.setenv("DTYPE", dtype)
    assert set(run_files(tmp_path, texts, entry)) == {f"torch.{dtype}"}


def test_a_script_that_never_used_apex_stays_in_float32(tmp_path: Path) -> None:
    texts = check_files({**DETECTOR, "export.py": EXPORT}, device="cpu")
    assert "amp" not in texts["export.py"]
    assert run_files(tmp_path, texts, "export.py") == ["torch.float32"]


def test_a_second_training_script_hands_its_switch_over_too(tmp_path: Path) -> None:
    """It has an optimizer of its own, so it is a unit of its own; the function that evaluates is the first one's."""
    second = DETECTOR["train.py"].replace('"O1" if use_mixed_precision else "O0"', '"O1"')
    texts = check_files({**DETECTOR, "tune.py": second}, device="cpu")
    assert 'use_amp=cfg.DTYPE == "float16"' in texts["train.py"]
    assert "use_amp=True" in texts["tune.py"]
    assert set(run_files(tmp_path, texts, "tune.py")) == {"torch.float16"}


def test_each_program_hands_its_own_condition_to_a_region_that_they_share(tmp_path: Path) -> None:
    """The function could read the training's setting; the test script has another."""
    files: dict[str, Any] = {
        **DETECTOR,
        "detector/engine.py": """
            import torch
            from detector.settings import cfg

            def inference(model, loader, flip=False, folder=None):
                model.eval()
                with torch.no_grad():
                    return [model(x) for x, _ in loader]
            """,
        "evaluate.py": DETECTOR["evaluate.py"].replace('half = cfg.DTYPE == "float16"', "half = args.flip"),
    }
    texts = check_files(files, device="cpu")
    assert "enabled=use_amp" in texts["detector/engine.py"]
    assert 'use_amp=cfg.DTYPE == "float16"' in texts["train.py"]
    assert "use_amp=half" in texts["evaluate.py"]
    (told,) = [f for f in rewrite_files(files)["evaluate.py"].findings if f.code == "AMP517"]
    assert told.review == "as-is"
    assert set(run_files(tmp_path, texts, "evaluate.py")) == {"torch.float32"}
    assert set(run_files(tmp_path, texts, "train.py")) == {"torch.float16"}


def test_each_of_several_inferences_in_a_file_says_it_for_itself() -> None:
    files = {
        "evaluation.py": """
            import torch


            def validate(model, loader):
                with torch.no_grad():
                    return [model(x) for x in loader]
            """,
        "train.py": """
            import torch
            from apex import amp
            from evaluation import validate
            from project import build, criterion, loader


            def main(opts):
                model = build()
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1", enabled=opts.half)
                for x, y in loader:
                    loss = criterion(model(x), y)
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                    optimizer.step()
                validate(model, loader)
            """,
        "infer.py": """
            from apex import amp
            from evaluation import validate
            from project import build, loader


            def main(cfg):
                model = build()
                model = amp.initialize(model, opt_level="O1", enabled=cfg.fast)
                validate(model, loader)


            def always():
                model = amp.initialize(build(), opt_level="O1")
                validate(model, loader)
            """,
    }
    texts = check_files(files)
    assert "validate(model, loader, use_amp=bool(opts.half))" in texts["train.py"]
    assert "validate(model, loader, use_amp=bool(cfg.fast))" in texts["infer.py"]
    assert "def always():" in texts["infer.py"]
    assert "validate(model, loader, use_amp=True)" in texts["infer.py"]
    assert not [f for f in rewrite_files(files)["infer.py"].findings if f.code == "AMP502"]


def test_only_regions_that_a_set_up_comes_to_are_compared_with_its_switch() -> None:
    """The evaluation shares a file with the training loop and never runs it."""
    files = {
        "engine.py": """
            import torch
            from apex import amp
            from settings import cfg


            def fit(model, optimizer, loader):
                for x in loader:
                    loss = model(x).mean()
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                    optimizer.step()


            def check(model):
                with torch.no_grad():
                    print(model(torch.ones(2, 2)))


            def build():
                return torch.nn.Linear(2, 2)
            """,
        "train.py": """
            import torch
            from apex import amp
            from engine import build, fit
            from settings import cfg, loader


            def main():
                model = build()
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1", enabled=cfg.half)
                fit(model, optimizer, loader)


            if __name__ == "__main__":
                main()
            """,
        "evaluate.py": """
            from apex import amp
            from engine import build, check
            from settings import options


            def main():
                model = build()
                model = amp.initialize(model, opt_level="O1", enabled=options.quick)
                check(model)


            if __name__ == "__main__":
                main()
            """,
        "settings.py": "cfg = options = loader = None\n",
    }
    results = rewrite_files(files)
    told = [f.message for f in results["evaluate.py"].findings if f.code == "AMP517"]
    assert not told
    assert "check(model, use_amp=bool(options.quick))" in (results["evaluate.py"].after or "")
    assert "enabled=bool(cfg.half)" in (results["engine.py"].after or "")  # in `fit`, which nobody else calls


GENERATING = {
    "generate.py": """
        import torch

        def sample(model, x):
            with torch.no_grad():
                return model(x).argmax(-1)

        def main():
            model = torch.nn.Linear(4, 3)
            print(sample(model, torch.ones(2, 4)))

        if __name__ == "__main__":
            main()
        """,
    "serve.py": """
        import torch
        from apex import amp
        from generate import sample

        model = torch.nn.Linear(4, 3)
        model = amp.initialize(model, opt_level="O2")

        def answer(x):
            return sample(model, x)
        """,
    "train.py": """
        import torch
        from apex import amp
        from generate import sample

        def train(args, loader):
            model = torch.nn.Linear(4, 3)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if args.fp16:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y)
                if args.fp16:
                    with amp.scale_loss(loss, optimizer) as scaled:
                        scaled.backward()
                else:
                    loss.backward()
                optimizer.step()
            print(sample(model, x))
        """,
}


def test_the_own_main_of_a_file_that_programs_share_never_used_apex() -> None:
    """Others import its function; its main runs where it is the script, which nothing set up."""
    texts = check_files(GENERATING)
    assert "def sample(model, x, use_amp=False):" in texts["generate.py"]
    assert "print(sample(model, torch.ones(2, 4)))" in texts["generate.py"]
    assert "sample(model, x, use_amp=True)" in texts["serve.py"]
    assert "sample(model, x, use_amp=bool(args.fp16))" in texts["train.py"]
    called = (
        GENERATING["serve.py"]
        .replace("import sample", "import main, sample")
        .replace("return", "main()\n            return")
    )
    texts = check_files({**GENERATING, "serve.py": called})
    assert "sample(model, torch.ones(2, 4), use_amp=use_amp)" in texts["generate.py"]
    assert "        main()" not in texts["serve.py"]
    assert "main(use_amp=True)" in texts["serve.py"]


MODES = """
    import argparse
    import json

    import torch
    import torch.nn as nn
    from apex import amp


    def train(args, model):
        def tune(optimizer):
            loss = model(torch.ones(2, 4)).pow(2).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            return evaluate(args, model)

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        return tune(optimizer)


    def evaluate(args, model):
        with torch.no_grad():
            out = model(torch.ones(2, 4))
            return str(out.dtype)


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--load", default="")
        args = parser.parse_args()
        model = nn.Linear(4, 2)
        if args.load == "":
            return train(args, model)
        else:
            model = amp.initialize(model, opt_level="O1")
            return evaluate(args, model)


    if __name__ == "__main__":
        print(json.dumps(main()))
    """


def test_what_is_handed_over_asks_for_nothing_that_holds_where_it_stands(tmp_path: Path) -> None:
    after = check_files({"main.py": MODES}, device="cpu")
    assert after["main.py"].count("evaluate(args, model, use_amp=True)") == 2
    for loaded in ("", "x"):
        texts = {"main.py": after["main.py"].replace('default=""', f'default="{loaded}"')}
        assert run_files(tmp_path, texts, "main.py") == "torch.float16"


STEP = """
            if cfg.fp16:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
"""
SCRIPT = f"""
import torch
from apex import amp
from data import batches, cfg, make
from shared import run


def main():
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if cfg.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level=cfg.level)
        for batch in batches:
            loss = run(model, batch, cfg)
{STEP}

if __name__ == "__main__":
    main()
"""
TRAINER = f"""
import torch
from apex import amp
from data import batches, make
from shared import run


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg

    def __call__(self):
        self.begin()
        self.train()

    def again(self):
        return Trainer(self.cfg)

    def begin(self):
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if self.cfg.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level=self.cfg.level)
        self.model, self.optimizer = model, optimizer

    def train(self):
        for batch in batches:
            loss = run(self.model, batch, self.cfg)
{STEP.replace("cfg", "self.cfg").replace("optimizer", "self.optimizer")}
"""


def test_a_trainer_that_makes_another_of_its_kind_is_made_elsewhere_all_the_same() -> None:
    """What it runs was no code that scripts alone run: it had a scaler, and its forward no region."""
    shared = "def run(model, batch, cfg):\n    out = model(batch)\n    return out.pow(cfg.power).mean()\n"
    files = {"a_trainer.py": TRAINER, "shared.py": shared, "train.py": SCRIPT, "train2.py": SCRIPT}
    texts = check_files(files)
    assert "self.scaler.scale(loss).backward()" in texts["a_trainer.py"]
    assert (
        'with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()):\n'
        "                loss = run(self.model, batch, self.cfg)\n"
    ) in texts["a_trainer.py"]
