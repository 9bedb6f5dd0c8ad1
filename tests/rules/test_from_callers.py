"""Files whose callers are out of sight take the scaler from them, wherever these hand the optimizer over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files
from tests.rules.test_from_users import ENGINE, refused, use


@pytest.mark.parametrize(("given", "grown"), [("scaler=scaler", 3), ("half=True", 0), ("", 0)])
def test_a_file_on_its_own_works_for_whoever_calls_it(tmp_path: Path, given: str, grown: int) -> None:
    results = rewrite_files({"engine.py": ENGINE}, device="cpu")
    told, inner = (f for f in results["engine.py"].findings if f.code == "AMP228")
    assert (told.review, inner.review) == ("review", "look")
    assert told.message.endswith("rewrite it together with this one instead")
    program = (
        "from engine import train_epoch\n"
        f"train_epoch(model, optimizer, criterion, loader, {given})\n"
        "print(json.dumps({'grown': scaler.state_dict()['_growth_tracker']}))"
    )
    assert use(tmp_path, {"engine.py": results["engine.py"].after or ""}, program) == {"grown": grown}


BASE = """
    import torch
    from apex import amp


    class Plain:
        def __init__(self, model, optimizer, criterion):
            self.model = model
            self.optimizer = optimizer
            self.criterion = criterion

        def step(self, x, y):
            loss = self.criterion(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


    class Half(Plain):
        def step(self, x, y):
            out = self.model(x)
            loss = self.criterion(out.float(), y)
            self.optimizer.zero_grad()
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()
            return str(out.dtype)
    """
MAKES = """
    import torch
    from apex import amp


    class Fitter:
        def __init__(self, model, criterion, settings):
            self.model = model
            self.optimizer = settings["kind"](self.model.parameters(), lr=0.1)
            self.criterion = criterion

        def fit(self, loader):
            for x, y in loader:
                self.optimizer.zero_grad()
                out = self.model(x)
                loss = self.criterion(out.float(), y)
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
            return str(out.dtype)
    """
METHOD = """
    import torch
    from apex import amp


    class Tuner:
        def __init__(self, model):
            self.model = model

        def tune(self, criterion, optimizer, loader):
            for x, y in loader:
                out = self.model(x)
                loss = criterion(out.float(), y)
                optimizer.zero_grad()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
            return str(out.dtype)
    """
CLOSURE = """
    import torch
    from apex import amp


    def make_step(model, optimizer, criterion):
        def step(x, y):
            out = model(x)
            loss = criterion(out.float(), y)
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            return str(out.dtype)

        return step
    """


@pytest.mark.parametrize(
    ("source", "called"),
    [
        (BASE, "half = Half(model, optimizer, criterion{})\nfor x, y in loader: seen = half.step(x, y)"),
        (METHOD, "seen = Tuner(model).tune(criterion, optimizer, loader{})"),
        (MAKES, "seen = Fitter(model, criterion, {{'kind': torch.optim.SGD}}{}).fit(loader)"),
        (CLOSURE, "step = make_step(model, optimizer, criterion{})\nfor x, y in loader: seen = step(x, y)"),
    ],
    ids=["kept by the base", "handed to a method", "made by itself", "returned"],
)
def test_what_takes_the_optimizer_takes_the_scaler(tmp_path: Path, source: str, called: str) -> None:
    text = check_files({"parts.py": source}, device="cpu")["parts.py"]
    told = "\nprint(json.dumps([seen, scaler.state_dict()['_growth_tracker']]))"
    for given, seen in ((", scaler=scaler", ["torch.float16", 3]), ("", ["torch.float32", 0])):
        assert use(tmp_path, {"parts.py": text}, "from parts import *\n" + called.format(given) + told) == seen


FOREIGN = METHOD.replace("class Tuner:", "class Tuner(framework.Hook):").replace(
    "    import torch\n", "    import torch\n    import framework\n"
)
OVERRIDDEN = (
    METHOD
    + """

    class Slow(Tuner):
        def tune(self, criterion, optimizer, loader):
            return super().tune(criterion, optimizer, list(loader))
    """
)
OLDER = (
    METHOD
    + """

    def wrap(optimizer):
        from apex.fp16_utils import FP16_Optimizer

        return FP16_Optimizer(optimizer)
    """
)


@pytest.mark.parametrize("source", [FOREIGN, OVERRIDDEN, OLDER], ids=["framework", "overridden", "older set-up"])
def test_a_method_that_not_only_its_users_call_stays(source: str) -> None:
    refused({"parts.py": source})


HELPER = """
    import torch
    from apex import amp


    def go_back(loss, optimizer):
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """


def test_a_helper_that_computes_nothing_is_a_part_of_a_program_unless_it_is_a_library_s() -> None:
    refused({"helper.py": HELPER})
    results = rewrite_files({"lib/__init__.py": "", "lib/helper.py": HELPER})
    assert "scaler.scale(loss).backward()" in (results["lib/helper.py"].after or "")
    (told,) = (f for f in results["lib/helper.py"].findings if f.code == "AMP228")
    assert "what computes the loss is out of sight, and belongs under torch.autocast" in told.message
