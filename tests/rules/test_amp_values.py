"""`amp` itself as a value, by whatever way it comes where it is used: there the scaler comes then. Programs are run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files, run_files
from tests.rules.trained import check_trained

SET_UP = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
STEP = """
def advance(model, optimizer, HELD, x, y):
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    with HELD.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(model.parameters(), 0.05).item())
    optimizer.step()
"""


def step(parameter: str, held: str) -> str:
    return STEP.replace("HELD, x", f"{parameter}, x").replace("HELD", held)


TRAINER = """
class Trainer:
    def __init__(self, model, optimizer, PARAMETER):
        self.model, self.optimizer = model, optimizer
        STORE

    def train(self):
        for x, y in loader:
            loss = criterion(self.model(x), y)
            self.optimizer.zero_grad()
            if ASKED:
                with self.amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            seen.append(clip_grad_norm_(self.model.parameters(), 0.05).item())
            self.optimizer.step()
"""


def trainer(parameter: str = "amp", store: str = "self.amp = amp", asked: str = "self.amp is not None") -> str:
    return TRAINER.replace("PARAMETER", parameter).replace("STORE", store).replace("ASKED", asked)


LOOP = "for x, y in loader:\n    advance(model, optimizer, {}, x, y)\n"
WAYS = {
    "by all names handed on": (
        step("amp", "amp")
        + f"""
def run(**parts):
    advance(**parts)

{SET_UP}
for x, y in loader:
    run(model=model, optimizer=optimizer, amp=amp, x=x, y=y)
""",
        ("run(model=model, optimizer=optimizer, scaler=scaler, x=x, y=y)", "    advance(**parts)\n"),
    ),
    "under a key": (
        step("state", 'state["amp"]') + f'state = {{}}\n{SET_UP}\nstate["amp"] = amp\n' + LOOP.format("state"),
        ('state["scaler"] = scaler', 'state["scaler"].step(optimizer)'),
    ),
    "in a mapping that is written out": (
        step("state", 'state["amp"]') + f'{SET_UP}\nstate = {{"rate": 0.1, "amp": amp}}\n' + LOOP.format("state"),
        ('"scaler": scaler}', 'state["scaler"].scale(loss).backward()'),
    ),
    "what a helper imports": (
        step("amp", "amp")
        + f"def get_amp():\n    from apex import amp\n    return amp\n\namp = get_amp()\n{SET_UP}\n"
        + LOOP.format("amp"),
        ("advance(model, optimizer, scaler, x, y)",),
    ),
    "given back beside the model": (
        f"{step('amp', 'amp')}def prepare(model, optimizer):\n    from apex import amp\n    {SET_UP}\n"
        "    return model, optimizer, amp\n\nmodel, optimizer, amp = prepare(model, optimizer)\n" + LOOP.format("amp"),
        ("return model, optimizer, scaler", "model, optimizer, scaler = prepare(model, optimizer)"),
    ),
    "chosen where it is handed over": (
        trainer("amp=None")
        + f"fp16 = True\nif fp16:\n    {SET_UP}\nTrainer(model, optimizer, amp=amp if fp16 else None).train()\n",
        ("Trainer(model, optimizer, scaler=scaler)", "self.scaler = scaler", "enabled=fp16)"),
    ),
    "a choice with a name": (
        trainer()
        + f"fp16 = True\nif fp16:\n    {SET_UP}\nmixed = amp if fp16 else None\nTrainer(model, optimizer, mixed).train()\n",
        ("Trainer(model, optimizer, scaler).train()",),
    ),
    "chosen where it is kept": (
        trainer("fp16", "self.amp = amp if fp16 else None") + f"{SET_UP}\nTrainer(model, optimizer, True).train()\n",
        ("self.scaler = scaler",),
    ),
    "kept where it is used": (
        trainer("fp16", "if fp16:\n            self.amp = amp\n        self.fp16 = fp16", "self.fp16")
        + f"fp16 = True\nif fp16:\n    {SET_UP}\nTrainer(model, optimizer, fp16).train()\n",
        ("        self.scaler = scaler\n        self.fp16",),
    ),
    "side by side": (
        trainer(store="self.rate, self.amp = 0.1, amp") + f"{SET_UP}\nTrainer(model, optimizer, amp).train()\n",
        ("self.rate, self.scaler = 0.1, scaler",),
    ),
    "unpacked for a constructor": (
        trainer()
        + f"{SET_UP}\nparts = {{'model': model, 'optimizer': optimizer, 'amp': amp}}\nTrainer(**parts).train()\n",
        ("'scaler': scaler}", "def __init__(self, model, optimizer, scaler):"),
    ),
    "by what derives from it": (
        trainer("amp=None")
        + "class Fine(Trainer):\n    def __init__(self, model, optimizer, amp):\n"
        + f"        super().__init__(model, optimizer, amp=amp)\n\n{SET_UP}\nFine(model, optimizer, amp).train()\n",
        ("super().__init__(model, optimizer, scaler=scaler)",),
    ),
    "set later": (
        trainer("fp16=True", "self.amp = None")
        + "\n    def use(self, amp):\n        self.amp = amp\n\n"
        + f"{SET_UP}\nmine = Trainer(model, optimizer)\nmine.use(amp)\nmine.train()\n",
        ('self.scaler = torch.amp.GradScaler("cpu", enabled=False)', "def use(self, scaler):"),
    ),
    "handed on by an object": (
        trainer()
        + "class Run:\n    def __init__(self, model, optimizer, amp):\n        self.trainer = Trainer(model, optimizer, amp)\n\n"
        + f"{SET_UP}\nRun(model, optimizer, amp).trainer.train()\n",
        ("self.trainer = Trainer(model, optimizer, scaler)", "Run(model, optimizer, scaler)"),
    ),
    "a helper that only needs the parameters": (
        "def clip(optimizer, amp, limit):\n    return clip_grad_norm_(amp.master_params(optimizer), limit)\n"
        + step("amp", "amp").replace("clip_grad_norm_(model.parameters(), 0.05)", "clip(optimizer, amp, 0.05)")
        + f"{SET_UP}\n"
        + LOOP.format("amp"),
        ("clip(optimizer, scaler, 0.05)",),
    ),
}


@pytest.mark.parametrize(("program", "expected"), WAYS.values(), ids=WAYS)
def test_the_scaler_comes_where_amp_came(program: str, expected: tuple[str, ...]) -> None:
    text = check_trained(program)
    assert all(part in text for part in expected), text
    assert "amp" not in text.replace("torch.amp.", "").replace("get_amp", "")


FIELDS = f"""
import json
from dataclasses import dataclass
from typing import Any

import torch
from apex import amp

@dataclass
class State:
    rate: float
    amp: Any = None

def advance(state, model, optimizer):
    loss = torch.nn.functional.mse_loss(model(torch.ones(3, 2)), torch.ones(3, 1))
    with state.amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{SET_UP}
state = State(0.1, amp=amp)
advance(state, model, optimizer)
print(json.dumps(state.SCALE))
"""


def test_a_field_of_a_dataclass(tmp_path: Path) -> None:
    texts = check_files({"train.py": FIELDS.replace("state.SCALE", "state.rate")}, device="cpu")
    assert "    scaler: Any = None" in texts["train.py"]
    assert "state = State(0.1, scaler=scaler)" in texts["train.py"]
    texts["train.py"] = texts["train.py"].replace("dumps(state.rate)", "dumps(type(state.scaler).__name__)")
    assert run_files(tmp_path, texts, "train.py") == "GradScaler"


def test_a_function_that_only_imported_it_goes_from_every_file() -> None:
    files = {
        "train.py": f"import torch\nfrom parts import criterion, loader, model, optimizer\nfrom tools import get_amp, seed\n\n"
        f"seed(1)\namp = get_amp()\n{SET_UP}\nfor x, y in loader:\n    loss = criterion(model(x), y)\n"
        "    with amp.scale_loss(loss, optimizer) as scaled:\n        scaled.backward()\n    optimizer.step()\n",
        "tools.py": "def seed(number):\n    print(number)\n\n\ndef get_amp():\n    try:\n        from apex import amp\n"
        "    except ImportError:\n        raise ImportError('please install apex')\n    return amp\n",
    }
    texts = check_files(files)
    assert "from tools import seed\n" in texts["train.py"]
    assert texts["tools.py"].strip() == "def seed(number):\n    print(number)"


def test_what_a_function_that_gives_it_back_is_told_is_no_key() -> None:
    files = {
        "train.py": "import torch\nimport tools\nfrom parts import criterion, loader, model, optimizer\n\n"
        'amp = tools.prepare("amp", model, optimizer)\nfor x, y in loader:\n    loss = criterion(model(x), y)\n'
        "    with amp.scale_loss(loss, optimizer) as scaled:\n        scaled.backward()\n    optimizer.step()\n",
        "tools.py": "from apex import amp\n\n\ndef prepare(kind, model, optimizer):\n    print(kind)\n"
        f"    {SET_UP}\n    return amp\n",
    }
    assert 'scaler = tools.prepare("amp", model, optimizer)' in check_files(files)["train.py"]


RESUMED = """
def restore(model, optimizer, amp, path):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    if amp is not None and "amp" in state:
        amp.load_state_dict(state["amp"])
    return model, optimizer, amp, state["epoch"]

def main(model, optimizer, fp16, path):
    if fp16:
        from apex import amp
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    else:
        amp = None
    epoch = 0
    if path:
        model, optimizer, amp, epoch = restore(model, optimizer, amp, path)
    for x, y in loader:
        loss = criterion(model(x), y)
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
        seen.append(clip_grad_norm_(model.parameters(), 0.05).item())
        optimizer.zero_grad()

main(model, optimizer, True, "")
"""


def test_what_is_handed_in_and_given_back_is_the_scaler() -> None:
    text = check_trained(RESUMED)
    assert "model, optimizer, scaler, epoch = restore(model, optimizer, scaler, path)" in text
    assert "    return model, optimizer, scaler, state" in text


SAVER = """
import torch

class Saver:
    def __init__(self, model, amp=None):
        self.model = model
        self.amp = amp

    def save(self, path):
        state = {"model": self.model.state_dict()}
        if self.amp is not None:
            state["amp"] = self.amp.state_dict()
        torch.save(state, path)

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        if self.amp is not None and "amp" in state:
            self.amp.load_state_dict(state["amp"])
"""
SAVED = f"""
import json
import torch
from apex import amp
from saver import Saver

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{SET_UP}
saver = Saver(model, amp)
for x, y in [(torch.ones(3, 2), torch.ones(3, 1))]:
    loss = torch.nn.functional.mse_loss(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
saver.save("last.pt")
saver.load("last.pt")
print(json.dumps(sorted(torch.load("last.pt"))))
"""
PLAIN = """
import json
import torch
from saver import Saver

saver = Saver(torch.nn.Linear(2, 1))
saver.save("plain.pt")
saver.load("plain.pt")
print(json.dumps(True))
"""


def test_who_only_saves_it_may_be_given_none(tmp_path: Path) -> None:
    """A script that trains in float32 has a scaler that does nothing, and its file is loaded by both."""
    texts = check_files({"saver.py": SAVER, "train.py": SAVED, "plain.py": PLAIN}, device="cpu")
    assert texts["plain.py"] == PLAIN.lstrip()
    assert run_files(tmp_path, texts, "train.py") == ["model", "scaler"]
    assert run_files(tmp_path, texts, "plain.py") is True
    texts["train.py"] = texts["train.py"].replace('saver.load("last.pt")', 'saver.load("plain.pt")')
    run_files(tmp_path, texts, "train.py")


LEFT_OUT = """
def train(model, optimizer, amp=None):
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        if amp is not None:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        seen.append(clip_grad_norm_(model.parameters(), 0.05).item())
        optimizer.step()

fp16 = FP16
if fp16:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    train(model, optimizer, amp=amp)
else:
    train(model, optimizer)
"""


@pytest.mark.parametrize("fp16", ["True", "False"])
def test_who_is_called_without_it_trains_with_one_that_is_off(fp16: str) -> None:
    text = check_trained(LEFT_OUT.replace("FP16", fp16))
    assert "    if scaler is None:\n        scaler = torch.amp.GradScaler(" in text
    assert "enabled=scaler.is_enabled())" in text
    assert "    train(model, optimizer)\n" in text


KEYS = """
import torch
from apex import amp
from loop import Loop
from parts import loader, model, optimizer

config = {"fp16": True}
SET_UP
loop = Loop(config)
for x, y in loader:
    loop.step(model, optimizer, x, y)
"""
KEYS_LOOP = """
import torch

class Loop:
    def __init__(self, config):
        self.config = config

    def step(self, model, optimizer, x, y):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        if self.config["fp16"]:
            with self.config["amp"].scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
"""


def test_a_key_that_only_some_runs_had_is_there_in_all() -> None:
    set_up = 'if config["fp16"]:\n    model, optimizer = amp.initialize(model, optimizer)\n    config["amp"] = amp'
    texts = check_files({"train.py": KEYS.replace("SET_UP", set_up), "loop.py": KEYS_LOOP})
    assert '\nconfig["scaler"] = scaler\n' in texts["train.py"]
    assert 'self.config["scaler"].step(optimizer)' in texts["loop.py"]


def test_a_key_that_only_some_runs_have_is_no_place_for_it() -> None:
    set_up = 'model, optimizer = amp.initialize(model, optimizer)\nif config["late"]:\n    config["amp"] = amp'
    results = rewrite_files({"train.py": KEYS.replace("SET_UP", set_up), "loop.py": KEYS_LOOP})
    (told,) = [f for f in results["loop.py"].findings if f.code == "AMP227"]
    assert "only some runs come here" in told.message
    assert "\nscaler = torch.amp.GradScaler(" in (results["loop.py"].after or "")


def test_a_mapping_that_lacks_the_key_is_no_place_for_it() -> None:
    files = {
        "loop.py": """
            import torch

            def train(model, optimizer, loader, context):
                for x, y in loader:
                    loss = torch.nn.functional.cross_entropy(model(x), y)
                    if context.get("amp") is not None:
                        with context["amp"].scale_loss(loss, optimizer) as scaled_loss:
                            scaled_loss.backward()
                    else:
                        loss.backward()
                    optimizer.step()
            """,
        "train.py": """
            from apex import amp
            from loop import train
            from parts import loader, model, optimizer

            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            train(model, optimizer, loader, {"amp": amp})
            """,
        "plain.py": """
            from loop import train
            from parts import loader, model, optimizer

            train(model, optimizer, loader, {"rate": 1})
            """,
    }
    results = rewrite_files(files)
    (told,) = [f for f in results["loop.py"].findings if f.code == "AMP227"]
    assert "plain.py:4: this hands over no 'amp'" in told.message
    assert results["plain.py"].after is None
    assert "\nscaler = torch.amp.GradScaler(" in (results["loop.py"].after or "")


ASKED = """
import torch
from apex import amp
from parts import criterion, loader, model, optimizer

def save(path, model, **more):
    state = {"model": model.state_dict()}
    amp = more.get("amp", None)
    if amp is not None:
        state["amp"] = amp.state_dict()
    torch.save(state, path)

model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
save("last.pt", model, amp=amp)
save("plain.pt", model)
"""


def test_what_is_asked_of_all_other_names() -> None:
    text = check_files({"train.py": ASKED})["train.py"]
    assert '    scaler = more.get("scaler", None)\n    if scaler is not None and scaler.is_enabled():\n' in text
    assert 'save("last.pt", model, scaler=scaler)' in text


def test_what_took_it_out_of_a_mapping_is_nothing_that_stays_with_apex() -> None:
    (result,) = rewrite_files({"train.py": ASKED.replace("def save", "print('with Apex')\n\ndef save", 1)}).values()
    assert [f.line for f in result.findings if f.code == "AMP854"] == [5]


@pytest.mark.parametrize(
    ("prepare", "use"),
    [
        ("", 'options["amp"].nothing()'),  # what no rule knows
        ('options["amp"] = True', 'print(options["amp"])'),  # a flag in the same place
    ],
)
def test_what_else_is_done_with_it_is_told(prepare: str, use: str) -> None:
    program = f"""
import torch
from apex import amp
from parts import criterion, loader, model, optimizer

def run(options, loss):
    {use}
    with options["amp"].scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()

options = {{}}
{prepare}
{SET_UP}
options["amp"] = amp
for x, y in loader:
    run(options, criterion(model(x), y))
"""
    result: Any = rewrite(program)
    assert result.after is None
    assert [f for f in result.findings if f.status == "manual"]


def test_an_annotation_stays_right() -> None:
    program = STEP.replace("HELD, x", "amp: object, x").replace("HELD", "amp")
    text = check_trained(f"{program}{SET_UP}\n" + LOOP.format("amp"))
    assert "def advance(model, optimizer, scaler: object, x, y):" in text
