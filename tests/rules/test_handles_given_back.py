"""The handle of `amp.init` that a function gives back, or that nobody asks beside an FP16_Optimizer; and models and optimizers
that functions choose between."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite

TRAINER = """
import argparse
import torch
from torch.nn.functional import cross_entropy
from data import loader

GET

class Trainer:
    def __init__(self, model, amp_handle=None, fp16=False):
        self.model = model
        self.amp_handle = amp_handle
        self.fp16 = fp16
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        WRAP

    def train(self, x, y):
        loss = cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        if self.fp16:
            with SCALED as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        self.optimizer.step()

def main(args, model):
    amp_handle = get_handle(args)
    trainer = Trainer(model, amp_handle, fp16=args.fp16)
    for x, y in loader:
        trainer.train(x, y)

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
main(parser.parse_args(), torch.nn.Linear(8, 2).cuda())
"""
CHOSEN = """
def get_handle(args):
    if not torch.cuda.is_available():
        args.fp16 = False
    if args.fp16:
        from apex import amp
        amp_handle = amp.init(enabled=True, verbose=False)
        return amp_handle
    else:
        return None
"""
GIVEN = "from apex import amp\n\ndef get_handle(args):\n    return amp.init(enabled=args.fp16)\n"
WRAPPED = (
    "if self.fp16:\n            self.optimizer = self.amp_handle.wrap_optimizer(self.optimizer)",
    "self.optimizer.scale_loss(loss)",
)
ASKED = ("pass", "self.amp_handle.scale_loss(loss, self.optimizer)")


@pytest.mark.parametrize(("wrap", "scaled"), [WRAPPED, ASKED])
@pytest.mark.parametrize("get", [CHOSEN, GIVEN])
def test_who_asks_for_the_handle_has_the_scaler(get: str, wrap: str, scaled: str) -> None:
    program = TRAINER.replace("GET", get).replace("WRAP", wrap).replace("SCALED", scaled)
    text = check_files({"train.py": program})["train.py"]
    assert "    scaler = get_handle(args)\n    trainer = Trainer(model, scaler, fp16=args.fp16)\n" in text
    assert "self.scaler.scale(loss).backward()\n        self.scaler.step(self.optimizer)" in text
    assert "enabled=self.scaler.is_enabled())" in text
    assert "return scaler\n" in text
    assert "None\n" not in text.replace("scaler=None", "").replace("scaler is None", "")


def test_a_run_without_a_handle_stays_in_float32() -> None:
    program = """
    import torch
    from apex import amp
    from data import args, loader, model, optimizer

    def main():
        handle = None
        if args.fp16:
            handle = get(args)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            if handle is not None:
                with handle.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()

    def get(args):
        handle = amp.init()
        return handle

    main()
    """
    text = check_files({"train.py": program})["train.py"]
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=False)\n    if args.fp16:\n        scaler = get(args)' in text
    assert "dtype=torch.float16, enabled=scaler.is_enabled()):" in text


def test_a_handle_beside_the_model() -> None:
    program = """
    import torch
    from apex import amp
    from data import args, build, loader

    def prepare(args):
        model, optimizer = build(args)
        amp_handle = amp.init(enabled=args.fp16)
        return model, optimizer, amp_handle

    def main():
        model, optimizer, handle = prepare(args)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            with handle.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()

    main()
    """
    text = check_files({"train.py": program})["train.py"]
    assert "scaler = torch.amp.GradScaler(" in text
    assert "    return model, optimizer, scaler\n" in text
    assert "    model, optimizer, scaler = prepare(args)\n" in text
    # The handle divided what earlier steps left, as a scaler does: nothing piled up.
    assert not [f for f in rewrite(program).findings if f.code == "AMP224"]


HALF = """
import argparse
import torch
from torch import nn
from apex import amp
from apex.fp16_utils import FP16_Optimizer
from data import loader

amp_handle = amp.init(enabled=True)

def build(half):
    MADE
    model = model.half() if half is True else model
    return [model, loader]

def build_optimizer(model, half):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return FP16_Optimizer(optimizer, dynamic_loss_scale=True) if half else optimizer

def main(args):
    model, batches = build(args.half)
    optimizer = build_optimizer(model, args.half)
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        if args.half:
            optimizer.backward(loss)
        else:
            loss.backward()
        optimizer.step()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", action="store_true")
    main(parser.parse_args())
"""


def test_an_idle_handle_goes_with_the_wrapper_and_choices_are_switches() -> None:
    text = check_files({"train.py": HALF.replace("MADE", "model = nn.Linear(8, 2).cuda()")})["train.py"]
    assert "amp_handle" not in text
    assert "half is True" not in text
    assert "    return optimizer\n" in text
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=args.half)' in text
    assert "dtype=torch.float16, enabled=args.half):" in text


def test_an_idle_handle_stays_with_a_wrapper_that_stays() -> None:
    program = HALF.replace("MADE", "model = nn.Linear(8, 2).cuda()").replace(
        "optimizer.backward(loss)", "optimizer.backward"
    )
    result = rewrite(program)
    assert result.after is None
    assert [f for f in result.findings if f.status == "manual"]


NET = """
import apex
import torch
from torch import nn

class NAME(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(8, width)

    def forward(self, x):
        return self.inner(x)

    def do_train(self, loader, optimizer, half):
        if half:
            optimizer = apex.fp16_utils.FP16_Optimizer(optimizer, dynamic_loss_scale=True)
        for x, y in loader:
            loss = nn.functional.cross_entropy(self(x.cuda()).float(), y.cuda())
            optimizer.zero_grad()
            if half:
                optimizer.backward(loss)
            else:
                loss.backward()
            optimizer.step()
"""
CHOOSING = """
import argparse
import torch
import deep
import wide
from data import loader

parser = argparse.ArgumentParser()
parser.add_argument("--half", action="store_true")
parser.add_argument("--wide", action="store_true")
args = parser.parse_args()
if args.wide:
    make = lambda size: wide.Wide(size).cuda()
else:
    make = lambda size: deep.Deep(size).cuda()
model = make(2)
if args.half:
    model = model.half()
model.do_train(loader, torch.optim.Adam(model.parameters()), args.half)
"""


def test_a_model_that_one_of_some_lambdas_makes() -> None:
    files = {"wide.py": NET.replace("NAME", "Wide"), "deep.py": NET.replace("NAME", "Deep"), "train.py": CHOOSING}
    texts = check_files(files)
    assert ".half()" not in texts["train.py"]
    assert all("scaler.step(optimizer)" in texts[name] for name in ("wide.py", "deep.py"))


def test_settings_that_are_asked_for_half_are_no_model() -> None:
    program = HALF.replace("MADE", "model = nn.Linear(8, 2).cuda()").replace(
        "parser.parse_args()", "argparse.Namespace(half=True)"
    )
    assert not [f for f in rewrite(program).findings if f.code == "AMP534"]
