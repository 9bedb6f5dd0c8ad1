"""`mixed = apex.amp`: amp under a name of the program's own, and what is said where that is not followed."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files
from tests.rules.programs import APEX_LOOP, INITIALIZE, apex, native

NAMED = APEX_LOOP.replace("amp.", "mixed.")


def named(assign: str = "mixed = apex.amp", imports: str = "import apex") -> str:
    """A script that calls amp by another name."""
    prepare = f"{assign}\n{INITIALIZE.replace('amp.', 'mixed.')}"
    return apex(NAMED, prepare, imports=imports)


@pytest.mark.parametrize(
    ("imports", "assign"), [("import apex", "mixed = apex.amp"), ("from apex import amp", "mixed = amp")]
)
def test_another_name_is_amp(imports: str, assign: str) -> None:
    result = rewrite(named(assign, imports))
    assert result.after == native()
    assert not [f for f in result.findings if f.status == "manual"]


def test_a_name_of_a_function() -> None:
    given = INITIALIZE.partition(" = ")[2].replace("amp.", "mixed.")
    prepare = f"def build_all(model, optimizer):\n    mixed = amp\n    return {given}"
    program = apex(prepare=f"{prepare}\n\nmodel, optimizer = build_all(model, optimizer)")
    after = rewrite(program).after
    assert after is not None
    assert "mixed." not in after
    assert "mixed = " not in after
    assert "amp." not in after.replace("torch.amp.", "")


def test_a_name_of_a_class() -> None:
    trainer = """
    import torch
    from apex import amp

    class Trainer:
        mixed = amp

        def __init__(self, model):
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            self.model, self.optimizer = self.mixed.initialize(model, self.optimizer, opt_level="O1")

        def train(self, x):
            loss = self.model(x).sum()
            with self.mixed.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()

    Trainer(torch.nn.Linear(4, 2)).train(torch.randn(2, 4))
    """
    after = check_files({"train.py": trainer})["train.py"]
    assert "mixed" not in after
    assert "self.scaler.scale(loss).backward()" in after


@pytest.mark.parametrize(
    "assign",
    [
        "try:\n    mixed = apex.amp\nexcept AttributeError:\n    mixed = None",
        "def get():\n    return apex.amp\n\nmixed = get()",
    ],
)
def test_a_name_by_way_of_others(assign: str) -> None:
    result = rewrite(named(assign))
    assert not [f for f in result.findings if f.status == "manual"]
    assert result.after is not None
    assert "scaler.scale(loss).backward()" in result.after
    assert "mixed." not in result.after


@pytest.mark.parametrize(
    "assign",
    [
        "mixed = apex.amp\nif mixed is not None:\n    print(mixed)",
        "mixed = apex.amp\nparts = [mixed]",
    ],
)
def test_what_is_not_followed_is_said(assign: str) -> None:
    result = rewrite(named(assign))
    assert result.after is None
    assert [f.message for f in result.findings if "handed on as a value here" in f.message]
    assert not [f.message for f in result.findings if "not in sight" in f.message]


def test_a_name_that_another_file_imports_stays() -> None:
    files = {
        "common.py": "import apex\n\nmixed = apex.amp\n",
        "train.py": named("", "from common import mixed"),
    }
    results = rewrite_files(files)
    assert not [r for r in results.values() if r.after is not None]
    (message,) = [f.message for f in results["common.py"].findings]
    assert "handed on as a value here" in message
