"""Whether an optimizer is an FP16_Optimizer is no question in a program that makes none."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, check_rewrite
from tests.rules.programs import found

HEAD = "import torch\nfrom apex.fp16_utils import FP16_Optimizer\n\n\ndef inner(optimizer):\n"
LEFT = "import torch\n\n\ndef inner(optimizer):\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "    if isinstance(optimizer, FP16_Optimizer):\n        optimizer = optimizer.optimizer\n    return optimizer\n",
            "    return optimizer\n",
        ),
        (
            "    if optimizer is not None and isinstance(optimizer, FP16_Optimizer):\n        return optimizer.optimizer\n"
            "    else:\n        return optimizer\n",
            "    return optimizer\n",
        ),
        (
            "    return isinstance(optimizer, (torch.optim.SGD, FP16_Optimizer, torch.optim.Adam))\n",
            "    return isinstance(optimizer, (torch.optim.SGD, torch.optim.Adam))\n",
        ),
        (
            "    return isinstance(optimizer, (torch.optim.SGD, FP16_Optimizer))\n",
            "    return isinstance(optimizer, torch.optim.SGD)\n",
        ),
        ("    return isinstance(optimizer, FP16_Optimizer)\n", "    return False\n"),
        (
            "    if type(optimizer) == FP16_Optimizer:\n        return optimizer.optimizer\n    return optimizer\n",
            "    return optimizer\n",
        ),
        ("    return optimizer.__class__ is FP16_Optimizer\n", "    return False\n"),
        (
            "    if FP16_Optimizer is not type(optimizer):\n        return optimizer\n    else:\n        return 1\n",
            "    return optimizer\n",
        ),
        ("    return optimizer and type(optimizer) != FP16_Optimizer\n", "    return optimizer\n"),
        ("    return not optimizer or type(optimizer) is FP16_Optimizer\n", "    return not optimizer\n"),
        (
            "    return type(optimizer) in (torch.optim.SGD, FP16_Optimizer)\n",
            "    return type(optimizer) in (torch.optim.SGD,)\n",
        ),
        ("    return type(optimizer) not in [FP16_Optimizer]\n", "    return True\n"),
    ],
)
def test_the_question_goes(before: str, after: str) -> None:
    result = check_rewrite(HEAD + before, LEFT + after)
    assert [(f.status, f.review) for f in found(result, "AMP707")] == [("done", "look")]


def test_a_try_that_only_asked_goes_with_its_import() -> None:
    check_rewrite(
        """
        def known(optimizer):
            flag = hasattr(optimizer, "step")
            try:
                from apex.fp16_utils.fp16_optimizer import FP16_Optimizer
                if isinstance(optimizer, FP16_Optimizer):
                    flag = True
            except ModuleNotFoundError:
                pass
            return flag
        """,
        """
        def known(optimizer):
            flag = hasattr(optimizer, "step")
            return flag
        """,
    )


@pytest.mark.parametrize(
    "other",
    ["class Own(FP16_Optimizer):\n    pass\n", "KINDS = [FP16_Optimizer]\n", "print(kind is FP16_Optimizer)\n"],
)
def test_where_one_may_be_made_the_question_stays(other: str) -> None:
    source = f"{HEAD}    return isinstance(optimizer, FP16_Optimizer)\n\n\n{other}"
    assert check_manual(source, "AMP707").after is None
