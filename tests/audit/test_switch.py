"""The switch (AMP532), operations that autocast refuses (AMP533), weights left in half (AMP534)."""

from __future__ import annotations

from tests.audit.helpers import doubts, told

BEFORE = """
import argparse, sys
import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", OPTION)
args = parser.parse_args()
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = LOSS
if args.fp16:
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
for x, y in loader:
    loss = criterion(torch.sigmoid(model(x)), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
AFTER = """
import argparse, sys
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", OPTION)
args = parser.parse_args()
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = LOSS
scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
        loss = criterion(torch.sigmoid(model(x)), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def both(option: str = 'action="store_true"', loss: str = "torch.nn.MSELoss()") -> tuple[str, str]:
    fill = {"OPTION": option, "LOSS": loss}
    before, after = BEFORE, AFTER
    for name, text in fill.items():
        before, after = before.replace(name, text), after.replace(name, text)
    return before, after


def test_a_flag_that_is_a_bool() -> None:
    assert not doubts(*both())


def test_a_key_that_nothing_writes() -> None:
    before, after = both()
    before += '\ntorch.save({"amp": amp.state_dict()}, "x.pt")\n'
    after = after.replace('GradScaler("cuda", enabled=args.fp16)', 'GradScaler("cuda", enabled="amp" in args.state)')
    after += '\ntorch.save({"scaler": scaler.state_dict()}, "x.pt")\n'
    assert [v for _, v in told(doubts(before, after), "AMP532")] == ["refuse"]


def test_a_scaler_without_any_region() -> None:
    before, after = both()
    after = after.replace(
        '    with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):\n        loss', "    loss"
    )
    assert [v for _, v in told(doubts(before, after), "AMP532")] == ["review"]


def test_bce_in_the_region() -> None:
    found = doubts(*both(loss="torch.nn.BCELoss()"))
    assert [v for _, v in told(found, "AMP533")] == ["refuse"]


def test_bce_out_of_the_region() -> None:
    before, after = both(loss="torch.nn.BCELoss()")
    after = after.replace(
        "        loss = criterion(torch.sigmoid(model(x)), y)\n",
        "        out = model(x)\n    loss = criterion(torch.sigmoid(out.float()), y)\n",
    )
    assert not told(doubts(before, after), "AMP533")


def test_bce_behind_a_class_and_a_dictionary() -> None:
    cls = """
class Loss(torch.nn.Module):
    def forward(self, p, y):
        return torch.nn.functional.binary_cross_entropy(p, y)

model ="""
    before, after = (t.replace("\nmodel =", cls, 1) for t in both(loss="Loss()"))
    assert [v for _, v in told(doubts(before, after), "AMP533")] == ["refuse"]
    found = doubts(*both(loss='{"bce": torch.nn.BCELoss, "mse": torch.nn.MSELoss}[args.loss]()'))
    assert [v for _, v in told(found, "AMP533")] == ["refuse"]


LEGACY = """
import torch
from apex.fp16_utils import FP16_Optimizer

model = torch.nn.Linear(4, 2).cuda()
model.half()
optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), dynamic_loss_scale=True)
for x, y in loader:
    optimizer.backward(torch.nn.functional.mse_loss(model(x), y))
    optimizer.step()
"""
NATIVE = """
import torch

model = torch.nn.Linear(4, 2).cuda()
model.half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def test_weights_still_made_half() -> None:
    assert [v for _, v in told(doubts(LEGACY, NATIVE), "AMP534")] == ["refuse"]
    assert not told(doubts(LEGACY, NATIVE.replace("model.half()\n", "")), "AMP534")


def test_weights_made_half_when_training_is_over() -> None:
    before, after = (t.replace("model.half()\n", "") + "model.half()\n" for t in (LEGACY, NATIVE))
    assert not told(doubts(before, after), "AMP534")


def test_a_builder_that_is_asked_for_half_weights() -> None:
    before, after = (
        t.replace("torch.nn.Linear(4, 2).cuda()\nmodel.half()", "models.get_model(to_fp16=True)").replace(
            "import torch\n", "import torch\nimport models\n", 1
        )
        for t in (LEGACY, NATIVE)
    )
    assert [v for _, v in told(doubts(before, after), "AMP534")] == ["refuse"]


def test_half_weights_that_initialize_refused_before() -> None:
    before, after = both()
    half = "model = torch.nn.Linear(4, 2).cuda()\nif args.fp16:\n    model.half()"
    before = before.replace("model = torch.nn.Linear(4, 2).cuda()", half)
    after = after.replace("model = torch.nn.Linear(4, 2).cuda()", half)
    assert [v for _, v in told(doubts(before, after), "AMP534")] == ["review"]


def test_half_weights_of_another_mode() -> None:
    before, after = both()
    half = "model = torch.nn.Linear(4, 2).cuda()\nif not args.fp16:\n    model.half()"
    before = before.replace("model = torch.nn.Linear(4, 2).cuda()", half)
    after = after.replace("model = torch.nn.Linear(4, 2).cuda()", half)
    assert not told(doubts(before, after), "AMP534")


PARAMETER = """
import torch
from apex import amp

def train(model, optimizer, loader, use_amp=False):
    for x in loader:
        loss = model(x)
        if use_amp:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
"""
PARAMETER_AFTER = """
import torch

def train(model, optimizer, loader, scaler, use_amp=False):
    for x in loader:
        with torch.autocast("cuda", enabled=ENABLED):
            loss = model(x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def test_a_parameter_that_chose_and_is_read_no_more() -> None:
    found = doubts(PARAMETER, PARAMETER_AFTER.replace("ENABLED", "scaler.is_enabled()"))
    assert [d.verdict for d in found if "reads its parameter use_amp no more" in d.message] == ["look"]


def test_a_parameter_that_still_switches() -> None:
    found = doubts(PARAMETER, PARAMETER_AFTER.replace("ENABLED", "use_amp"))
    assert not [d for d in found if "reads its parameter" in d.message]
