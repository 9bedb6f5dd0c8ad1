"""Forwards that are not seen to come after the set-up: told where a run may come to them, once for a program."""

from __future__ import annotations

import pytest

from tests.audit.helpers import Doubt, doubts_of

LIBRARY = {
    "lib/__init__.py": "from .nets import Net\nfrom .hooks import HOOKS, Hook\nfrom .tools import count\nfrom .flow import Flow\n",
    "lib/nets.py": """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.body(x)
""",
    "lib/hooks.py": """
import torch

class Hook:
    def __init__(self, teacher):
        self.teacher = teacher
        self.teacher.eval()

    def on_forward(self, task, x):
        return self.teacher(x)

HOOKS = {"teacher": Hook}
""",
    "lib/tools.py": """
import torch

def count(model, x):
    model.eval()
    return model(x).numel()
""",
    "lib/flow.py": """
import torch

class Flow:
    def __init__(self, model):
        self.model = model
        self.model.eval()

    def run(self, x):
        with torch.no_grad():
            return self.model(x)
""",
}
MAIN = """
import torch
import torch.nn.functional as F
from lib import Net, HOOKS, Flow
IMPORT

def main(args):
    model = Net().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    SETUP
    USE
    for x, y in loader:
        STEP

RUN
"""
STEP = """
        loss = F.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
AFTER_STEP = """
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def said(use: str, run: str = "main(parse())", **more: str) -> list[Doubt]:
    text = MAIN.replace("USE", use).replace("RUN", run)
    initialize = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    before = text.replace("IMPORT", "from apex import amp").replace("SETUP", initialize)
    after = text.replace("IMPORT", "").replace("SETUP", 'scaler = torch.amp.GradScaler("cuda")')
    found = doubts_of(
        {**LIBRARY, **more, "main.py": before.replace("        STEP\n", STEP)},
        {"main.py": after.replace("        STEP\n", AFTER_STEP)},
    )
    return [d for d in found if d.code == "AMP531"]


def test_what_a_library_has_beside_is_not_told() -> None:
    assert not said("print(model)")


def test_what_a_run_may_make_is() -> None:
    (doubt,) = said("args.task.add(HOOKS[args.hook](model))")
    assert (doubt.path, doubt.verdict) == ("lib/hooks.py", "look")
    assert doubt.message.startswith("self.teacher in Hook.on_forward: that this comes after amp.initialize is not seen")
    assert "; so for" not in doubt.message


def test_several_are_told_once_with_the_place_of_each() -> None:
    (doubt,) = said("args.task.add(HOOKS[args.hook](model), Flow(model))")
    assert doubt.path == "lib/flow.py"
    assert doubt.message.endswith("; so for self.teacher in Hook.on_forward (lib/hooks.py:9)")


def test_the_users_of_a_library_may_run_all_of_it() -> None:
    (doubt,) = said("print(model)", run="")
    assert "count (lib/tools.py:5)" in doubt.message
    assert "Hook.on_forward (lib/hooks.py:9)" in doubt.message


BESIDE = """def score(model, x):
    model.eval()
    return model(x)

if __name__ == "__main__":
    main(parse())"""


@pytest.mark.parametrize(
    ("use", "more", "told_of"),
    [
        ("print(model)", {}, False),
        ("print(model)", {"other.py": "from main import score\n\ndef again():\n    return score\n"}, True),
        ("import fire; fire.Fire()", {}, True),
    ],
)
def test_what_a_script_defines_and_never_names_is_not_told(use: str, more: dict[str, str], told_of: bool) -> None:
    found = said(use, run=BESIDE, **more)
    assert ["model in score" in d.message for d in found] == [True] * told_of


@pytest.mark.parametrize(
    ("path", "told_of"),
    [
        ("lib/tests/nets_test.py", False),
        ("lib/test/test_nets.py", False),
        ("lib/nets_test.py", True),
        ("lib/tests/nets.py", True),
    ],
)
def test_what_stands_beside_tests_is_run_by_them(path: str, told_of: bool) -> None:
    tester = LIBRARY["lib/tools.py"].replace("def count(", "class Tester:\n    @staticmethod\n    def check(")
    tester = tester.replace("\n    model", "\n        model").replace("\n    return", "\n        return")
    imports = f"{LIBRARY['lib/__init__.py']}from {path[:-3].replace('/', '.')} import Tester\n"
    (doubt,) = said("print(model)", run="", **{path: tester, "lib/__init__.py": imports})
    assert ("Tester.check" in doubt.message) is told_of


def test_what_overrides_a_method_in_the_same_file_is_told_with_it() -> None:
    override = """

class Timed(Hook):
    def on_forward(self, task, x):
        with torch.no_grad():
            return self.teacher(x)
"""
    hooks = LIBRARY["lib/hooks.py"] + override
    (doubt,) = said("args.task.add(hooks.Timed(model), HOOKS[args.hook](model))", **{"lib/hooks.py": hooks})
    assert "self.teacher in Hook.on_forward: that this comes" in doubt.message
    assert "; so for self.teacher in Timed.on_forward (lib/hooks.py:" in doubt.message
