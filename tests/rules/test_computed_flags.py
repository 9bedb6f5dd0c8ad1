"""A flag for Apex computed beside one for the native side: who asked for Apex gets the native one, or is told what comes of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files
from tests.rules.programs import found

TRAINER = """
    import importlib

    import torch


    class Trainer:
        def __init__(self, args, model, optimizer):
            self.args = args
            self.model, self.optimizer = model, optimizer
            self.use_apex = args.fp16 and args.level is not None
            self.use_native = args.fp16 and args.level is None
            if self.use_native:
                self.scaler = torch.amp.GradScaler("cpu")
            elif self.use_apex:
                self.amp = importlib.import_module("apex.amp")
                self.model, self.optimizer = self.amp.initialize(
                    self.model, self.optimizer, enabled=self.args.fp16, opt_level=self.args.level
                )

        def step(self, x):
            with torch.autocast("cpu", dtype=torch.float16, enabled=self.use_native):
                y = self.model(x)
            loss = y.float().pow(2).mean() * 1e-4
            if self.use_apex:
                with self.amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            elif self.use_native:
                self.scaler.scale(loss).backward()
                self.scaler.unscale_(self.optimizer)
            else:
                loss.backward()
            params = self.amp.master_params(self.optimizer) if self.use_apex else self.model.parameters()
            torch.nn.utils.clip_grad_norm_(params, 1.0)
            if self.use_native:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()
            self.optimizer.zero_grad()
            return str(y.dtype)
"""
RUN = """
    import json
    from types import SimpleNamespace

    import torch
    from trainer import Trainer

    results = []
    for fp16 in (True, False):
        for level in ("O1", "O2", "O0", None):
            model = torch.nn.Linear(4, 1)
            args = SimpleNamespace(fp16=fp16, level=level, backend=level and "apex", both=False)
            results.append(Trainer(args, model, torch.optim.SGD(model.parameters(), lr=0.1)).step(torch.ones(2, 4)))
    print(json.dumps(results))
"""
PAIR = """            self.use_apex = args.fp16 and args.level is not None
            self.use_native = args.fp16 and args.level is None
"""
HALF, FULL = "torch.float16", "torch.float32"


def migrated(pair: str) -> dict[str, str]:
    assert PAIR in TRAINER
    return check_files({"trainer.py": TRAINER.replace(PAIR, pair), "run.py": RUN}, device="cpu")


def test_a_run_that_asked_for_apex_trains_natively_and_o0_stays_off(tmp_path: Path) -> None:
    texts = migrated(PAIR)
    assert '        self.use_native = args.fp16 and args.level != "O0"\n' in texts["trainer.py"]
    assert "apex" not in texts["trainer.py"]
    assert run_files(tmp_path, texts, "run.py") == [HALF, HALF, FULL, HALF, FULL, FULL, FULL, FULL]


@pytest.mark.parametrize(
    ("apex", "native"),
    [
        ("args.fp16 and args.level is not None", "args.fp16 and not self.use_apex"),
        ("args.fp16 and bool(args.level)", "args.fp16 and not args.level"),
        ('args.fp16 and args.backend == "apex"', "args.fp16 and args.backend is None"),
        ('args.backend == "apex" and args.fp16', 'args.backend != "apex" and args.fp16'),
    ],
)
def test_however_the_two_are_computed(tmp_path: Path, apex: str, native: str) -> None:
    lines = (f"self.use_apex = {apex}", f"self.use_native = {native}")
    texts = migrated("".join(f"            {line}\n" for line in lines))
    assert run_files(tmp_path, texts, "run.py") == [HALF, HALF, FULL, HALF, FULL, FULL, FULL, FULL]


def test_the_native_one_may_come_first(tmp_path: Path) -> None:
    texts = migrated(
        "            self.use_native = args.fp16 and args.level is None\n"
        "            self.use_apex = args.fp16 and not self.use_native\n"
    )
    assert run_files(tmp_path, texts, "run.py") == [HALF, HALF, FULL, HALF, FULL, FULL, FULL, FULL]


@pytest.mark.parametrize(
    "pair",
    [
        f"{PAIR}            if args.both:\n                self.use_native = True\n",
        PAIR.replace("is None\n", "is None\n").replace(
            "None\n            self.use_native", "None\n            log(args)\n            self.use_native"
        ),
    ],
    ids=["given twice", "not side by side"],
)
def test_flags_that_cannot_be_joined_are_told_once(pair: str) -> None:
    source = TRAINER.replace(PAIR, pair).replace(
        "    import torch\n", "    import torch\n    from logs import log\n", 1
    )
    result = rewrite_files({"trainer.py": source, "run.py": RUN}, device="cpu")["trainer.py"]
    (told,) = [f.message for f in found(result, "AMP120") if f.review == "review"]
    assert "`self.use_apex`, which is `args.fp16 and args.level is not None`" in told
    assert "(`self.use_native`) trains in float32 now" in told
    assert {f.review for f in found(result, "AMP120")} == {"review", "as-is"}


OPTION = """
    import argparse

    import torch


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--precision", default="full", choices=["full", "apex", "native"])
        args = parser.parse_args()
        model = torch.nn.Linear(3, 3).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if args.precision == "apex":
            from apex import amp
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        elif args.precision == "native":
            scaler = torch.amp.GradScaler("cuda")
        for x in torch.randn(4, 2, 3).cuda():
            with torch.autocast("cuda", enabled=args.precision == "native"):
                loss = model(x).sum()
            if args.precision == "apex":
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
            elif args.precision == "native":
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                LAST
            optimizer.zero_grad()


    main()
"""


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        ("loss.backward()\n                optimizer.step()", "trains in float32 now, and no error says so"),
        ('raise ValueError("no such precision")', "stops here now"),
    ],
)
def test_a_run_that_asks_for_apex_by_an_option_is_told_what_comes_of_it(last: str, outcome: str) -> None:
    source = OPTION.replace("LAST", last).replace(', choices=["full", "apex", "native"]', "")
    source = source.replace(
        "        model =", "        report(args.precision)\n        model =", 1
    )  # which may ask as well
    result = rewrite_files({"train.py": source})["train.py"]
    (told,) = [f.message for f in found(result, "AMP120") if f.review == "review"]
    assert "(`args.precision == 'apex'`) and not for the native one (`args.precision == 'native'`)" in told
    assert told.endswith(outcome)
    (region,) = found(result, "AMP531")
    assert "the autocast region around it is off there now" in region.message


def test_a_run_that_asks_for_apex_by_an_option_that_is_only_read_gets_the_native_side() -> None:
    source = OPTION.replace("LAST", "loss.backward()").replace(', choices=["full", "apex", "native"]', "")
    result = rewrite_files({"train.py": source})["train.py"]
    assert (result.after or "").count('args.precision in ("apex", "native")') == 3
    assert not [f for f in result.findings if f.review == "review"]


CHECKED = [
    ("", ', choices=["full", "native"])'),
    ('assert args.precision in (None, "apex", "native")', 'assert args.precision in (None, "native")'),
    (
        'if args.precision not in ["apex", "native", "full"]:\n            raise ValueError(args.precision)',
        'if args.precision not in ["native", "full"]:\n        raise ValueError(args.precision)',
    ),
    ('assert args.precision in ("apex", "native")', 'assert args.precision in ("native",)'),
]


@pytest.mark.parametrize(("check", "left"), CHECKED)
def test_what_checks_the_choice_takes_apex_no_more(check: str, left: str) -> None:
    source = OPTION.replace("LAST", "loss.backward()\n                optimizer.step()")
    if check:
        source = source.replace(', choices=["full", "apex", "native"]', "")
        source = source.replace("args = parser.parse_args()\n", f"args = parser.parse_args()\n        {check}\n")
    result = rewrite_files({"train.py": source})["train.py"]
    assert left in (result.after or "")
    (told,) = [f.message for f in found(result, "AMP120") if f.review == "review"]
    assert re.search(r"is refused in train\.py:\d+, which takes it no more$", told)
    # No run asks for it: there is none in another precision, and the option offers it no more.
    assert not found(result, "AMP531")
    assert not found(result, "AMP119")


def test_a_choice_that_stands_without_being_asked_for_stays_accepted() -> None:
    source = OPTION.replace("LAST", "loss.backward()\n                optimizer.step()")
    result = rewrite_files({"train.py": source.replace('default="full"', 'default="apex"')})["train.py"]
    assert 'choices=["full", "apex", "native"]' in (result.after or "")
    assert (result.after or "").count('args.precision in ("apex", "native")') == 3


def test_without_a_last_branch_nothing_is_trained() -> None:
    source = OPTION.replace("            else:\n                LAST\n", "").replace(
        ', choices=["full", "apex", "native"]', ""
    )
    source = source.replace("        model =", "        report(args.precision)\n        model =", 1)
    result = rewrite_files({"train.py": source})["train.py"]
    (told,) = [f.message for f in found(result, "AMP120") if f.review == "review"]
    assert told.endswith("runs no backward here now")
