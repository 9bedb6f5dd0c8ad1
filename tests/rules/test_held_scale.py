"""Whether a scale is static, where the step cannot see it: the setting goes with the scaler. What is emitted is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rules.helpers import check_files, check_rewrite, rewrite, rewrite_files, run_files
from tests.rules.programs import apex, check_refused, found, native
from tests.rules.test_initialize import SWITCH, loop, scaler

ENGINE = """
    import torch
    from apex import amp


    def fit(model, optimizer, batches, fp16=True):
        scales = []
        for number, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            loss = (model(x).float() - y).pow(2).mean() * 1e-6
            if number == 1:
                loss = loss * float("inf")
            if fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
            scales.append(0)
        return scales
"""
SCRIPT = """
    import torch
    from apex import amp
    from engine import fit


    def main({parameters}):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1"{arguments})
        return fit(model, optimizer, [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)], fp16)
"""
DYNAMIC = [65536.0, 32768.0, 32768.0]  # of which the second step overflows


def script(arguments: str, parameters: str = "fp16=True, scale=None") -> str:
    return SCRIPT.replace("{arguments}", arguments).replace("{parameters}", parameters)


def scales(folder: Path, texts: dict[str, str], **calls: str) -> Any:
    """The loss scale after each of three steps, for each of some calls."""
    assert "scales.append(0)" in texts["engine.py"]
    engine = texts["engine.py"].replace("scales.append(0)", "scales.append(scaler.get_scale())")
    modules = ", ".join(sorted({call.partition(".")[0] for call in calls.values()}))
    results = ", ".join(f"{name}={call}" for name, call in calls.items())
    driver = f"import json\nimport {modules}\nprint(json.dumps(dict({results})))\n"
    return run_files(folder, {**texts, "engine.py": engine, "driver.py": driver}, "driver.py")


def test_a_setting_of_another_file_goes_with_the_scaler(tmp_path: Path) -> None:
    texts = check_files({"engine.py": ENGINE, "train.py": script(", loss_scale=scale")}, device="cpu")
    assert scales(
        tmp_path,
        texts,
        asked='train.main(scale="dynamic")',
        left="train.main()",
        number="train.main(scale=128.0)",
        text='train.main(scale="256")',
        off="train.main(False, 128.0)",
    ) == {"asked": DYNAMIC, "left": DYNAMIC, "number": [128.0] * 3, "text": [256.0] * 3, "off": [1.0] * 3}


def test_scripts_that_share_a_loop_keep_their_own_scales(tmp_path: Path) -> None:
    """Written out in each, so that no name tells them apart: one dynamic, one static, one whose bounds leave one value."""
    files = {
        "engine.py": ENGINE,
        "a.py": script(""),
        "b.py": script(", loss_scale=128.0"),
        "c.py": script(', loss_scale="dynamic", min_loss_scale=64.0, max_loss_scale=64.0'),
        "d.py": script(", loss_scale=1.0"),
    }
    texts = check_files(files, device="cpu")
    assert "def fit(model, optimizer, scaler, loss_scale, batches, fp16=True" in texts["engine.py"]
    assert "scaler.update(loss_scale)" in texts["engine.py"]
    found = scales(tmp_path, texts, a="a.main()", b="b.main()", c="c.main()", d="d.main()")
    assert found == {"a": DYNAMIC, "b": [128.0] * 3, "c": [64.0] * 3, "d": [1.0] * 3}


def test_scripts_that_share_a_loop_keep_their_own_bounds(tmp_path: Path) -> None:
    files = {
        "engine.py": ENGINE,
        "a.py": script(", loss_scale=scale, min_loss_scale=65536.0"),
        "b.py": script(", loss_scale=scale, min_loss_scale=16.0"),
        "c.py": script(", loss_scale=scale"),
    }
    texts = check_files(files, device="cpu")
    assert "if loss_scale is None and min_loss_scale and scaler.get_scale() < min_loss_scale:" in texts["engine.py"]
    assert "    min_loss_scale = 16.0\n" in texts["b.py"]
    found = scales(tmp_path, texts, a="a.main()", b="b.main()", static="b.main(scale=8)", c="c.main()")
    # a static scale knows no bounds
    assert found == {"a": [65536.0] * 3, "b": DYNAMIC, "static": [8.0] * 3, "c": DYNAMIC}


TRAINER = """
    import json
    import os

    import torch
    from apex import amp


    class Loop:
        def __init__(self, model, optimizer):
            self.model = model
            self.optimizer = optimizer

        def run(self, batches):
            for x in batches:
                self.optimizer.zero_grad()
                loss = self.model(x).float().mean()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()


    def main():
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scale = os.environ.get("SCALE", "512")
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=scale)
        loop = Loop(model, optimizer)
        loop.run([torch.randn(8, 4) for _ in range(2)])
        print(json.dumps({}))


    main()
"""


def test_an_object_that_keeps_the_optimizer_keeps_the_setting_too(tmp_path: Path) -> None:
    texts = check_files({"train.py": TRAINER}, device="cpu")
    assert "def __init__(self, model, optimizer, scaler, loss_scale):" in texts["train.py"]
    assert "        self.scaler = scaler\n        self.loss_scale = loss_scale\n" in texts["train.py"]
    texts["train.py"] = texts["train.py"].replace("json.dumps({})", "json.dumps(loop.scaler.state_dict())")
    assert run_files(tmp_path, texts, "train.py")["scale"] == 512.0


def test_an_object_that_is_never_set_up_holds_no_scale(tmp_path: Path) -> None:
    """It is given a disabled scaler first, and the setting beside it, which `update` then ignores."""
    files = {
        "model.py": """
            import torch


            class Regression:
                def __init__(self):
                    self.network = torch.nn.Linear(4, 1)
                    self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)
                    self.amp = None

                def step(self, x):
                    self.optimizer.zero_grad()
                    loss = self.network(x).float().mean()
                    if self.amp is not None:
                        with self.amp.scale_loss(loss, self.optimizer) as scaled_loss:
                            scaled_loss.backward()
                    else:
                        loss.backward()
                    self.optimizer.step()
        """,
        "train.py": """
            import json
            import sys

            import torch
            from model import Regression


            def set_up(model, loss_scale):
                from apex import amp

                model.network, model.optimizer = amp.initialize(
                    model.network, model.optimizer, opt_level="O1", loss_scale=loss_scale
                )
                model.amp = amp


            model = Regression()
            if "--amp" in sys.argv:
                set_up(model, "64")
            model.step(torch.randn(8, 4))
            print(json.dumps(model.SCALER_STATE))
        """,
    }
    texts = check_files(files, device="cpu")
    assert run_files(tmp_path, texts, "train.py") == {}
    texts["train.py"] = texts["train.py"].replace('"--amp" in sys.argv', "True")
    assert run_files(tmp_path, texts, "train.py")["scale"] == 64.0


# -- branches --------------------------------------------------------------------------------------------------------

OPTIONS = SWITCH.replace("args =", 'parser.add_argument("--loss-scale", type=float, default=0)\nargs =')
LEFT = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1"{})'


def choice(test: str, one: str, two: str, indent: str = "") -> str:
    lines = [f"if {test}:", "    " + LEFT.format(one), "else:", "    " + LEFT.format(two)]
    return "\n".join(indent + line for line in lines)


@pytest.mark.parametrize(
    ("test", "one", "two", "line"),
    [
        (
            "args.loss_scale == 0",
            ', loss_scale="dynamic"',
            ", loss_scale=args.loss_scale",
            "loss_scale = None if args.loss_scale == 0 else float(args.loss_scale)",
        ),
        ("args.loss_scale > 0", ", loss_scale=128.0", "", "loss_scale = 128.0 if args.loss_scale > 0 else None"),
        ("not args.loss_scale", "", ", loss_scale=128", "loss_scale = None if not args.loss_scale else 128.0"),
    ],
)
def test_branches_that_ask_for_different_scales_become_a_choice(test: str, one: str, two: str, line: str) -> None:
    before = apex(prepare=choice(test, one, two), imports="from apex import amp\n" + OPTIONS)
    start = "init_scale=loss_scale or 2.0**16"
    check_rewrite(before, native(loop(update="loss_scale"), f"{line}\n{scaler(start)}", imports=OPTIONS))


def test_a_switch_around_the_branches_is_the_only_one_left() -> None:
    prepare = "if args.fp16:\n" + choice("args.loss_scale == 0", "", ", loss_scale=args.loss_scale", "    ")
    before = apex(prepare=prepare, imports="from apex import amp\n" + OPTIONS)
    line = "loss_scale = None if args.loss_scale == 0 else float(args.loss_scale)"
    created = scaler("init_scale=loss_scale or 2.0**16", "enabled=args.fp16")
    check_rewrite(before, native(loop("args.fp16", update="loss_scale"), f"{line}\n{created}", imports=OPTIONS))


@pytest.mark.parametrize(("given", "expected"), [(0, None), (1, 128.0), (2, 256.0)])
def test_a_chain_of_branches_is_a_chain_of_choices(given: int, expected: float | None) -> None:
    prepare = choice("args.loss_scale == 0", "", ", loss_scale=256.0")
    prepare = prepare.replace(
        "else:", "elif args.loss_scale == 1:\n    " + LEFT.format(", loss_scale=128.0") + "\nelse:"
    )
    after = rewrite(apex(prepare=prepare, imports="from apex import amp\n" + OPTIONS)).after
    assert after is not None
    assert "scaler.update(loss_scale)" in after

    class Args:
        loss_scale = given

    names: dict[str, Any] = {"args": Args}
    exec("\n".join(line for line in after.splitlines() if line.startswith("loss_scale = ")), names)
    assert names["loss_scale"] == expected


def test_branches_that_ask_for_the_same_are_one() -> None:
    same = ", loss_scale=128.0"
    before = apex(prepare=choice("args.loss_scale == 0", same, same), imports="from apex import amp\n" + OPTIONS)
    check_rewrite(before, native(loop(update="128.0"), scaler("init_scale=128.0"), imports=OPTIONS))


def test_calls_in_a_row_that_ask_for_different_scales_are_refused() -> None:
    """The second sets up Apex's one state anew; the first model would train on with the scale of the other."""
    prepare = LEFT.format(", loss_scale=128.0") + "\n" + LEFT.replace("model", "other").format("")
    result = check_refused(apex(prepare=prepare, model="model, other, optimizer = build()"), "AMP114")
    assert "different loss scales" in found(result, "AMP114")[0].message


def test_a_loop_that_is_passed_around_finds_its_setting_at_module_level(tmp_path: Path) -> None:
    train = script(", loss_scale=scale").replace("return fit(", "loop = fit\n        print(loop)\n        return loop(")
    results = rewrite_files({"engine.py": ENGINE, "train.py": train})
    assert "AMP227" in {f.code for r in results.values() for f in r.findings}
    assert not [f for r in results.values() for f in r.findings if f.code == "AMP531"]
    texts = check_files({"engine.py": ENGINE, "train.py": train}, device="cpu")
    assert scales(
        tmp_path, texts, dynamic="train.main()", fixed="train.main(scale=128.0)", off="train.main(fp16=False)"
    ) == {"dynamic": [65536.0, 32768.0, 32768.0], "fixed": [128.0] * 3, "off": [1.0] * 3}
