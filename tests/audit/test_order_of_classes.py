"""The classes that a model may be of come in the order of the source: what is told of it depends on no hash."""

from __future__ import annotations

import ast

from amp_migrate.audit.prepared import Side
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.values import Values
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
