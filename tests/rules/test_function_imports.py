"""What a function imports of Apex for itself goes with its own uses, and what stays stays under its condition."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files, texts_of

HELPERS = """
    import torch

    def set_up(args, model):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if args.fp16:
            try:
                from apex import amp
            except ImportError:
                raise ImportError("Please install Apex to train in float16.")
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
        return model, optimizer

    def backward(args, optimizer, loss):
        if args.fp16:
            try:
                from apex import amp
            except ImportError:
                raise ImportError("Please install Apex to train in float16.")
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
    """
UNUSED = """
    def for_inference(model, fp16):
        if fp16:
            from apex import amp
            model = amp.initialize(model, opt_level="O1")
        return model
    """
LATER = """
        if args.fp16 and args.verbose:
            print(amp.opt_levels)
    """
TRAIN = """
    import json
    import sys
    from argparse import Namespace

    import torch
    from helpers import backward, set_up

    def main(args):
        torch.manual_seed(0)
        model, optimizer = set_up(args, torch.nn.Linear(3, 3))
        for _ in range(2):
            loss = model(torch.ones(2, 3)).sum()
            backward(args, optimizer, loss)
            optimizer.step()
            optimizer.zero_grad()
        return model

    if __name__ == "__main__":
        model = main(Namespace(fp16=False, level="O1", verbose=True))
        print(json.dumps([model.weight.sum().item(), "apex" in sys.modules]))
    """


def migrated(helpers: str) -> dict[str, str]:
    results = rewrite_files({"helpers.py": helpers, "train.py": TRAIN})
    assert [f.code for r in results.values() for f in r.findings if f.status == "manual"]  # something stays
    return texts_of(results)


def test_the_guard_of_a_migrated_function_goes_where_another_function_keeps_its_own(tmp_path: Path) -> None:
    texts = migrated(HELPERS + UNUSED)
    assert "Please install Apex" not in texts["helpers.py"]
    assert "    scaler.scale(loss).backward()" in texts["helpers.py"].splitlines()
    assert texts["helpers.py"].count("from apex import amp") == 1
    assert run_files(tmp_path, texts, "train.py")[1] is False


def test_a_guard_that_stays_stays_under_the_test_of_the_arm_it_stood_in(tmp_path: Path) -> None:
    texts = migrated(HELPERS + LATER)
    kept = texts["helpers.py"].partition("def backward")[2]
    assert kept.index("if args.fp16:") < kept.index("from apex import amp") < kept.index("scaler.scale(loss)")
    assert run_files(tmp_path, texts, "train.py")[1] is False


def test_the_same_in_the_else_of_the_opposite_test() -> None:
    other = (
        HELPERS.partition("    def backward")[0]
        + """
    def backward(args, optimizer, loss):
        if not args.fp16:
            loss.backward()
        else:
            from apex import amp
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
    """
    )
    kept = migrated(other + LATER)["helpers.py"].partition("def backward")[2]
    assert "    if args.fp16:\n        from apex import amp\n    scaler.scale(loss).backward()" in kept


def test_a_marked_import_stays_under_its_test() -> None:
    marked = HELPERS.replace("from apex import amp", "from apex import amp  # amp-migrate: ignore[AMP101]")
    (result,) = [r for r in rewrite_files({"helpers.py": marked, "train.py": TRAIN}).values() if r.path == "helpers.py"]
    assert result.after is not None
    kept = result.after.partition("def backward")[2]
    assert kept.index("if args.fp16:") < kept.index("from apex import amp") < kept.index("scaler.scale(loss)")


def test_a_function_that_nothing_calls_is_told_to_be_one() -> None:
    def told(text: str) -> str:
        results = rewrite_files({"helpers.py": HELPERS + UNUSED, "train.py": TRAIN + text})
        (finding,) = [f for r in results.values() for f in r.findings if f.status == "manual"]
        assert finding.code == "AMP502"
        return finding.message

    assert "nothing in sight calls for_inference: delete it if nothing does" in told("")
    assert "delete it" not in told("\n    RUNNERS = {'test': 'for_inference'}\n")


FLAGGED = """
    import torch

    try:
        from apex import amp
        HAS_APEX = True
    except ImportError:
        HAS_APEX = False

    def set_up(args, model):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if args.fp16:
            COMPLAINT
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
        return model, optimizer

    def backward(args, optimizer, loss):
        if args.fp16:
            COMPLAINT
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()

    def for_inference(model, fp16):
        if fp16:
            model = amp.initialize(model, opt_level="O1")
        return model
    """
COMPLAINTS = [
    'assert HAS_APEX, "Please install Apex"',
    'if not HAS_APEX:\n                raise RuntimeError("Please install it")',
]


@pytest.mark.parametrize("complaint", COMPLAINTS)
def test_a_complaint_goes_with_the_uses_beside_it(complaint: str, tmp_path: Path) -> None:
    texts = migrated(FLAGGED.replace("COMPLAINT", complaint))
    assert "Please install" not in texts["helpers.py"]
    assert "    scaler.scale(loss).backward()" in texts["helpers.py"].splitlines()
    assert run_files(tmp_path, texts, "train.py")[1] is False


@pytest.mark.parametrize("complaint", COMPLAINTS)
def test_an_arm_that_keeps_a_use_keeps_its_complaint(complaint: str, tmp_path: Path) -> None:
    used = FLAGGED.replace(
        "            with amp.scale", "            print(amp.opt_levels)\n            with amp.scale"
    )
    texts = migrated(used.replace("COMPLAINT", complaint))
    kept = texts["helpers.py"].partition("def backward")[2]
    assert kept.index("if args.fp16:") < kept.index("Please install") < kept.index("print(amp.opt_levels)")
    assert run_files(tmp_path, texts, "train.py")[1] is False


CHECKED = """
    from __future__ import annotations

    from typing import TYPE_CHECKING

    import numpy

    {guard}
        import torch


    class Estimator:
        def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, use_amp: bool = False) -> None:
            import torch

            self.model, self.optimizer, self.use_amp = model, optimizer, use_amp
            self.criterion = torch.nn.MSELoss()
            if self.use_amp:
                from apex import amp

                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

        def fit(self, x: torch.Tensor, y: torch.Tensor) -> None:
            loss = self.criterion(self.model(x), y)
            if self.use_amp:
                from apex import amp

                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()
    """


@pytest.mark.parametrize(
    ("guard", "own"), [("if TYPE_CHECKING:", True), ("if typing.TYPE_CHECKING:", True), ("if numpy:", False)]
)
def test_what_is_only_imported_to_check_types_is_imported_where_it_is_written(guard: str, own: bool) -> None:
    given = CHECKED.format(guard=guard).replace("import numpy\n", "import numpy\n    import typing\n")
    (result,) = rewrite_files({"estimator.py": given}).values()
    assert result.after is not None, result.findings
    fit = result.after.partition("def fit")[2]
    assert fit.partition("\n")[2].startswith("        import torch\n") is own
    assert "with torch.autocast" in fit
    said = given.replace("        def fit", "        # fits\n        def fit").replace(
        "            loss = self.criterion(",
        '            """Fit it."""\n            # the loss\n            loss = self.criterion(',
    )
    (result,) = rewrite_files({"estimator.py": said}).values()
    assert ('"""Fit it."""\n        import torch\n        # the loss\n' in (result.after or "")) is own


DECLARED = """
    import json
    import torch

    class Trainer:
        def __init__(self, fp16):
            self.fp16 = fp16
            self.model = torch.nn.Linear(4, 1)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            if fp16:
                {first}
                {second}
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

        def update(self, x, y):
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            if self.fp16:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()
            return loss.item()

    if __name__ == "__main__":
        print(json.dumps([Trainer(fp16).update(torch.ones(2, 4), torch.ones(2, 1)) for fp16 in (True, False)]))
    """


@pytest.mark.parametrize("declared", ["global amp", "global amp, other"])
@pytest.mark.parametrize("imported", ["from apex import amp", "import apex.amp as amp"])
@pytest.mark.parametrize("before", [True, False])
def test_a_declaration_after_the_import_binds_it_for_the_whole_file(
    declared: str, imported: str, before: bool, tmp_path: Path
) -> None:
    first, second = (declared, imported) if before else (imported, declared)
    texts = check_files({"train.py": DECLARED.format(first=first, second=second)}, device="cpu")
    assert ("global amp" in texts["train.py"]) is ("other" in declared)
    assert len(run_files(tmp_path, texts, "train.py")) == 2


def test_an_import_that_only_a_function_sees_is_still_told_from_the_one_of_the_file() -> None:
    source = DECLARED.replace("                {second}\n", "").format(first="from apex import amp")
    (result,) = rewrite_files({"train.py": source}).values()
    assert any("NameError" in f.message for f in result.findings)


PREPARE = """
    import os
    IMPORT


    def prepare(holder, level):
        from apex import amp
        holder.model, holder.optimizer = amp.initialize(holder.model, holder.optimizer, opt_level=level)
        holder.amp = amp
    """
HOLDER = """
    import torch
    from prepare import prepare


    class Holder:
        def __init__(self, model):
            self.model = model
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            self.amp = None

        def step(self, x):
            self.optimizer.zero_grad()
            loss = self.model(x).pow(2).mean()
            with self.amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
            self.optimizer.step()


    if __name__ == "__main__":
        holder = Holder(torch.nn.Linear(2, 2))
        prepare(holder, "O1")
        holder.step(torch.ones(1, 2))
    """


@pytest.mark.parametrize(
    ("own", "top"),
    [
        ("from tools import mean", True),
        ("import tools", True),
        ("from names import PATH", False),
        ("try:\n        import tools\n    except ImportError:\n        tools = None", False),
    ],
)
def test_torch_is_imported_at_the_top_of_a_file_whose_own_imports_load_it(own: str, top: bool) -> None:
    files = {
        "prepare.py": PREPARE.replace("IMPORT", own),
        "tools.py": "import deep\n\n\ndef mean(x):\n    return x.mean()\n",
        "deep.py": "import torch\nimport tools\n",
        "names.py": "PATH = 'x'\n",
        "main.py": HOLDER,
    }
    after = check_files(files, device="cpu")["prepare.py"]
    assert ("\nimport torch\n" in after) == top
    assert ("    import torch\n" in after) != top
