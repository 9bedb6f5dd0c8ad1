"""A set-up that only evaluates takes Apex's state over with all the rest of a checkpoint: it needs no scaler for it."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, rewrite, rewrite_files

TRAIN = """
import torch
from apex import amp
from project import build, loader, make_optimizer


def train(args):
    model = build()
    optimizer = make_optimizer(model)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, args.path)


"""
TEST = """
def test(args):
    model = build()
    optimizer = make_optimizer(model)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    checkpoint = torch.load(args.path)
    model.load_state_dict(checkpoint["model"])
    {load}
    with torch.no_grad():
        return [model(x).argmax(1) for x, _ in loader]


"""
EITHER = """
if __name__ == "__main__":
    from options import args

    if args.train:
        train(args)
    else:
        test(args)
"""


@pytest.mark.parametrize(
    ("load", "left"),
    [
        ('amp.load_state_dict(checkpoint["amp"])', ""),
        ('if "amp" in checkpoint:\n        amp.load_state_dict(checkpoint["amp"])', ""),
        (
            'try:\n        amp.load_state_dict(checkpoint["amp"])\n        print("resumed")\n    except KeyError:\n        pass',
            '    try:\n        print("resumed")\n    except KeyError:\n        pass\n',
        ),
    ],
)
def test_the_load_goes_with_the_set_up(load: str, left: str) -> None:
    result = rewrite(TRAIN + TEST.format(load=load) + EITHER)
    assert result.after is not None, result.findings
    assert not [f for f in result.findings if f.status == "manual"]
    assert (
        'model.load_state_dict(checkpoint["model"])\n' + left + "    with torch.no_grad(), torch.autocast("
        in result.after
    )
    assert result.after.count("GradScaler(") == 1
    assert "scaler.load_state_dict" not in result.after
    assert rewrite(result.after).after is None


@pytest.mark.parametrize(
    "use",
    ["from trainer import run; run(model, optimizer)", 'torch.save({"amp": amp.state_dict()}, args.path)'],
    ids=["trained out of sight", "saved again"],
)
def test_what_may_train_or_saves_the_state_is_left(use: str) -> None:
    check_manual(TRAIN + TEST.format(load=f'amp.load_state_dict(checkpoint["amp"])\n    {use}') + EITHER, "AMP116")


def test_a_state_that_a_later_training_goes_on_with_is_not_dropped() -> None:
    both = EITHER.replace(
        "if args.train:\n        train(args)\n    else:\n        test(args)", "test(args)\n    train(args)"
    )
    assert both != EITHER
    check_manual(TRAIN + TEST.format(load='amp.load_state_dict(checkpoint["amp"])') + both, "AMP431")


def test_a_state_that_no_run_has_is_told_so_and_named_after_no_other_program() -> None:
    trains = TRAIN.replace("train(args)", "train(args=None)") + 'if __name__ == "__main__":\n    train()\n'
    saves = 'import torch\nfrom apex import amp\n\nif __name__ == "__main__":\n    torch.save({"amp": amp.state_dict()}, "a.pt")\n'
    results = rewrite_files({"train.py": trains, "other.py": saves})
    (left,) = [f for r in results.values() for f in r.findings if f.status == "manual" and f.code == "AMP116"]
    assert results["train.py"].after is not None  # which is none of its business
    assert results["other.py"].after is None
    assert left.message.startswith("no run of this file comes by an amp.initialize (those of train.py:9")
    imported = rewrite_files({"train.py": trains, "other.py": "import train\n" + saves})
    assert not any("no run of this file" in f.message for r in imported.values() for f in r.findings)


KEEPING = """
import torch
from apex import amp
from project import build, loader


class Warmup{base}:
    def __init__(self, optimizer, size, factor=1):
        self.optimizer = optimizer
        self.size = size
        self.count = 0

    def step(self):
        self.count += 1
        {body}
{after}

model = build()
optimizer = torch.optim.Adam(model.parameters())
warmup = Warmup(optimizer, 512)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
model = torch.nn.DataParallel(model)
model.eval()
with torch.no_grad():
    for x, y in loader:
        print(model(x).argmax(1))
{last}
"""
RATES = """
def update_rate(optimizer, rate):
    for group in optimizer.param_groups:
        group["lr"] = rate

"""


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ('for group in self.optimizer.param_groups:\n            group["lr"] = self.size / self.count', ""),
        ("if self.optimizer is not None:\n            update_rate(self.optimizer, self.size / self.count)", RATES),
        ("return self.size / self.count", "\n    def state_dict(self):\n        return self.optimizer.state_dict()\n"),
    ],
)
def test_what_only_reads_the_optimizer_it_keeps_steps_none(body: str, after: str) -> None:
    """A schedule is one by what it does, whatever its name."""
    result = rewrite(KEEPING.format(base="", body=body, after=after, last=""))
    assert result.after is not None, result.findings
    assert not [f for f in result.findings if f.status == "manual"]
    assert "GradScaler" not in result.after
    assert result.after.count('with torch.autocast("cuda", dtype=torch.float16):') == 1
    assert [f.code for f in result.findings if f.code == "AMP115"] == ["AMP115"]


@pytest.mark.parametrize(
    ("base", "body", "after", "last"),
    [
        ("(Stepping)", "pass", "", ""),
        ("", "train(self.optimizer)", "", ""),
        ("", "run = self.optimizer.step\n        run()", "", ""),
        ("", "getattr(self, 'optimizer').step()", "", ""),
        ("", "return [self.optimizer]", "", ""),
        ("", "pass", "", "finish(warmup.optimizer)"),
    ],
)
def test_what_may_step_the_optimizer_it_keeps_is_left(base: str, body: str, after: str, last: str) -> None:
    source = KEEPING.format(base=base, body=body, after=after, last=last)
    source = source.replace("import build, loader", "import Stepping, build, finish, loader, train")
    check_manual(source, "AMP116")


KEPT = """
import torch
from apex import amp
from ignite.handlers import Checkpoint


def main(args, model, loader):
    if args.level is not None:
        model = amp.initialize(model, opt_level=args.level)
    model.eval()
    {kept}
    Checkpoint.load_objects(things, torch.load(args.path))
    with torch.no_grad():
        return [model(x).argmax(1) for x in loader]
"""
OFF = 'torch.amp.GradScaler("cuda", enabled=False)'


@pytest.mark.parametrize(
    ("kept", "after"),
    [
        ('things = {"model": model, "amp": amp}', f'things = {{"model": model, "scaler": {OFF}}}'),
        ("things = dict(model=model, amp=amp)", f"things = dict(model=model, scaler={OFF})"),
        ('things = {"model": model}\n    things["amp"] = amp', f'things["scaler"] = {OFF}'),
        ("things = {}\n    things.update(amp=amp)", f"things.update(scaler={OFF})"),
        (
            'things = {}\n    things["amp"] = amp\n    if "amp" in things:\n        print(things["amp"])',
            f'things["scaler"] = {OFF}\n    if "scaler" in things:\n        print(things["scaler"])',
        ),
    ],
)
def test_a_scaler_that_is_off_stands_in_for_amp_among_things_that_are_kept(kept: str, after: str) -> None:
    result = rewrite(KEPT.format(kept=kept))
    assert result.after is not None, result.findings
    assert after in result.after
    assert not [f for f in result.findings if f.status == "manual"]
    assert any(
        f.code == "AMP401" and f.review == "review" and "a scaler that is off" in f.message for f in result.findings
    )
