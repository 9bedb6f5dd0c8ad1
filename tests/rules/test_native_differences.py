"""A run that asked for Apex takes the native side: what was otherwise in it beside set-up, loss and state is told. AMP120."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import rewrite, run_alone
from tests.rules.programs import found

PROGRAM = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--apex", action="store_true")
parser.add_argument("--native", action="store_true")
parser.add_argument("--resume", default="")
parser.add_argument("--lr", type=float, default=0.5)
args = parser.parse_args(["--apex"])
model = torch.nn.Linear(2, 1)
ABOVE
optimizer = torch.optim.SGD(model.parameters(), lr=LR)
scaler = None
if args.apex:
    from apex import amp
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    if args.resume:
        amp.load_state_dict(torch.load(args.resume)["SAVED"])
elif args.native:
    scaler = torch.amp.GradScaler("cpu")
    if args.resume:
        scaler.load_state_dict(torch.load(args.resume)["scaler"])
for x in [torch.ones(2, 2)]:
    optimizer.zero_grad()
    if args.apex:
        loss = model(x).mean()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
    elif args.native:
        with torch.autocast("cpu"):
            loss = model(x).mean()
        scaler.scale(NATIVE).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
BELOW
"""


def migrated(above: str = "pass", lr: str = "args.lr", below: str = "", native: str = "loss") -> tuple[str, list[str]]:
    text = PROGRAM.replace("ABOVE", above).replace("LR", lr).replace("BELOW", below).replace("NATIVE", native)
    result = rewrite(text.replace("SAVED", "amp"), device="cpu")
    assert "args.apex or args.native" in (result.after or "")
    return result.after or "", [f.message for f in found(result, "AMP120") if f.review == "review"]


@pytest.mark.parametrize(
    ("above", "lr"),
    [
        ("pass", "args.lr * (0.5 if args.apex else 1.0)"),
        ("pass", "args.lr if args.native else 2.0"),
        ("if args.apex and args.resume:\n    parser.error('nothing is resumed')", "args.lr"),
        ("if args.native and args.lr > 1:\n    raise SystemExit('too large')", "args.lr"),
        ("if args.lr == 0 or args.apex:\n    torch.manual_seed(3)", "args.lr"),
        ("warm = args.lr > 0 and not args.apex", "args.lr"),
        ("def warm(model, slowly):\n    return model\n\n\nmodel = warm(model, slowly=not args.apex)", "args.lr"),
    ],
)
def test_what_differed_is_told(above: str, lr: str) -> None:
    _, (told,) = migrated(above, lr)
    assert told.startswith("a run that asked for Apex differed here from one of the native side (`")


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ("if args.apex or args.native:\n    torch.manual_seed(3)", ""),  # both
        ("if args.apex and args.native:\n    parser.error('one of both')", ""),
        ("if args.apex:\n    print('with Apex')", "print('native' if args.native else 'none')"),
        ("pass", "state = scaler.state_dict() if args.native else {}"),
        ("assert not (args.apex and args.native)", "native_there = args.native and not args.apex"),
        ("use_fp16 = args.native or args.lr > 1", ""),
    ],
)
def test_what_was_alike_or_is_mixed_precision_itself_is_not_told(above: str, below: str) -> None:
    assert not migrated(above, below=below)[1]


def test_what_the_native_loss_divides_by_is_told() -> None:
    _, (told,) = migrated(native="loss / 4")
    assert told.startswith("the native branch divides the loss by 4")


@pytest.mark.parametrize(("saved", "told"), [("amp", 1), ("scaler", 0)])
def test_a_key_that_apex_did_not_write_is_told(saved: str, told: int) -> None:
    text = PROGRAM.replace("ABOVE", "pass").replace("LR", "args.lr").replace("NATIVE", "loss").replace("SAVED", saved)
    save = f"if args.apex:\n    torch.save({{'{saved}': amp.state_dict()}}, 'last.pt')\n"
    result = rewrite(text.replace("BELOW", save), device="cpu")
    missing = [f for f in found(result, "AMP123") if "stops with a KeyError" in f.message]
    assert len(missing) == told


def test_what_another_object_has_by_the_name_of_the_option_is_left(tmp_path: Path) -> None:
    above = "class Config:\n    apex = True\n\n\nmodel.config = Config\nif model.config.apex:\n    print('fused')"
    result = rewrite(
        PROGRAM.replace("ABOVE", above).replace("LR", "0.1").replace("BELOW", "").replace("NATIVE", "loss"),
        device="cpu",
    )
    assert run_alone(tmp_path, result.after or "") == ("fused", "")
    (told,) = (f for f in found(result, "AMP120") if "model.config.apex" in f.message)
    assert told.review == "look"


def test_the_same_option_under_another_name_is_folded(tmp_path: Path) -> None:
    above = "def build(opt):\n    if opt.apex:\n        print('for Apex')\n\n\nbuild(args)"
    assert "opt.apex" not in migrated(above)[0]


@pytest.mark.parametrize(
    "above",
    [
        "use = getattr(args, 'native') or False",
        "use = vars(args)['native']",
        "def make(native=False, **more):\n    return native\n\n\nuse = make(**vars(args))",
        "settings = vars(args)\nuse = settings['native']",
        "def chosen(options):\n    return vars(options)['native']\n\n\nuse = chosen(args)",
        "def chosen(options):\n    return make(**vars(options))\n\n\nuse = chosen(args)",
    ],
)
def test_an_option_that_is_read_by_its_name_too_answers_for_itself_alone(above: str) -> None:
    text = PROGRAM.replace("ABOVE", above).replace("LR", "0.1").replace("BELOW", "").replace("NATIVE", "loss")
    result = rewrite(text, device="cpu")
    assert "args.apex or args.native" not in (result.after or "")
    assert [f for f in found(result, "AMP120") if f.review == "review" and "trains in float32 now" in f.message]
    told = rewrite(text.replace(above, "print(vars(args))"), device="cpu")
    assert "args.apex or args.native" in (told.after or "")
