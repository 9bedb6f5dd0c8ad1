"""An option of the name under which an object keeps amp: `if args.amp: self.amp = amp`. And a field that is asked for by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files

LEARNERS = """
    import torch

    class Learner:
        def __init__(self, cfg):
            self.cfg = cfg
            if self.cfg.amp:
                from apex import amp
                self.amp = amp

        def loss(self, model, x, y, optimizer):
            loss = torch.nn.functional.mse_loss(model(x), y)
            if ASKED:
                with self.amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            return loss
    """
OTHER = """
    class Other:
        def __init__(self, cfg):
            self.cfg = cfg
            self.amp = False
            if self.cfg.amp:
                from apex import amp
                self.amp = amp
            if self.amp:
                raise ValueError("no mixed precision here")
    """
MAIN = """
    import json
    import sys
    import types
    import torch
    from learner import Learner
    from other import Other

    def main(args):
        print("16-bits training:", args.amp, file=sys.stderr)
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        learner = {"a": Learner, "b": Other}[args.learner](args)
        if args.amp:
            from apex import amp
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        loader = [(torch.ones(2, 4) * i, torch.ones(2, 1)) for i in range(1, 4)]
        return [step(learner, model, optimizer, x, y) for x, y in loader]

    def step(learner, model, optimizer, x, y):
        optimizer.zero_grad()
        loss = learner.loss(model, x, y, optimizer)
        optimizer.step()
        return round(float(loss), 4)

    said = []
    for learner, amp in (("a", False), ("b", True)):
        try:
            said.append(main(types.SimpleNamespace(learner=learner, amp=amp)))
        except ValueError as error:
            said.append(str(error))
    print(json.dumps(said))
    """
ASKED = (
    'hasattr(self, "amp")',
    'getattr(self, "amp", None)',
    'getattr(self, "amp", None) is not None',
    'loss.ndim == 0 and hasattr(self, "amp")',
)


@pytest.mark.parametrize("asked", ASKED)
def test_an_option_of_the_same_name(asked: str) -> None:
    files = {"learner.py": LEARNERS.replace("ASKED", asked), "other.py": OTHER, "main.py": MAIN}
    texts = check_files(files, device="cpu")
    assert "        scaler.scale(loss).backward()\n        return loss" in texts["learner.py"], "what the else did, too"
    assert "if self.cfg.amp:\n            raise ValueError" in texts["other.py"], "asked before anything is set up"
    assert "args.amp, file=" in texts["main.py"]


def test_what_a_test_by_name_guards_stays_guarded() -> None:
    files = {
        "learner.py": LEARNERS.replace("ASKED", ASKED[0]).replace(
            "else:\n                loss", "else:\n                self.plain = loss"
        )
    }
    files |= {"other.py": OTHER, "main.py": MAIN}
    assert "        if scaler.is_enabled():\n" in check_files(files, device="cpu")["learner.py"]


def test_it_runs(tmp_path: Path) -> None:
    files = {"learner.py": LEARNERS.replace("ASKED", 'hasattr(self, "amp")'), "other.py": OTHER, "main.py": MAIN}
    trained, refused = run_files(tmp_path, check_files(files, device="cpu"), "main.py")
    assert len(trained) == 3
    assert all(isinstance(loss, float) for loss in trained)
    assert refused == "no mixed precision here"


@pytest.mark.parametrize("beside", ["self.amp = False", "self.amp = None", "self.amp = cfg.other"])
def test_a_field_that_may_hold_something_else_is_not_asked_by_name(beside: str) -> None:
    """`hasattr` is true then in every run, as it was."""
    source = LEARNERS.replace(
        "            if self.cfg.amp", f"            {beside}\n            if self.cfg.amp"
    ).replace("ASKED", 'hasattr(self, "amp")')
    after = rewrite(source).after or source
    assert 'if hasattr(self, "amp"):' in after
