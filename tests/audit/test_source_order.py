"""What may be several comes in the order of the source: what is told of it depends on no hash."""

from __future__ import annotations

import ast

from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.side import Side
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.ordered import ordered
from tests.audit.helpers import program

NETWORKS = """
import torch
{}
"""
NETWORK = """

class {}(torch.nn.Module):
    def forward(self, x):
        return x
"""
NAMES = ("Alpha", "Beta", "Gamma", "Delta")


def test_classes_of_a_model_come_in_the_order_of_the_source() -> None:
    networks = program(NETWORKS.format("".join(map(NETWORK.format, NAMES))))
    made = "\n    ".join(
        f"if name == {c + m!r}:\n        return {m}.{c}()"
        for m in ("zebra", "models", "blocks")
        for c in reversed(NAMES)
    )
    texts = {
        "zebra.py": networks,
        "models.py": networks,
        "blocks.py": networks,
        "train.py": program(
            f"import blocks\nimport models\nimport zebra\n\n\ndef make(name):\n    {made}\n\n\n"
            "def main(name, x):\n    model = make(name)\n    return model(x)\n"
        ),
    }
    read = Program(texts)
    module = read.modules["train.py"]
    side = Side(read, Values(read), list(read.modules.values()))
    (call,) = (c for c in module.calls() if isinstance(c.func, ast.Name) and c.func.id == "model")
    forward = side.forwards.at(module, call)
    assert forward is not None
    found = [(c.module.path, c.name) for c in side.forwards.classes(forward)]
    assert found == [(f"{m}.py", c) for m in ("blocks", "models", "zebra") for c in NAMES]


CONTEXT = """
import contextlib
from torch.cuda.amp import autocast

def context(self):
    if self.on:
        if self.new:
            ctx = autocast(dtype=self.dtype)
        else:
            ctx = autocast()
    else:
        ctx = contextlib.nullcontext()
    return ctx

def run(self, model, x):
    with context(self):
        return model(x)
"""


def test_of_several_regions_that_a_variable_may_be_the_first_is_told_of() -> None:
    read = Program({"train.py": program(CONTEXT)})
    module = read.modules["train.py"]
    side = Side(read, Values(read), [module])
    (call,) = (c for c in module.calls() if isinstance(c.func, ast.Name) and c.func.id == "model")
    region = side.regions.nearest(module, call)
    assert region is not None
    assert ast.unparse(region.call) == "autocast(dtype=self.dtype)"


def test_of_calls_that_are_given_more_each_took_the_place_of_the_one_it_is_like() -> None:
    before = program(CONTEXT)
    after = before.replace("torch.cuda.amp", "torch.amp").replace("autocast(", 'autocast("cuda", ')
    after = after.replace('"cuda", )', '"cuda")')
    change = Change(Program({"train.py": before}).modules["train.py"], Program({"train.py": after}).modules["train.py"])
    assert {new.lineno for new in change.rewritten} == {2, 7, 9}
    assert all(new.lineno == old.lineno for new, old in change.rewritten.items())


METHODS = """
class Trainer:
    def fit(self, model):
        self.model = model
        self.again(model)

    def again(self, model):
        self.seen = True
        self.fit(model)
"""


def test_what_methods_store_that_call_each_other_is_the_same_whichever_is_asked_first() -> None:
    found = []
    for names in (("fit", "again"), ("again", "fit")):
        read = Program({"train.py": program(METHODS)})
        (cls,) = read.modules["train.py"].classes
        shared = ordered(Values(read))
        found.append({name: shared._storing(cls, name) for name in names})
    assert found[0] == found[1] == {name: {"model", "seen"} for name in ("fit", "again")}
