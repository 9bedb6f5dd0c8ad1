"""A helper that initializes and hands the optimizer to its caller: the scaler is created where it is used.

What is emitted is run on the CPU, where GradScaler scales as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

PARTS = """
    import torch


    def build():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)


    def batches():
        torch.manual_seed(1)
        return [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)]
"""
HELPER = """
    import torch


    def prepare(model, optimizer, fp16=False, opt_level="O1"):
        if fp16:
            try:
                from apex import amp
            except ImportError:
                raise ImportError("Please install apex")
            model, optimizer = amp.initialize(model, optimizer, opt_level=opt_level)
        return model, optimizer
"""
TRAINER = """
    import torch
    from helper import prepare
    from parts import batches, build


    class Trainer:
        def __init__(self, cfg):
            model, optimizer = build()
            model, optimizer = prepare(model, optimizer, cfg["fp16"]{level})
            self.cfg = cfg
            self.model = model
            self.optimizer = optimizer

        def run(self):
            losses = []
            for x, y in batches():
                self.optimizer.zero_grad()
                loss = (self.model(x).float() - y).pow(2).mean() * 0.1
                if self.cfg["fp16"]:
                    from apex import amp

                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                    torch.nn.utils.clip_grad_norm_(amp.master_params(self.optimizer), 0.02)
                else:
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.02)
                self.optimizer.step()
                losses.append(loss.item())
            return losses


    def main(fp16):
        trainer = Trainer({"fp16": fp16})
        return {"losses": trainer.run(), "scale": 0}
"""
DRIVER = """
import json
import {module}
print(json.dumps([{module}.main(True), {module}.main(False)]))
"""


def trained(folder: Path, texts: dict[str, str], module: str, scaler: str) -> None:
    """Run a migrated program with mixed precision on and off: the losses agree up to rounding, the scaler follows."""
    texts = {name: text.replace('"scale": 0', f'"scale": {scaler}.get_scale()') for name, text in texts.items()}
    texts["driver.py"] = DRIVER.format(module=module)
    on, off = run_files(folder, texts, "driver.py")  # type: ignore[misc]
    assert on["scale"] == 65536.0
    assert off["scale"] == 1.0
    assert on["losses"] == pytest.approx(off["losses"], rel=2e-2)
    assert on["losses"] != off["losses"]


def project(level: str = "", **files: str) -> dict[str, str]:
    named = {f"{name}.py": text for name, text in files.items()}
    return {"parts.py": PARTS, "helper.py": HELPER, "trainer.py": TRAINER.replace("{level}", level), **named}


def test_a_trainer_that_stores_what_a_helper_returns_creates_its_scaler(tmp_path: Path) -> None:
    texts = check_files(project(), device="cpu")
    assert "apex" not in "".join(texts.values())
    line = 'self.scaler = torch.amp.GradScaler("cpu", enabled=bool(cfg["fp16"]))\n'  # O1 is the default of the helper
    assert line in texts["trainer.py"]
    assert texts["helper.py"].rstrip().endswith(":\n    return model, optimizer")
    trained(tmp_path, texts, "trainer", "trainer.scaler")


@pytest.mark.parametrize(
    ("level", "enabled"),
    [
        (', opt_level="O0"', "False"),
        (', "O2"', 'bool(cfg["fp16"])'),
        (' or cfg["half"], cfg["level"]', 'bool((cfg["fp16"] or cfg["half"]) and cfg["level"] != "O0")'),
        (', cfg["level"]', 'bool(cfg["fp16"] and cfg["level"] != "O0")'),
        (
            ', opt_level="O0" if cfg["debug"] else "O1"',
            'bool(cfg["fp16"] and ("O0" if cfg["debug"] else "O1") != "O0")',
        ),
    ],
)
def test_what_the_caller_asked_for_is_read_there(level: str, enabled: str) -> None:
    texts = check_files(project(level))
    assert f"enabled={enabled})" in texts["trainer.py"].replace(",\n        )", ")")


def test_a_caller_without_an_optimizer_gets_the_switch_and_no_scaler(tmp_path: Path) -> None:
    predict = """
        import torch
        from helper import prepare
        from parts import batches, build


        def outputs(model):
            with torch.no_grad():
                return [str(model(x).dtype) for x, _ in batches()]


        def main(fp16):
            model, _ = prepare(build()[0], None, fp16)
            return outputs(model)
    """
    texts = check_files(project(predict=predict), device="cpu")
    assert "scaler" not in texts["predict.py"]
    assert "def outputs(model, use_amp=False):" in texts["predict.py"]
    assert "use_amp" not in texts["trainer.py"]
    texts["driver.py"] = DRIVER.format(module="predict")
    found: Any = run_files(tmp_path, texts, "driver.py")
    assert found == [["torch.float16"] * 3, ["torch.float32"] * 3]


def test_helpers_that_hand_on_what_another_returned_leave_it_to_the_last(tmp_path: Path) -> None:
    files = {
        "parts.py": PARTS,
        "helper.py": HELPER,
        "setup.py": """
            import torch
            from helper import prepare
            from parts import build


            def with_scheduler(args):
                model, optimizer = build()
                model, optimizer = prepare(model, optimizer, args.fp16)
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
                return model, optimizer, scheduler


            def everything(options):
                return with_scheduler(options)
        """,
        "train.py": """
            from types import SimpleNamespace

            import torch
            from apex import amp
            from parts import batches
            from setup import everything


            def main(fp16):
                args = SimpleNamespace(fp16=fp16)
                model, optimizer, scheduler = everything(args)
                losses = []
                for x, y in batches():
                    optimizer.zero_grad()
                    loss = (model(x).float() - y).pow(2).mean() * 0.1
                    if args.fp16:
                        with amp.scale_loss(loss, optimizer) as scaled_loss:
                            scaled_loss.backward()
                    else:
                        loss.backward()
                    optimizer.step()
                    scheduler.step()
                    losses.append(loss.item())
                return {"losses": losses, "scale": 0}
        """,
    }
    texts = check_files(files, device="cpu")
    assert "scaler" not in texts["setup.py"] + texts["helper.py"]
    line = '    scaler = torch.amp.GradScaler("cpu", enabled=bool(args.fp16))\n'
    assert f"everything(args)\n{line}" in texts["train.py"]
    trained(tmp_path, texts, "train", "scaler")


@pytest.mark.parametrize(
    ("change", "enabled"),
    [
        (("        if fp16:", "        fp16 = fp16 and LIMIT > 3\n        if fp16:"), "fp16"),
        (("        if fp16:", "        if fp16 and LIMIT > 3:"), "fp16 and LIMIT > 3"),
    ],
    ids=["rebound", "global"],
)
def test_a_switch_that_only_the_helper_knows_stays_with_it(
    tmp_path: Path, change: tuple[str, str], enabled: str
) -> None:
    """The argument says less than the parameter where that is set anew; a global of another module has no name here."""
    files = project()
    files["helper.py"] = (
        files["helper.py"].replace(*change).replace("import torch\n", "import torch\n\n    LIMIT = len(dir())\n")
    )
    assert "AMP227" in {f.code for r in rewrite_files(files).values() for f in r.findings}
    texts = check_files(files, device="cpu")
    assert f'scaler = torch.amp.GradScaler("cpu", enabled=bool({enabled} and opt_level != "O0"))' in texts["helper.py"]
    trained(tmp_path, texts, "trainer", "helper.scaler")


def test_a_switch_computed_from_arguments_is_written_out() -> None:
    files = project(', cfg["level"]')
    files["helper.py"] = files["helper.py"].replace(
        "        if fp16:", '        mixed = fp16 and opt_level != "O0"\n        if mixed:'
    )
    assert 'GradScaler("cuda", enabled=bool(cfg["fp16"] and cfg["level"] != "O0"))' in check_files(files)["trainer.py"]


DROPPED = """
import torch
from apex import amp


def prepare(model, lr, half=False):
    if not lr > 0:
        raise ValueError(lr)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    if half:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    return model, optimizer


def train(model, optimizer, batches, half):
    for x, y in batches:
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        if half:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()


def main(batches, half):
    model = torch.nn.Linear(2, 1)
    model, optimizer = prepare(model, 0.1, half)
    train(model, optimizer, batches, half)


def test_rates():
    try:
        prepare(torch.nn.Linear(2, 1), -1.0)
    except ValueError:
        pass
"""


def test_a_call_whose_result_is_dropped_needs_no_scaler() -> None:
    text = check_files({"train.py": DROPPED})["train.py"]
    assert text.count("GradScaler") == 1
    assert "GradScaler" in text[text.index("def main") : text.index("def test_rates")]


def test_where_the_optimizer_stays_with_the_caller_it_is_no_such_call() -> None:
    kept = DROPPED.replace("def prepare(model, lr, half=False):", "def prepare(model, optimizer, half=False):")
    kept = kept.replace("    if not lr > 0:\n        raise ValueError(lr)\n", "")
    kept = kept.replace("    optimizer = torch.optim.SGD(model.parameters(), lr=lr)\n", "", 1)
    kept = kept.replace(
        "    model, optimizer = prepare(model, 0.1, half)\n",
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    prepare(model, optimizer, half)\n",
    )
    kept = kept[: kept.index("def test_rates")]
    text = check_files({"train.py": kept})["train.py"]
    assert "    scaler = torch.amp.GradScaler(" in text[text.index("def prepare") : text.index("def train")]
    assert "scaler)" not in text[text.index("def main") :]  # it lives at module level, and is set where it stood
