"""A network that the program made float32 is run in no region of the migration's where only weights were half: AMP531."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of

HEAD = """
import torch
from halves import network_to_half

model = network_to_half(torch.nn.Linear(4, 2).cuda())
MADE
with torch.no_grad():
    print(model(torch.ones(3, 4).cuda()))
"""
AFTER = """
import torch
from halves import network_to_half

model = torch.nn.Linear(4, 2).cuda()
MADE
with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
    print(model(torch.ones(3, 4).cuda()))
"""
TRAIN = """
import torch
from apex.fp16_utils import FP16_Optimizer
from halves import network_to_half

model = network_to_half(torch.nn.Linear(4, 2).cuda())
optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), static_loss_scale=128.0)
optimizer.backward(model(torch.ones(3, 4).cuda()).float().sum())
optimizer.step()
"""
HALVES = """
def network_to_half(network):
    return network.half()
"""
MADE = {
    "assigned": ("model = model.float()", True),
    "in place": ("model.float()", True),
    "and more": ("model = model.float().eval()\nmodel.eval()", True),
    "half again": ("model = model.float()\nmodel = network_to_half(model)", False),
    "half again in place": ("model = model.float()\nmodel.half()", False),
    "another dtype by name": ("model = model.float()\nmodel.double()", False),
    "whatever a function makes of its parts": ("model = model.float()\nmodel.apply(prepare)", False),
    "handed to what makes it half": ("model = model.float()\nprepare(model)", False),
    "another dtype": ("model = model.float()\nmodel.to(kind)", False),
    "another dtype, assigned": ("model = model.float()\nmodel = model.to(kind).eval()", False),
    "another device": ("model = model.float()\nmodel = model.to(device)", True),
    "another one": ("model = model.float()\nmodel = torch.load('net.pt')", False),
    "never": ("model.eval()", False),
    "under a condition": ("if input():\n    model = model.float()", False),
    "its output": ("print(model(torch.ones(1, 4)).float())", False),
}


@pytest.mark.parametrize(("made", "told"), MADE.values(), ids=MADE.keys())
def test_what_is_made_float_runs_in_float(made: str, told: bool) -> None:
    before = {"halves.py": HALVES, "train.py": TRAIN, "show.py": HEAD.replace("MADE", made)}
    found = doubts_of(before, {"show.py": AFTER.replace("MADE", made)})
    assert any("is made float32 above" in d.message for d in found) == told


def test_under_o1_it_ran_in_half_all_the_same() -> None:
    setup = (
        "from apex import amp\nmodel = torch.nn.Linear(4, 2).cuda()\nmodel = amp.initialize(model, opt_level='O1')\n"
    )
    shown = "model = model.float()\nprint(model(torch.ones(3, 4).cuda()))\n"
    region = "model = model.float()\nwith torch.autocast('cuda', dtype=torch.float16):\n    print(model(torch.ones(3, 4).cuda()))\n"
    after = f"import torch\nmodel = torch.nn.Linear(4, 2).cuda()\n{region}"
    found = doubts_of({"show.py": f"import torch\n{setup}{shown}"}, {"show.py": after})
    assert not [d for d in found if "is made float32 above" in d.message]
