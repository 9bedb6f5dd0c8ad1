"""A class of the program that derives from a framework's, and scales a loss: the framework may have set Apex up (AMP116)."""

from __future__ import annotations

import pytest

from amp_migrate.findings import FileResult, Finding
from tests.rules.helpers import rewrite, rewrite_files

CLASS = """
from apex import amp
IMPORT


class Stepping(BASE):
    def on_batch_end(self, state):
        with amp.scale_loss(state.loss, state.optimizer) as scaled_loss:
            scaled_loss.backward()
        state.optimizer.step()
"""


def said(imported: str, base: str, **others: str) -> str:
    """Why the loss of a class stays with Apex."""
    text = CLASS.replace("IMPORT", imported).replace("BASE", base)
    result: FileResult = rewrite_files({"steps.py": text, **others})["steps.py"] if others else rewrite(text)
    found: list[Finding] = [f for f in result.findings if f.status == "manual"]
    assert {f.code for f in found} == {"AMP116"}
    return found[0].message


@pytest.mark.parametrize(
    ("imported", "base", "name", "native"),
    [
        ("import catalyst.dl as dl", "dl.OptimizerCallback", "catalyst.dl.OptimizerCallback", "AMPEngine"),
        ("from transformers import Trainer as T", "T", "transformers.Trainer", "fp16=True"),
        ("from pytorch_lightning import Callback", "Callback", "pytorch_lightning.Callback", '"16-mixed"'),
        ("from fastai.callback.core import Callback", "Callback", "fastai.callback.core.Callback", "to_fp16()"),
        ("from ours import Runner", "Runner", "ours.Runner", "ours may set Apex up"),
    ],
)
def test_who_may_have_set_apex_up_is_named(imported: str, base: str, name: str, native: str) -> None:
    for others in ({}, {"train.py": "import steps\n\nprint(steps)\n"}):
        message = said(imported, base, **others)
        assert f"Stepping derives from {name}, which is out of sight" in message
        assert native in message
        assert "delete" not in message


def test_through_a_base_of_the_program() -> None:
    between = "from catalyst.dl import OptimizerCallback\n\n\nclass Base(OptimizerCallback):\n    pass\n"
    assert "derives from catalyst.dl.OptimizerCallback" in said("from base import Base", "Base", **{"base.py": between})


@pytest.mark.parametrize("base", ["object", "abc.ABC", "torch.optim.SGD"])
def test_what_torch_and_python_have_sets_nothing_up(base: str) -> None:
    message = said("import abc\nimport torch", base, **{"train.py": "import steps\n\nprint(steps)\n"})
    assert "none of the files read calls amp.initialize" in message
