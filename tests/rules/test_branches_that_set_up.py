"""Calls of initialize in all branches of one test: one GradScaler stands in their place."""

from __future__ import annotations

from pathlib import Path

from tests.rules.helpers import rewrite, run_files
from tests.rules.programs import found

SOURCE = """
import json
import sys

import torch
from apex import amp


def main(args, loader):
    model = torch.nn.Linear(2, 1)
    first, second = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    parameters = [*model.parameters(), *first.parameters(), *second.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    if args.first and not args.second:
        [model, first], optimizer = amp.initialize([model, first], optimizer, opt_level=args.level)
        first = torch.nn.Sequential(first)
    elif args.second and not args.first:
        [model, second], optimizer = amp.initialize([model, second], optimizer, opt_level=args.level)
        second = torch.nn.Sequential(second)
    elif args.second and args.first:
        [model, second, first], optimizer = amp.initialize([model, second, first], optimizer, opt_level=args.level)
    for x in loader:
        out = model(x)
        loss = 0
        if args.first:
            loss = loss + first(out).sum()
        if args.second:
            loss = loss + second(out).sum()
        optimizer.zero_grad()
        if args.level == "O0":
            loss.backward()
        else:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        optimizer.step()
    STATE


class Args:
    first, second, level = sys.argv[1:] and True, False, "O1"


results = []
for first, second, level in ((True, False, "O1"), (False, True, "O1"), (True, True, "O1"), (True, True, "O0")):
    args = Args()
    args.first, args.second, args.level = first, second, level
    results.append(main(args, [torch.ones(1, 2)]))
print(json.dumps(results))
"""


def test_one_scaler_for_the_branches_of_one_test(tmp_path: Path) -> None:
    after = rewrite(SOURCE.replace("STATE", "return None"), device="cpu").after or ""
    assert after.count("GradScaler(") == 1
    enabled = after.replace("return None", "return scaler.is_enabled()")
    assert run_files(tmp_path, {"train.py": enabled}, "train.py") == [True, True, True, False]


def test_each_call_is_told_which_scaler_serves_it() -> None:
    told = [f.message for f in found(rewrite(SOURCE), "AMP110")]
    assert told == ["taken out: the GradScaler in place of the call at line 20 serves here too"] * 2 + [
        "replaced by a GradScaler"
    ]
