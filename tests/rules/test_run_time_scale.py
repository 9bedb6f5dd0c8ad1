"""A loss scale decided at run time: read once into None (dynamic) or a float (static), which `update` is given."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.rules.helpers import check_files, check_rewrite, rewrite, rewrite_files, run_files
from tests.rules.programs import apex, found, initialize, native
from tests.rules.test_initialize import SWITCH, loop, scaler

OPTIONS = SWITCH.replace('"--fp16", action="store_true"', '"--loss-scale", default=None')
IMPORTS = "from apex import amp\n" + OPTIONS


def asked(scale: str) -> str:
    return apex(prepare=initialize(f'opt_level="O1", loss_scale={scale}'), imports=IMPORTS)


@pytest.mark.parametrize(
    ("scale", "line", "start"),
    [
        (
            '"dynamic" if args.loss_scale == 0 else args.loss_scale',
            "loss_scale = None if args.loss_scale == 0 else float(args.loss_scale)",
            "loss_scale or 2.0**16",
        ),
        (
            'args.loss_scale if args.loss_scale > 0 else "dynamic"',
            "loss_scale = float(args.loss_scale) if args.loss_scale > 0 else None",
            "loss_scale or 2.0**16",
        ),
        ("float(args.loss_scale)", "loss_scale = float(args.loss_scale)", "loss_scale"),
    ],
)
def test_a_choice_is_evaluated_once_and_held(scale: str, line: str, start: str) -> None:
    after = native(loop(update="loss_scale"), f"{line}\n" + scaler(f"init_scale={start}"), imports=OPTIONS)
    result = check_rewrite(asked(scale), after)
    assert "skipped" in found(result, "AMP114")[0].message


@pytest.mark.parametrize(
    ("scale", "given", "expected"),
    [
        ('"dynamic" if args.loss_scale == 0 else args.loss_scale', 0, None),
        ('"dynamic" if args.loss_scale == 0 else args.loss_scale', 64, 64.0),
        ('args.loss_scale or "dynamic"', None, None),
        ('args.loss_scale or "dynamic"', "128", 128.0),
        ('getattr(args, "loss_scale", None)', "dynamic", None),
        ('getattr(args, "loss_scale", None)', "128.0", 128.0),
        ("args.model.loss_scale", 32, 32.0),
    ],
)
def test_what_update_is_given_is_none_or_a_float(scale: str, given: object, expected: float | None) -> None:
    class Options:
        loss_scale = given

    Options.model = Options  # type: ignore[attr-defined]
    after = rewrite(asked(scale)).after
    assert after is not None
    assert "scaler.update(loss_scale)" in after
    names: dict[str, Any] = {"args": Options}
    lines = [line for line in after.splitlines() if line.startswith("loss_scale = ")]
    exec("\n".join(lines), names)
    assert names["loss_scale"] == expected
    assert type(names["loss_scale"]) is type(expected)
    assert Options.loss_scale == given  # configurations are often frozen


@pytest.mark.parametrize("scale", ["2**7", "2.0**7", "LOSS_SCALE"])
def test_arithmetic_and_constants_are_numbers(scale: str) -> None:
    before = apex(
        prepare=initialize(f'opt_level="O1", loss_scale={scale}'), imports="from apex import amp\nLOSS_SCALE = 128"
    )
    after = rewrite(before).after
    assert after is not None
    assert "init_scale=128.0" in after
    assert "scaler.update(128.0)" in after


def test_a_name_of_the_module_is_not_made_local_to_the_function() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader, LOSS_SCALE


        def main():
            model, optimizer = build()
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=LOSS_SCALE)
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    assert '    loss_scale = None if LOSS_SCALE in (None, "dynamic") else float(LOSS_SCALE)\n' in after
    assert "scaler.update(loss_scale)" in after


def test_the_scale_a_function_was_asked_for_is_read_in_its_caller() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader


        def prepare(model, optimizer, scale):
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=scale)
            return model, optimizer


        def main(args):
            model, optimizer = build()
            model, optimizer = prepare(model, optimizer, args.loss_scale)
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    assert '    loss_scale = None if args.loss_scale in (None, "dynamic") else float(args.loss_scale)\n' in after
    assert "scaler.update(loss_scale)" in after


def test_each_caller_reads_the_scale_that_it_asks_for() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader


        def prepare(model, optimizer, scale):
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=scale)
            return model, optimizer


        def main(args):
            model, optimizer = build()
            if args.small:
                model, optimizer = prepare(model, optimizer, args.small_scale)
            else:
                model, optimizer = prepare(model, optimizer, args.loss_scale)
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    small, large = after.partition("if args.small:")[2].split("    else:\n")
    assert '        loss_scale = None if args.small_scale in (None, "dynamic") else float(args.small_scale)\n' in small
    assert (
        '        loss_scale = None if args.loss_scale in (None, "dynamic") else float(args.loss_scale)\n'
        in large.partition("    for x, y")[0]
    )


def test_a_local_that_nothing_else_reads_holds_it() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, choose, criterion, loader


        def main():
            model, optimizer = build()
            scale = choose()
            model, optimizer = amp.initialize(
                model,
                optimizer,
                opt_level="O1",
                loss_scale=scale,
            )
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    assert '    scale = None if scale in (None, "dynamic") else float(scale)\n' in after
    assert "scaler.update(scale)" in after


def test_a_field_that_the_program_has_under_that_name_stays_its_own() -> None:
    trainer = """
        from apex import amp
        from scaling import run_backward


        class Trainer:
            def __init__(self, model, optimizer, config):
                self.loss_scale = config.name
                self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=config.scale)

            def step(self, x):
                loss = self.model(x).sum()
                run_backward(loss, self.optimizer)
                self.optimizer.step()
        """
    helper = """
        from apex import amp


        def run_backward(loss, optimizer):
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        """
    after = rewrite_files({"trainer.py": trainer, "scaling.py": helper})["trainer.py"].after
    assert after is not None
    assert after.count("self.loss_scale") == 1
    assert (
        '        self.static_loss_scale = None if config.scale in (None, "dynamic") else float(config.scale)\n' in after
    )
    assert "self.scaler.update(self.static_loss_scale)" in after


def test_a_trainer_keeps_it_beside_the_scaler() -> None:
    source = """
        import torch
        from apex import amp


        class Trainer:
            def __init__(self, model, optimizer, config):
                self.model, self.optimizer = amp.initialize(
                    model, optimizer, opt_level="O1", loss_scale="dynamic" if config.scale == 0 else config.scale
                )

            def step(self, x):
                loss = self.model(x).sum()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    assert "self.loss_scale = None if config.scale == 0 else float(config.scale)\n" in after
    assert "self.scaler.update(self.loss_scale)" in after


def test_a_trainer_keeps_what_only_its_constructor_can_see() -> None:
    source = """
        import torch
        from apex import amp


        class Trainer:
            def __init__(self, model, optimizer, args):
                self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=args.loss_scale)

            def step(self, x):
                loss = self.model(x).sum()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    assert 'self.loss_scale = None if args.loss_scale in (None, "dynamic") else float(args.loss_scale)\n' in after
    assert "self.scaler.update(self.loss_scale)" in after


INSIDE = """
    import json

    import torch
    from apex import amp


    def main(config, args, scale):
        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if config.get("fp16"):
            settings = config["amp"]
            model, optimizer = amp.initialize(model, optimizer, SETTINGS)
        train(model, optimizer)
        print(json.dumps(SCALER_STATE))


    def train(model, optimizer):
        for _ in range(3):
            loss = model(torch.ones(2, 3)).sum()
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()


    class Options:
        loss_scale = 64


    if __name__ == "__main__":
        main(CONFIG, Options(), 32)
    """


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ('opt_level=settings["level"], loss_scale=settings["scale"]', 128.0),
        ('opt_level="O1", loss_scale=settings["scale"]', 128.0),
        ('opt_level="O1", loss_scale=settings["scale"] * 2', 256.0),
        ('opt_level=settings["level"], loss_scale=args.loss_scale', 64.0),
        ('opt_level=settings["level"], loss_scale=scale', 32.0),
        ('opt_level="O1", max_loss_scale=settings["scale"]', 128.0),
        ('opt_level=settings["level"], min_loss_scale=settings["scale"] * 1024', 2.0**17),
    ],
)
def test_what_is_read_in_the_branch_is_set_there(tmp_path: Path, settings: str, expected: float) -> None:
    after = check_files({"train.py": INSIDE.replace("SETTINGS", settings)})["train.py"].replace('"cuda"', '"cpu"')
    config = '{"fp16": True, "amp": {"level": "O1", "scale": 128}}'
    assert run_files(tmp_path, {"train.py": after.replace("CONFIG", config)}, "train.py")["scale"] == expected
    assert run_files(tmp_path, {"train.py": after.replace("CONFIG", "{}")}, "train.py") == {}


def test_a_scale_that_is_known_is_written_out_also_where_a_local_of_the_branch_holds_it() -> None:
    before = INSIDE.replace("SETTINGS", 'opt_level="O1", loss_scale=scale').replace('config["amp"]', "scale = 128")
    after = check_files({"train.py": before})["train.py"]
    assert 'scaler = torch.amp.GradScaler("cuda", init_scale=128.0, enabled=bool(config.get("fp16")))\n' in after


def test_a_name_given_another_value_in_the_branch_is_read_there(tmp_path: Path) -> None:
    before = INSIDE.replace("SETTINGS", 'opt_level="O1", loss_scale=scale')
    before = before.replace('settings = config["amp"]', 'scale = config["amp"]["scale"]')
    after = check_files({"train.py": before})["train.py"].replace('"cuda"', '"cpu"')
    config = '{"fp16": True, "amp": {"scale": 128}}'
    assert run_files(tmp_path, {"train.py": after.replace("CONFIG", config)}, "train.py")["scale"] == 128.0
    assert run_files(tmp_path, {"train.py": after.replace("CONFIG", "{}")}, "train.py") == {}


# -- arguments in a dict -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ['options["opt_level"] = "O0"', 'options.update(opt_level="O0")'])
def test_what_a_dict_of_arguments_is_given_later_counts(change: str) -> None:
    prepare = (
        f'options = {{"opt_level": "O1"}}\n{change}\nmodel, optimizer = amp.initialize(model, optimizer, **options)'
    )
    after = rewrite(apex(prepare=prepare)).after
    assert after is not None
    assert "\n    loss.backward()\n" in after
    assert "torch.a" not in after
    assert "apex" not in after


def test_a_dict_of_arguments_may_be_looked_at() -> None:
    prepare = (
        'options = {"opt_level": "O1"}\nprint(options, options["opt_level"])\n'
        "model, optimizer = amp.initialize(model, optimizer, **options)"
    )
    assert rewrite(apex(prepare=prepare)).status == "migrated"


def test_a_dict_of_arguments_goes_with_what_was_put_into_it() -> None:
    prepare = (
        'options = dict(opt_level="O2", verbosity=0)\nif args.fp16:\n    options["master_weights"] = args.masters\n'
        "model, optimizer = amp.initialize(model, optimizer, **options)"
    )
    before = apex(prepare=prepare, imports="from apex import amp\n" + SWITCH)
    check_rewrite(before, native(imports=SWITCH))


BRANCHES = """
if args.loss_scale == 0:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale="dynamic")
else:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=args.loss_scale)
"""


def test_branches_that_differ_by_their_scale_are_one_choice() -> None:
    expected = "loss_scale = None if args.loss_scale == 0 else float(args.loss_scale)\n" + scaler(
        "init_scale=loss_scale or 2.0**16"
    )
    check_rewrite(apex(prepare=BRANCHES, imports=IMPORTS), native(loop(update="loss_scale"), expected, imports=OPTIONS))


@pytest.mark.parametrize(
    ("given", "expected"), [(0, (2.0**16, None)), (128, (128.0, 128.0))], ids=["dynamic", "static"]
)
def test_branches_that_differ_by_their_scale_run(given: int, expected: tuple[float, float | None]) -> None:
    after = rewrite(apex(prepare=BRANCHES, imports=IMPORTS)).after
    assert after is not None
    created = after[after.index("loss_scale = ") : after.index("for x, y")].replace('"cuda"', '"cpu"')
    names: dict[str, Any] = {"torch": torch, "args": argparse.Namespace(loss_scale=given)}
    exec(created, names)
    assert (names["scaler"].get_scale(), names["loss_scale"]) == expected


def test_a_branch_without_a_scale_is_dynamic() -> None:
    prepare = BRANCHES.replace(', loss_scale="dynamic"', "").replace("args.loss_scale)", "64.0)")
    after = rewrite(apex(prepare=prepare, imports=IMPORTS)).after
    assert after is not None
    assert "loss_scale = None if args.loss_scale == 0 else 64.0\n" in after


OTHERWISE = """
import torch
from apex import amp


def prepare(model, optimizer, config):
    scale = config.loss_scale or "dynamic"
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=scale)
    return model, optimizer


def main(config, batches):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = prepare(model, optimizer, config)
    for x in batches:
        loss = model(x).pow(2).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""


def test_what_stands_in_for_a_scale_that_is_not_set_is_read_without_parentheses_around_it() -> None:
    after = rewrite(OTHERWISE).after
    assert after is not None
    assert '    loss_scale = config.loss_scale or "dynamic"\n' in after


@pytest.mark.parametrize("test", ["not config.scale", "config.a or config.b"])
def test_a_choice_of_an_older_wrapper_has_no_parentheses_either(test: str) -> None:
    older = OTHERWISE.replace("from apex import amp", "from apex.fp16_utils import FP16_Optimizer")
    lines = older.replace('    scale = config.loss_scale or "dynamic"\n', "").splitlines()
    wrapped = f"    optimizer = FP16_Optimizer(optimizer, config.scale, dynamic_loss_scale={test})"
    lines = [wrapped if "initialize" in line else line for line in lines]
    text = "\n".join(line for line in lines if "scale_loss" not in line) + "\n"
    after = rewrite(text.replace("            scaled_loss.backward()", "        optimizer.backward(loss)")).after
    assert after is not None
    assert f"None if {test} else" in after
