"""A class that scales losses through Apex beside one that does so natively: the Apex one goes, with what chooses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

SCALERS = """
    import torch

    try:
        from apex import amp
    except ImportError:
        amp = None


    class ApexScaler:
        def __call__(self, loss, optimizer):
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()

        def state_dict(self):
            return amp.state_dict()


    class NativeScaler:
        def __init__(self):
            self._scaler = torch.amp.GradScaler("cpu")

        def __call__(self, loss, optimizer):
            self._scaler.scale(loss).backward()
            self._scaler.step(optimizer)
            self._scaler.update()

        def state_dict(self):
            return self._scaler.state_dict()
"""
TRAIN = """
    import argparse
    import json
    from contextlib import nullcontext
    from functools import partial

    import torch

    try:
        from apex import amp
        HAS_APEX = True
    except ImportError:
        HAS_APEX = False

    from scaling import ApexScaler, NativeScaler

    parser = argparse.ArgumentParser()
    parser.add_argument("--impl", default="apex")
    args = parser.parse_args()
    use_amp = None
    if args.impl == "apex":
        assert HAS_APEX, "install apex"
        use_amp = "apex"
        print("Training with Apex.")
    else:
        use_amp = "native"

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    region = nullcontext
    loss_scaler = None
    assert not use_amp == "apex" or isinstance(model, torch.nn.Module)
    if use_amp == "apex":
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        loss_scaler = ApexScaler()
    elif use_amp == "native":
        region = partial(torch.autocast, "cpu", dtype=torch.float16)
        loss_scaler = NativeScaler()

    for _ in range(3):
        with region():
            loss = model(torch.ones(2, 4)).float().pow(2).mean() * 1e-4
        optimizer.zero_grad()
        if loss_scaler is not None:
            loss_scaler(loss, optimizer)
        else:
            loss.backward()
            optimizer.step()
    print(json.dumps(loss_scaler.state_dict()))
"""
FILES = {
    "scaling/__init__.py": "from .scalers import ApexScaler, NativeScaler\n",
    "scaling/scalers.py": SCALERS,
    "train.py": TRAIN,
}


def test_the_class_its_imports_and_the_branches_that_make_it_go(tmp_path: Path) -> None:
    texts = check_files(FILES, device="cpu")
    for name, text in texts.items():
        assert "Apex" not in text.replace("# ", ""), name
        assert "apex" not in text.replace('default="apex"', ""), name
    assert texts["scaling/__init__.py"] == "from .scalers import NativeScaler\n"
    assert texts["scaling/scalers.py"].startswith("import torch\n\n\nclass NativeScaler:\n")
    assert 'use_amp = "native"\n\nmodel' in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py")["_growth_tracker"] == 3


@pytest.mark.parametrize("method", ["__call__", "run"])
def test_a_class_that_something_else_still_uses_is_migrated_where_it_stands(tmp_path: Path, method: str) -> None:
    """Beside it, a plain backward has its plain step."""
    files = {**FILES, "other.py": "from scaling import ApexScaler\n\nSCALERS = [ApexScaler]\n"}
    if method != "__call__":
        files = {
            n: t.replace("__call__", method).replace("loss_scaler(", f"loss_scaler.{method}(") for n, t in files.items()
        }
    texts = check_files(files, device="cpu")
    assert "other.py" not in texts or texts["other.py"] == files["other.py"]
    scaled = f"class ApexScaler:\n    def {method}(self, loss, optimizer, scaler):\n        scaler.scale("
    assert scaled in texts["scaling/scalers.py"]
    assert "loss.backward()\n        optimizer.step()\n" in texts["train.py"]
    assert run_files(tmp_path, {**files, **texts}, "train.py")["_growth_tracker"] == 3


VALIDATE = """
    from contextlib import nullcontext

    import torch
    from apex import amp

    from project import args, build, loader

    use_amp = None
    region = nullcontext
    if args.impl == "apex":
        use_amp = "apex"
    else:
        use_amp = "native"
        region = lambda: torch.autocast("cuda", dtype=torch.float16)

    model = build()
    if use_amp == "apex":
        model = amp.initialize(model, opt_level="O1")

    with torch.no_grad():
        for x in loader:
            with region():
                model(x)
"""


def test_inference_that_can_choose_autocast_chooses_it() -> None:
    text = check_files({"validate.py": VALIDATE})["validate.py"]
    assert "initialize" not in text
    assert "region = nullcontext\nregion = lambda" in text  # nothing asks for the choice any more
    assert "use_amp" not in text
    assert text.count("torch.autocast(") == 1


def test_a_choice_without_autocast_beside_it_is_no_native_side() -> None:
    source = VALIDATE.replace('region = lambda: torch.autocast("cuda", dtype=torch.float16)', "region = nullcontext")
    text = check_files({"validate.py": source})["validate.py"]
    assert 'enabled=use_amp == "apex"' in text


ENUM = """
    import enum

    import torch

    try:
        import apex
        APEX_AVAILABLE = True
    except ImportError:
        APEX_AVAILABLE = False


    class Backend(enum.Enum):
        APEX = "apex"
        TORCH = "torch"


    class Switches:
        apex = "apex"


    def parameters(optimizer):
        if APEX_AVAILABLE:
            yield from apex.amp.master_params(optimizer)
        else:
            for group in optimizer.param_groups:
                yield from group["params"]


    class Task:
        def __init__(self, settings):
            self.settings = settings
            try:
                self.backend = Backend[settings["backend"]]
            except KeyError:
                self.backend = Backend.APEX
            if self.backend == Backend.APEX and not APEX_AVAILABLE:
                raise RuntimeError("Apex is not installed")
            self.scaler = torch.amp.GradScaler("cpu") if self.backend == Backend.TORCH else None

        def prepare(self, model, optimizer):
            if self.backend == Backend.APEX:
                model, optimizer = apex.amp.initialize(model, optimizer, **self.settings)
            self.model, self.optimizer = model, optimizer

        def step(self, x):
            with torch.autocast("cpu", dtype=torch.float16, enabled=self.backend == Backend.TORCH):
                loss = self.model(x).float().pow(2).mean() * 1e-4
            if self.backend == Backend.APEX:
                with apex.amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            elif self.backend == Backend.TORCH:
                self.scaler.scale(loss).backward()
            else:
                loss.backward()
            if self.backend == Backend.TORCH:
                self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(parameters(self.optimizer), 1.0)
            if self.backend == Backend.TORCH:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()


    if __name__ == "__main__":
        import json

        model = torch.nn.Linear(4, 1)
        task = Task({})
        task.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        task.step(torch.ones(2, 4))
        print(json.dumps(task.scaler.state_dict()))
"""


def test_a_member_of_an_enumeration_is_exchanged_for_the_native_one(tmp_path: Path) -> None:
    """The default was Apex; settings that are spread into initialize need not be in sight where it goes anyway."""
    texts = check_files({"task.py": ENUM}, device="cpu")
    text = texts["task.py"]
    assert "except KeyError:\n            self.backend = Backend.TORCH\n" in text
    assert 'class Switches:\n    apex = "apex"\n' in text
    assert "apex.amp" not in text
    assert "APEX_AVAILABLE" not in text
    assert run_files(tmp_path, texts, "task.py")["_growth_tracker"] == 1


def test_who_can_still_ask_for_apex_is_told_what_comes_of_it() -> None:
    (result,) = rewrite_files({"task.py": ENUM}).values()
    assert {f.review for f in result.findings if f.code == "AMP120"} == {"review", "as-is"}
    results = rewrite_files(FILES)
    assert {f.review for r in results.values() for f in r.findings if f.code == "AMP120"} == {"look"}


def keyed(apex: str, native: str) -> list[str]:
    """What AMP123 says of scalers that name the key of their own state."""
    scalers = SCALERS.replace("class ApexScaler:", f"class ApexScaler:\n        state_dict_key = {apex!r}\n")
    scalers = scalers.replace("class NativeScaler:", f"class NativeScaler:\n        state_dict_key = {native!r}\n")
    results = rewrite_files({"scaling.py": scalers, "train.py": TRAIN})
    assert "class ApexScaler" not in (results["scaling.py"].after or scalers)
    return [f.message for r in results.values() for f in r.findings if f.code == "AMP123"]


def test_a_native_scaler_that_keeps_its_state_under_another_key_is_told() -> None:
    (message,) = keyed("amp", "amp_scaler")
    assert "--key amp --to-key amp_scaler" in message
    assert not keyed("amp", "amp")
