"""The files of a project may be given one by one, in any order: what comes out is what one run over all of them writes, or the
run says which others to give."""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path

import pytest

from amp_migrate.engine import Program, migrate
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile

SET_UP = """
import torch
from apex import amp
{imports}

def main(x, y):
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    with amp.scale_loss(torch.nn.functional.mse_loss(model(x), {target}), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    torch.save({{"model": model.state_dict(), "amp": amp.state_dict()}}, "{name}.pt")


main(torch.ones(3, 4).cuda(), torch.ones(3, 2).cuda())
"""
TRAIN = SET_UP.format(imports="\ndef clean(y):\n    return y\n", target="y", name="train")
OTHER = SET_UP.format(imports="from train import clean\n", target="clean(y)", name="other")
TRAINER = """
import torch
from apex import amp
from train import clean


class Trainer{base}:
    def __init__(self):
        self.model = torch.nn.Linear(4, 2).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def train(self, x, y):
        with amp.scale_loss(torch.nn.functional.mse_loss(self.model(x), clean(y)), self.optimizer) as scaled:
            scaled.backward()
        self.optimizer.step()


Trainer().train(torch.ones(3, 4).cuda(), torch.ones(3, 2).cuda())
"""
GUARD = "try:\n    from apex import amp\n    HAS_APEX = True\nexcept ImportError:\n    HAS_APEX = False\n"
GUARDED = TRAIN.replace("from apex import amp\n", GUARD)
ASKS = """
import train
from train import HAS_APEX, clean

if HAS_APEX:
    print(clean("apex"))
else:
    print(clean("no apex"))
"""
EVALUATE = """
import torch


def evaluate(model, x):
    model.eval()
    with torch.no_grad():
        return model(x).argmax(-1)


def report(model, x):
    print(evaluate(model, x).sum().item())
"""
EVALUATES = """
import torch
from apex import amp
from evaluating import report


def main(fp16, x, y):
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    loss = torch.nn.functional.mse_loss(model(x), y)
    if fp16:
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
    else:
        loss.backward()
    optimizer.step()
    report(model, x)


main({fp16}, torch.ones(3, 4).cuda(), torch.ones(3, 2).cuda())
"""
PLAIN = """
import torch
import evaluating
import showing

model = torch.nn.Linear(4, 2)
evaluating.report(model, torch.ones(3, 4))
showing.report(model, torch.ones(3, 4))
"""
CARRIED = """
import argparse
import torch
from apex import amp


def clean(y):
    return y


def main(args):
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    args.amp = amp
    model, optimizer = args.amp.initialize(model, optimizer, opt_level="O1")
    train(args, model, optimizer, torch.ones(3, 4).cuda(), torch.ones(3, 2).cuda())


def train(args, model, optimizer, x, y):
    with args.amp.scale_loss(torch.nn.functional.mse_loss(model(x), y), optimizer) as scaled:
        scaled.backward()
    optimizer.step()


main(argparse.Namespace())
"""
PROJECTS = {
    "two scripts": {"train.py": TRAIN, "other.py": OTHER},
    "a script and a class": {"train.py": TRAIN, "trainer.py": TRAINER.format(base="")},
    "a script that keeps amp on its options": {"train.py": CARRIED, "other.py": OTHER},
    "a flag that another file asks for": {"train.py": GUARDED, "asks.py": ASKS},
    "a flag that stays": {"train.py": GUARDED, "asks.py": "from train import HAS_APEX\n\nprint(HAS_APEX)\n"},
    "one evaluation for two programs": {
        "evaluating.py": EVALUATE,
        "first.py": EVALUATES.format(fp16="True"),
        "second.py": EVALUATES.format(fp16="False"),
    },
}


def given(files: dict[str, str], paths: tuple[str, ...]) -> dict[str, FileResult]:
    """The results for some files of a project; the others are only read."""
    sources = {path: SourceFile(Path("/p") / path, path, textwrap.dedent(text)) for path, text in files.items()}
    targets = [sources[path] for path in paths]
    rest = [source for path, source in sources.items() if path not in paths]
    return {r.path: r for r in migrate(Program(targets, rest, Path("/p")), Options())}


def after(files: dict[str, str], *pieces: tuple[str, ...]) -> tuple[dict[str, str], set[str]]:
    """The files after these pieces were given, one after the other, and the codes of what was refused on the way."""
    refused: set[str] = set()
    for piece in pieces:
        results = given(files, piece)
        files = files | {path: r.after for path, r in results.items() if r.after is not None}
        refused |= {f.code for r in results.values() for f in r.findings if f.status == "manual"}
    return files, refused


@pytest.mark.parametrize("name", PROJECTS)
def test_pieces_in_any_order_end_as_all_at_once(name: str) -> None:
    files = PROJECTS[name]
    wanted, refused = after(files, tuple(files))
    assert not refused
    assert wanted != files
    for order in itertools.permutations(files):
        alone = [(path,) for path in order]
        one_by_one, refused = after(files, *alone)
        assert one_by_one == wanted or "AMP116" in refused, order
        for count in range(1, len(alone)):
            assert after(files, *alone[:count], tuple(files))[0] == wanted, order


def test_the_second_program_hands_its_switch_to_the_region_of_the_first() -> None:
    files = PROJECTS["one evaluation for two programs"]
    wanted, _ = after(files, tuple(files))
    for first, second in (("first.py", "second.py"), ("second.py", "first.py")):
        assert after(files, ("evaluating.py", first), (second,)) == (wanted, set())
    assert "use_amp=fp16" in wanted["first.py"]


def test_a_switch_is_called_alike_in_files_that_share_no_region() -> None:
    other = (
        EVALUATES.format(fp16="True").replace("import report", "import report as show").replace("report(m", "show(m")
    )
    files = {
        "evaluating.py": EVALUATE,
        "first.py": EVALUATES.format(fp16="True"),
        "showing.py": EVALUATE + "\n\nfrom evaluating import report as other\n",
        "plain.py": PLAIN,
        "second.py": other.replace("from evaluating", "from showing"),
    }
    wanted, _ = after(files, tuple(files))
    assert "use_amp=fp16" in wanted["first.py"]
    assert "use_amp=fp16" in wanted["second.py"]
    for first, second in (
        (("evaluating.py", "first.py"), ("showing.py", "second.py")),
        (
            ("showing.py", "second.py"),
            ("evaluating.py", "first.py"),
        ),
    ):
        assert after(files, first, second) == (wanted, set())


def test_a_guard_stays_until_who_may_ask_it_is_given() -> None:
    (result,) = given(PROJECTS["a flag that another file asks for"], ("train.py",)).values()
    (told,) = (f for f in result.findings if f.status == "manual")
    assert (told.code, told.line) == ("AMP116", 4)
    assert "asks.py is given" in told.message
    assert result.after is not None
    assert GUARD in result.after
    assert "scaler.scale(" in result.after


def test_a_flag_that_another_file_reads_stays_where_apex_does() -> None:
    needs = "from train import HAS_APEX\nfrom apex.contrib.unknown import something\n\nprint(HAS_APEX, something)\n"
    files = {"train.py": GUARDED, "needs.py": needs}
    together, alone = (given(files, paths)["train.py"].after for paths in (("train.py", "needs.py"), ("train.py",)))
    assert together == alone
    assert GUARD in (alone or "")


NATIVE = """
import torch


def clean(y):
    return y


class Base:
    def resume(self):
        self.scaler = torch.amp.GradScaler("cuda")
        self.scaler.load_state_dict(torch.load("a.pt")["scaler"])
"""


def test_a_scaler_of_the_same_objects_keeps_its_name_to_itself() -> None:
    derived = TRAINER.format(base="(Base)").replace("import clean", "import Base, clean")
    text = after({"train.py": NATIVE, "trainer.py": derived}, ("trainer.py",))[0]["trainer.py"]
    assert "self.grad_scaler = " in text
    assert "self.scaler" not in text


def test_a_scaler_in_the_same_file_keeps_its_name_to_itself() -> None:
    text = after({"train.py": TRAIN + "\nscaler = torch.amp.GradScaler('cuda')\nprint(scaler)\n"}, ("train.py",))[0]
    assert "grad_scaler = " in text["train.py"]


def test_a_scaler_whose_file_hands_on_all_names_keeps_its_name_to_itself() -> None:
    native = "import torch\n\nscaler = torch.amp.GradScaler('cuda')\n\n\ndef clean(y):\n    return y\n"
    other = OTHER.replace("from train import clean", "from train import *")
    text = after({"train.py": native, "other.py": other}, ("other.py",))[0]["other.py"]
    assert "grad_scaler = " in text


def test_another_things_name_is_taken_still() -> None:
    files = {"train.py": "scaler = object()\n\n\ndef clean(y):\n    return y, scaler\n", "other.py": OTHER}
    assert "grad_scaler = " in after(files, ("other.py",))[0]["other.py"]


def test_a_call_that_says_when_a_shared_region_is_on_widens_it() -> None:
    region = 'with torch.no_grad(), torch.autocast("cuda", enabled=use_amp):'
    evaluating = EVALUATE.replace("with torch.no_grad():", region).replace("(model, x):", "(model, x, use_amp=False):")
    evaluating = evaluating.replace("evaluate(model, x)", "evaluate(model, x, use_amp=use_amp)")
    says = EVALUATES.format(fp16="True").replace("report(model, x)", "report(model, x, use_amp=x is None)")
    files, refused = after({"evaluating.py": evaluating, "first.py": says}, ("evaluating.py", "first.py"))
    assert not refused
    assert "enabled=use_amp or " in files["evaluating.py"]
