"""A model that goes to a method of an object whose class only its values tell, or to a function that stands for another by then:
the regions in that are regions: AMP531."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of
from tests.audit.test_precision import AFTER_HEAD, HEAD

RUNNER = """
class Runner:
    def __init__(self, **settings):
        self.settings = settings

    def train(self, model, loader, optimizerTAKEN):
        for x, y in loader:
            REGION:
                loss = torch.nn.functional.cross_entropy(model(x), y)
            STEP

    def step(self, model, loaderALSO):
        for x in loader:
            AROUND:
                print(model(x))

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
INIT
runner = Runner(**vars(args))
runner.train(model, loader, optimizerGIVEN)
runner.step(model, loaderHANDED)
"""
STEP = """with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()"""
AFTER_STEP = """scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()"""
ON = 'with torch.autocast("cuda", dtype=torch.float16)'


def lost(region: str, around: str = ON, taken: str = "", handed: str = "") -> list[str]:
    """The calls that are said to run in float32 now."""
    plain = {"REGION": "if True", "AROUND": "if True", "STEP": STEP, "TAKEN": "", "GIVEN": "", "ALSO": "", "HANDED": ""}
    plain["INIT"] = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    now = {"REGION": region, "AROUND": around, "STEP": AFTER_STEP, "TAKEN": ", scaler", "GIVEN": ", scaler"}
    now |= {"INIT": 'scaler = torch.amp.GradScaler("cuda")', "ALSO": taken, "HANDED": handed}
    before, after = HEAD + RUNNER, AFTER_HEAD + RUNNER
    for name in plain:
        before, after = before.replace(name, plain[name]), after.replace(name, now[name])
    found = [d for d in doubts(before, after) if d.code == "AMP531" and "is given model and runs it" in d.message]
    return [d.message.partition(" ")[0] for d in found]


@pytest.mark.parametrize(
    ("region", "around", "taken", "handed", "wanted"),
    [
        (ON, ON, "", "", []),
        ("if True", ON, "", "", ["runner.train"]),
        (ON, "if True", "", "", ["runner.step"]),
        (ON.replace(")", ", enabled=False)"), ON, "", "", ["runner.train"]),
        (ON.replace(")", ", enabled=scaler.is_enabled())"), ON, "", "", []),
        (ON, ON.replace(")", ", enabled=use_amp)"), ", use_amp=False", ", use_amp=True", []),
        (ON, ON.replace(")", ", enabled=use_amp)"), ", use_amp=False", "", ["runner.step"]),
    ],
)
def test_a_region_in_a_method_of_an_object(
    region: str, around: str, taken: str, handed: str, wanted: list[str]
) -> None:
    assert lost(region, around, taken, handed) == wanted


AGAIN = """
from tools import evaluate

def evaluate(model, loader):
    with torch.no_grad()ON:
        return [model(x) for x in loader]

def main():
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    INIT
    for x, y in loader:
        loss = model(x).sum()
        STEP
    evaluate(model, loader)

main()
"""
TOOLS = """
import torch

def evaluate(model, loader):
    return [model(x) for x in loader]
"""


@pytest.mark.parametrize("guarded", [False, True])
def test_a_function_that_is_defined_over_an_import_is_what_runs(guarded: bool) -> None:
    text = HEAD + (AGAIN.replace("from tools", "if args.fp16:\n    from tools") if guarded else AGAIN)
    before = text.replace("INIT", 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")')
    before = before.replace("ON:", ":").replace("STEP", STEP.replace("\n            ", "\n        "))
    after = text.replace("from apex import amp\n", "").replace("INIT", 'scaler = torch.amp.GradScaler("cuda")')
    after = after.replace("ON:", f", {ON.removeprefix('with ')}:").replace(
        "STEP", AFTER_STEP.replace("\n            ", "\n        ")
    )
    after = after.replace("        loss = model(x).sum()", f"        {ON}:\n            loss = model(x).sum()")
    found = doubts_of({"train.py": before, "tools.py": TOOLS}, {"train.py": after})
    assert [d.path for d in found if "called from train.py" in d.message] == ["tools.py"] * guarded
