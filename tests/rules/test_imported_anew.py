"""A name that several imports bind, each of which every run comes to: below the last it is no other's."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found

NATIVE = """\
import torch
{imports}
from project import criterion, loader


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = amp.GradScaler()
    for x, y in loader:
        with amp.autocast():
            loss = criterion(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.mark.parametrize(
    ("imports", "left"),
    [
        ("from apex import amp\nimport torch.cuda.amp as amp", "import torch.amp as amp"),
        ("from apex import amp\nfrom torch.cuda import amp", "from torch import amp"),
        ("import apex.amp as amp\nfrom torch.cuda import amp", "from torch import amp"),
        (
            "try:\n    from apex import amp\nexcept ImportError:\n    amp = None\nfrom torch.cuda import amp",
            "from torch import amp",
        ),
    ],
)
def test_what_torch_is_imported_over_was_never_used(imports: str, left: str) -> None:
    result = rewrite(NATIVE.format(imports=imports))
    assert result.after is not None
    assert not [f for f in result.findings if f.status == "manual"], result.findings
    assert f"{left}\n" in result.after
    assert "apex" not in result.after
    assert 'scaler = amp.GradScaler("cuda")\n' in result.after
    assert 'with amp.autocast("cuda"):\n' in result.after


APEX = """\
import torch
{imports}
from project import criterion, loader, model

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
{below}
"""


@pytest.mark.parametrize(
    "imports",
    [
        "from torch.cuda import amp\nfrom apex import amp",
        "from apex import amp\nif torch.cuda.is_available() and loader is None:\n    from torch.cuda import amp",
        "from torch.cuda import amp\nif model is not None:\n    from apex import amp",
    ],
)
def test_the_last_one_and_one_under_a_condition_may_be_apexs(imports: str) -> None:
    imports = "from project import loader, model\n" + imports
    result = rewrite(APEX.format(imports=imports, below=""))
    assert result.after is not None
    assert "scaler.scale(loss).backward()\n" in result.after
    assert "scale_loss" not in result.after


def test_what_reads_the_name_in_between_reads_apexs() -> None:
    below = "\nfrom torch.cuda import amp\n\nwith amp.autocast():\n    print(criterion(model(x), y))"
    result = rewrite(APEX.format(imports="from apex import amp", below=below))
    assert result.after is not None
    assert "scaler.scale(loss).backward()\n" in result.after
    assert 'with amp.autocast("cuda"):\n' in result.after
    assert not found(result, "AMP190")
    assert "apex" not in result.after
