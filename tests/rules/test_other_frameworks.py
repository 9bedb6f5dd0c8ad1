"""Programs of another framework with a loop copied from one of torch: nothing of torch's has anything to work on there."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

PROGRAM = """
import {framework}
import network
try:
    from apex import amp
except ImportError:
    amp = None


def main(args, loader):
    model = network.build()
    optimizer = network.optimizer(model)
    if args.apex:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    for x, y in loader:
        loss = network.criterion(model(x), y)
        if args.apex:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("framework", ["paddle", "mindspore"])
def test_it_stays_as_it_is(framework: str) -> None:
    files = {"train.py": PROGRAM.format(framework=framework), "network.py": f"import {framework} as f\n"}
    result = rewrite_files(files)["train.py"]
    assert result.after is None
    left = [f for f in result.findings if f.status == "manual"]
    assert left[0].code == "AMP116"
    assert f"trains with {framework} and imports no torch" in left[0].message


@pytest.mark.parametrize("network", ["import torch\n", "from torchvision import models\n"])
def test_one_that_has_another_beside_torch_is_migrated(network: str) -> None:
    files = {"train.py": PROGRAM.format(framework="tensorflow"), "network.py": network}
    assert "GradScaler" in (rewrite_files(files)["train.py"].after or "")
