"""Tests of the opt level that pick a dtype: `if args.opt_level == "O1": x = x.half()`."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite_files

TRAIN = """
    import argparse

    import torch
    from apex import amp

    from heads import Margin

    parser = argparse.ArgumentParser()
    parser.add_argument("--opt-level", {option})
    args = parser.parse_args()
    model = torch.nn.Linear(4, 4).cuda()
    head = Margin(args)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    [model, head], optimizer = amp.initialize([model, head], optimizer, opt_level={level})
    for x, y in []:
        loss = head(model(x), y).sum()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """
HEAD = """
    import torch


    class Margin(torch.nn.Module):
        def __init__(self, args):
            super().__init__()
            self.args = args
            self.weight = torch.nn.Parameter(torch.ones(4, 4))

        def forward(self, x, label):
            cosine = torch.mm(x, self.weight)
            chosen = torch.pow(cosine.gather(1, label), 2)
            {statement}
            return cosine.scatter_(1, label, chosen)
    """


def project(statement: str, option: str = 'default="O2"', level: str = "args.opt_level") -> dict[str, str]:
    statement = statement.replace("\n", "\n            ")
    return {"train.py": TRAIN.format(option=option, level=level), "heads.py": HEAD.format(statement=statement)}


WIDE = 'self.args.opt_level in ("O1", "O2", "O3")'


@pytest.mark.parametrize(
    "statement",
    [
        "if {}:\n    chosen = chosen.half()",
        "if self.training and {}:\n    chosen = chosen.to(torch.float16)",
        "chosen = chosen.half() if {} else chosen",
        "if {}:\n    chosen, label = chosen.half(), label.to(x.device)\nelse:\n    chosen = chosen.float()",
    ],
)
def test_what_was_cast_at_o1_is_cast_at_all_levels_that_compute_like_it(statement: str) -> None:
    after = check_files(project(statement.format('self.args.opt_level == "O1"')))
    assert statement.format(WIDE).split("\n")[0] in after["heads.py"]


@pytest.mark.parametrize(
    "statement",
    [
        'if self.args.opt_level == "O1":\n    chosen = chosen.half()\n    self.scale = 2',  # more than a dtype
        'if self.args.opt_level == "O2":\n    chosen = chosen.half()',
        'if not self.args.opt_level == "O1":\n    chosen = chosen.half()',
        'if self.args.name == "O1":\n    chosen = chosen.half()',
        'if self.args.opt_level == "O1":\n    pass',
    ],
)
def test_other_tests_stay_as_they_are(statement: str) -> None:
    result = rewrite_files(project(statement))["heads.py"]
    assert result.after is None or statement.split("\n")[0] in result.after


@pytest.mark.parametrize("option", ['choices=["O0", "O1"]', 'default="O1", choices=["O1"]'])
def test_where_there_is_no_other_level_nothing_is_widened(option: str) -> None:
    statement = 'if self.args.opt_level == "O1":\n    chosen = chosen.half()'
    assert rewrite_files(project(statement, option))["heads.py"].after is None


def test_a_level_that_a_variable_holds_is_asked_for_under_either_name() -> None:
    files = project('if self.args.opt_level == "O1":\n    chosen = chosen.half()', level="wanted")
    files["train.py"] = files["train.py"].replace("    model = torch", "    wanted = args.opt_level\n    model = torch")
    assert WIDE in check_files(files)["heads.py"]
