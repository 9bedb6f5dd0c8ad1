"""Flags and values that choose between Apex and native mixed precision: whoever asked for Apex gets the native branch."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files, run_files
from tests.rules.programs import found

# What the programs below import from a library that the rewriter does not see.
LIBRARY = {
    "timm/__init__.py": "",
    "timm/utils.py": textwrap.dedent("""
        import torch


        class ApexScaler:
            state_dict_key = "amp"

            def __init__(self):
                raise AssertionError("Apex is gone")


        class NativeScaler:
            state_dict_key = "amp_scaler"

            def __init__(self):
                self.scaler = torch.amp.GradScaler("cpu")

            def __call__(self, loss, optimizer):
                self.scaler.scale(loss).backward()
                self.scaler.step(optimizer)
                self.scaler.update()

            def state_dict(self):
                return self.scaler.state_dict()
    """),
}
TRAIN = """
    import argparse
    import functools
    import json
    from contextlib import suppress

    import torch
    from timm.utils import ApexScaler, NativeScaler

    try:
        from apex import amp
        has_apex = True
    except ImportError:
        has_apex = False

    has_native_amp = False
    try:
        if getattr(torch.cuda.amp, "autocast") is not None:
            has_native_amp = True
    except AttributeError:
        pass


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--amp", action="store_true")
        parser.add_argument("--apex-amp", action="store_true")
        parser.add_argument("--native-amp", action="store_true")
        args = parser.parse_args()
        use_amp = None
{choice}

        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        assert not use_amp == "apex" or not args.native_amp, "Apex does not go with it"
        optimizer = torch.optim.SGD(model.parameters(), lr=100.0)
        amp_autocast = suppress
        loss_scaler = None
{setup}
        else:
            print("float32")
        for _ in range(3):
            with amp_autocast():
                loss = model(torch.ones(2, 4)).float().pow(2).mean() * 1e-3
            optimizer.zero_grad()
            if loss_scaler is not None:
                loss_scaler(loss, optimizer)
            else:
                loss.backward()
                optimizer.step()
        print(json.dumps({{"loss": loss.item(), "state": loss_scaler.state_dict() if loss_scaler else None}}))


    if __name__ == "__main__":
        main()
"""
APEX_FIRST = """
    if args.amp:
        # tries apex before native amp
        if has_apex:
            args.apex_amp = True
        elif has_native_amp:
            args.native_amp = True
    if args.apex_amp and has_apex:
        use_amp = "apex"
    elif args.native_amp and has_native_amp:
        use_amp = "native"
    elif args.apex_amp or args.native_amp:
        print("Neither of the two is there: install Apex")
"""
NATIVE_FIRST = """
    if args.amp:
        if has_native_amp:
            args.native_amp = True
        elif has_apex:
            args.apex_amp = True
        else:
            print("Neither of the two is there: install Apex")

    if args.native_amp:
        if has_native_amp:
            use_amp = "native"
        else:
            print("native mixed precision is not there")
    elif args.apex_amp:
        if has_apex:
            use_amp = "apex"
        else:
            print("install Apex")
"""
SETUP = """
    if use_amp == "apex":
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        loss_scaler = ApexScaler()
        print("with Apex")
    elif use_amp == "native":
        amp_autocast = functools.partial(torch.autocast, "cpu", dtype=torch.float16)
        loss_scaler = NativeScaler()
"""
SETUP_NATIVE_FIRST = """
    if use_amp == "native":
        amp_autocast = functools.partial(torch.autocast, "cpu", dtype=torch.float16)
        loss_scaler = NativeScaler()
    elif use_amp == "apex":
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        loss_scaler = ApexScaler()
"""


ASKED = (["--amp"], ["--apex-amp"], ["--native-amp"])


def run_with(folder: Path, texts: dict[str, str], entry: str, *flags: list[str]) -> list[dict[str, Any]]:
    """Run a script with several lines of flags, in one process; the JSON object that each run prints last."""
    driver = f"""
        import contextlib, io, json, runpy, sys

        results = []
        for flags in {list(flags)}:
            sys.argv = ["{entry}", *flags]
            with contextlib.redirect_stdout(io.StringIO()) as told:
                runpy.run_path("{entry}", run_name="__main__")
            results.append(json.loads(told.getvalue().splitlines()[-1]))
        print(json.dumps({{"results": results}}))
    """
    results: list[dict[str, Any]] = run_files(folder, {**texts, "driver.py": textwrap.dedent(driver)}, "driver.py")[
        "results"
    ]
    return results


def script(choice: str = APEX_FIRST, setup: str = SETUP) -> str:
    indent = " " * 4
    return TRAIN.format(
        choice=textwrap.indent(choice.strip("\n"), indent), setup=textwrap.indent(setup.strip("\n"), indent)
    )


@pytest.mark.parametrize(
    ("choice", "joined"),
    [(APEX_FIRST, "args.apex_amp or args.native_amp"), (NATIVE_FIRST, "args.native_amp or args.apex_amp")],
)
@pytest.mark.parametrize("setup", [SETUP, SETUP_NATIVE_FIRST])
def test_both_flags_choose_the_native_branch(choice: str, joined: str, setup: str) -> None:
    text = check_files({"train.py": script(choice, setup)})["train.py"]
    start = text.index("    if args.amp:\n")
    chosen = text[start : text.index("    torch.manual_seed")].replace("\n\n", "\n")
    assert chosen == (
        f'    if args.amp:\n        args.native_amp = True\n    if {joined}:\n        use_amp = "native"\n'
    )
    assert '    if use_amp == "native":\n        amp_autocast = functools.partial(' in text
    assert '    else:\n        print("float32")\n' in text
    for word in ("has_apex", "has_native_amp", "ApexScaler", "initialize", "Apex does not", "from apex", "install"):
        assert word not in text


def test_whoever_asks_for_mixed_precision_gets_it(tmp_path: Path) -> None:
    text = check_files({"train.py": script()})["train.py"]
    results = run_with(tmp_path, {**LIBRARY, "train.py": text}, "train.py", *ASKED, ["--apex-amp", "--native-amp"], [])
    *asked, plain = results
    assert plain["state"] is None
    assert {r["state"]["_growth_tracker"] for r in asked} == {3}
    assert {r["loss"] for r in asked} == {results[0]["loss"]}
    assert results[0]["loss"] == pytest.approx(plain["loss"], rel=1e-2)
    assert results[0]["loss"] != plain["loss"]


@pytest.mark.parametrize(
    ("imports", "prefix"),
    [
        ("from timm.utils import *", ""),
        ("from timm.utils.cuda import ApexScaler, NativeScaler", ""),
        ("from timm import utils", "utils."),
        ("import timm.utils", "timm.utils."),
    ],
)
def test_the_library_is_known_by_every_import(imports: str, prefix: str) -> None:
    source = script().replace("from timm.utils import ApexScaler, NativeScaler", imports)
    for name in ("ApexScaler()", "NativeScaler()"):
        source = source.replace(name, prefix + name)
    text = check_files({"train.py": source})["train.py"]
    assert "ApexScaler" not in text
    assert f"loss_scaler = {prefix}NativeScaler()" in text


def test_any_object_beside_autocast_that_takes_the_place_will_do() -> None:
    source = script().replace("timm.utils", "lab.scaling")
    assert "ApexScaler" not in check_files({"train.py": source})["train.py"]


def test_an_object_without_autocast_beside_it_is_no_native_side() -> None:
    source = (
        script().replace("timm.utils", "lab.scaling").replace("functools.partial(torch.autocast, ", "partial(cast, ")
    )
    result = rewrite(source)
    assert result.after is None or "amp.initialize" in result.after
    assert found(result, "AMP116")


def test_the_native_object_must_be_the_counterpart() -> None:
    result = rewrite(script().replace("loss_scaler = NativeScaler()", "other = NativeScaler()"))
    assert result.after is None or "amp.initialize" in result.after
    assert found(result, "AMP116")


def test_old_checkpoints_hold_the_scale_under_another_key() -> None:
    (finding,) = found(rewrite(script()), "AMP123")
    assert "--key amp --to-key amp_scaler" in finding.message
    assert not found(rewrite(script().replace("timm.utils", "lab.scaling")), "AMP123")


LOOP = "        for _ in range(3):\n"


def test_what_the_program_keeps_under_a_key_of_its_own_is_there() -> None:
    """The class would name another key, which nothing of this program asks for."""
    saving = "        torch.save({'scaler': loss_scaler.state_dict() if loss_scaler else None}, 'last.pt')\n"
    (finding,) = found(rewrite(script().replace(LOOP, saving + LOOP)), "AMP123")
    assert "--key scaler --to-key scaler" in finding.message


@pytest.mark.parametrize(("given", "told"), [("model, optimizer, loss_scaler", False), ("model, optimizer", True)])
def test_a_checkpoint_out_of_sight_is_told_once(given: str, told: bool) -> None:
    resuming = f"        from timm.models import resume_checkpoint\n        resume_checkpoint({given})\n"
    result = rewrite(script().replace(LOOP, resuming + LOOP))
    assert found(result, "AMP123")
    assert bool(found(result, "AMP431")) is told


def test_a_flag_that_something_else_needs_stays() -> None:
    source = script().replace(
        "        torch.manual_seed(0)\n", "        print(has_native_amp)\n        torch.manual_seed(0)\n"
    )
    text = check_files({"train.py": source})["train.py"]
    assert "has_native_amp = False\ntry:\n" in text
    assert "if args.apex_amp or args.native_amp:" in text


def test_a_choice_by_itself_becomes_the_native_one() -> None:
    """The flag is asked alone; what comes after sees the native value."""
    choice = """
    if args.native_amp:
        use_amp = "native"
    print("so far", use_amp)
    if args.apex_amp and has_apex:
        use_amp = "apex"
    """
    text = check_files({"train.py": script(textwrap.indent(textwrap.dedent(choice), " " * 4))})["train.py"]
    assert '    if args.apex_amp:\n        use_amp = "native"\n' in text


VALIDATE = """
    import argparse
    import json
    from contextlib import suppress
    from functools import partial

    import torch

    has_apex = False
    try:
        from apex import amp
        has_apex = True
    except ImportError:
        pass

    has_native_amp = False
    try:
        if getattr(torch.cuda.amp, "autocast") is not None:
            has_native_amp = True
    except AttributeError:
        pass


    def validate(args):
        region = suppress
        if args.amp:
            if has_native_amp:
                args.native_amp = True
            elif has_apex:
                args.apex_amp = True
        assert not args.apex_amp or not args.native_amp, "only one of them"
        if args.native_amp:
            region = partial(torch.autocast, "cpu", dtype=torch.float16)
            print("native")
        elif args.apex_amp:
            print("with Apex")
        else:
            print("float32")
        model = torch.nn.Linear(4, 1)
        if args.apex_amp:
            model = amp.initialize(model, opt_level="O1")
        with torch.no_grad():
            with region():
                output = model(torch.ones(2, 4))
        print(json.dumps({"dtype": str(output.dtype)}))


    parser = argparse.ArgumentParser()
    for name in ("--amp", "--apex-amp", "--native-amp"):
        parser.add_argument(name, action="store_true")
    validate(parser.parse_args())
"""


def test_inference_under_either_flag_runs_in_the_region_that_is_there(tmp_path: Path) -> None:
    text = check_files({"validate.py": VALIDATE})["validate.py"]
    assert "    if args.native_amp or args.apex_amp:\n        region = partial(" in text
    assert text.count("autocast") == 1
    assert "Apex" not in text
    results = run_with(tmp_path, {"validate.py": text}, "validate.py", *ASKED, [])
    assert [r["dtype"] for r in results] == ["torch.float16"] * 3 + ["torch.float32"]


def test_a_flag_that_inference_asks_elsewhere_is_not_joined() -> None:
    source = VALIDATE.replace(
        "        with torch.no_grad():", "        print(args.apex_amp)\n        with torch.no_grad():"
    )
    text = check_files({"validate.py": source})["validate.py"]
    assert "enabled=args.apex_amp" in text


TRAINER = """
    import torch

    try:
        from apex import amp
        has_apex = True
    except ImportError:
        has_apex = False


    class Trainer:
        def __init__(self, args, model, optimizer):
            self.args, self.model, self.optimizer = args, model, optimizer
            self.use_apex = False
            self.use_amp = False
            if args.fp16:
                if args.backend == "amp":
                    self.use_amp = True
                    self.scaler = torch.amp.GradScaler("cpu")
                else:
                    if not has_apex:
                        raise ImportError("install Apex")
                    self.use_apex = True

        def prepare(self, training=True):
            if self.use_apex and training:
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=self.args.level)

        def backward(self, loss):
            if self.use_amp:
                self.scaler.scale(loss).backward()
            elif self.use_apex:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            elif self.args.other:
                self.other(loss)
            else:
                loss.backward()

        def step(self, x):
            with torch.autocast("cpu", dtype=torch.float16, enabled=self.use_amp):
                loss = self.model(x).float().pow(2).mean() * 1e-4
            self.backward(loss)
            if self.use_amp:
                self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(
                amp.master_params(self.optimizer) if self.use_apex else self.model.parameters(), 1.0
            )
            if self.use_amp:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()
            self.optimizer.zero_grad()
"""
RUN = """
    import json
    from types import SimpleNamespace

    import torch
    from trainer import Trainer

    model = torch.nn.Linear(4, 1)
    args = SimpleNamespace(fp16=True, backend="apex", level="O1", other=False)
    trainer = Trainer(args, model, torch.optim.SGD(model.parameters(), lr=0.1))
    trainer.prepare()
    trainer.step(torch.ones(2, 4))
    print(json.dumps(trainer.scaler.state_dict()))
"""


def test_two_flags_of_an_object_become_the_native_one(tmp_path: Path) -> None:
    texts = check_files({"trainer.py": TRAINER, "run.py": RUN}, device="cpu")
    text = texts["trainer.py"]
    assert (
        "        if args.fp16:\n            self.use_amp = True\n"
        '            self.scaler = torch.amp.GradScaler("cpu")\n\n    def prepare(' in text
    )
    assert "apex" not in text.replace("self.use_apex = False", "")
    assert text.count("GradScaler") == 1
    assert "            self.scaler.scale(loss).backward()\n        elif self.args.other:\n" in text
    assert run_files(tmp_path, texts, "run.py")["_growth_tracker"] == 1


SUBCLASS = """
    import torch
    from torch.amp import autocast
    from transformers import (
        Trainer,
        is_apex_available,
        trainer_utils,
    )

    if is_apex_available():
        from apex import amp


    class SpeechTrainer(Trainer):
        def training_step(self, model, inputs):
            if self.use_amp:
                with autocast("cuda"):
                    loss = self.compute_loss(model, inputs)
            else:
                loss = self.compute_loss(model, inputs)
            if self.use_amp:
                self.scaler.scale(loss).backward()
            elif self.use_apex:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            elif self.deepspeed:
                self.deepspeed.backward(loss)
            else:
                loss.backward()
            trainer_utils.log(loss)
            return loss.detach()
"""


def test_a_subclass_of_a_frameworks_trainer_keeps_the_native_branch() -> None:
    results = rewrite_files({"speech.py": SUBCLASS})
    text = results["speech.py"].after
    assert text is not None
    assert "from transformers import (\n    Trainer,\n    trainer_utils,\n)\n\n\nclass" in text
    assert "            self.scaler.scale(loss).backward()\n        elif self.deepspeed:\n" in text
    assert "apex" not in text
    assert {f.review for f in found(results["speech.py"], "AMP120")} == {"review"}
