"""Paths within messages are those that the report shows."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files
from tests.rules.programs import HALVED, found


@pytest.mark.parametrize("path", ["train.py", "train_1.0.py", "src/app/train_0.6.2.py"])
def test_a_caller_is_named_by_its_path_whatever_dots_that_has(path: str) -> None:
    result = rewrite_files({path: HALVED.replace("WHERE", "args.fp16 and args.train")})[path]
    (told,) = [f.message for f in result.findings if "called from" in f.message]
    assert f"called from {path}:23," in told


def test_an_optimizer_of_another_file_is_told_with_it() -> None:
    train = "import torch\nfrom layers import synchronize\nfrom project import Net\n\nmodel = Net()\n"
    train += "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nmodel = synchronize(model)\n"
    helper = "from apex.parallel import convert_syncbn_model\n\n\ndef synchronize(net):\n    return convert_syncbn_model(net)\n"
    (told,) = found(rewrite_files({"train.py": train, "layers.py": helper})["layers.py"], "AMP611")
    assert "the optimizer of line 6 of train.py, made before, never stepped them" in told.message
