"""Texts that still say Apex: which are meant, and whose (AMP854)."""

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import apex, found, initialize
from tests.rules.test_idle_options import HELP


@pytest.mark.parametrize(("more", "told"), [("", False), (" as apex does", True)])
def test_a_message_that_was_mended_does_not_say_apex_any_more_unless_more_of_it_does(more: str, told: bool) -> None:
    source = apex(
        prepare=initialize('opt_level="O1"')
        + "\nif device:\n"
        + f'    print("Using apex.parallel.DistributedDataParallel{more}")\n'
        + "    model = apex.parallel.DistributedDataParallel(model)",
        imports="import apex.parallel\nfrom apex import amp\n",
    )
    result = rewrite(source)
    assert result.after is not None
    assert f'print("Using DistributedDataParallel{more}")' in result.after
    assert bool(found(result, "AMP854")) is told


LOOP = """
import torch


def train(model, optimizer, loader, mixed=False):
    if mixed:
        from apex import amp
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        if mixed:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
"""
STARTS = """
import argparse

import torch
from loop import train

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true", help="16 bits (through NVIDIA APEX)")
args = parser.parse_args()
model = torch.nn.Linear(4, 2).cuda()
CALL
"""


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("train(model, torch.optim.SGD(model.parameters(), lr=0.1), [], mixed=args.fp16)", True),
        ("train(model, torch.optim.SGD(model.parameters(), lr=0.1), [], args.fp16 and True)", True),
        ("train(model, torch.optim.SGD(model.parameters(), lr=0.1), [], True)\nprint(args.fp16)", False),
    ],
)
def test_the_help_of_an_option_that_is_handed_to_what_was_rewritten_is_meant(call: str, told: bool) -> None:
    results = rewrite_files({"loop.py": LOOP, "main.py": STARTS.replace("CALL", call)})
    assert results["loop.py"].after is not None
    assert bool(found(results["main.py"], "AMP854")) is told


TWO_PARSERS = """
import argparse


def to_train():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true", help="16 bits (see apex)")
    parser.add_argument("--level", default="O1")
    return parser.parse_args()


def to_test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true", help="16 bits (see apex)")
    return parser.parse_args()
"""


def test_the_help_of_a_parser_that_only_other_scripts_ask_for_is_told_apart() -> None:
    _, _, rest = HELP.partition("print(args.apexes)")
    train = "import torch\nfrom apex import amp\nfrom options import to_train\nargs = to_train()" + rest
    train = train.replace("args.lr", "0.1")
    test = train.replace("to_train", "to_test").replace("scaled_loss.backward()", "run_backward_of(scaled_loss)")
    start = '\nif __name__ == "__main__":\n    print(1)\n'
    results = rewrite_files({"train.py": train + start, "test.py": test + start, "options.py": TWO_PARSERS})
    assert results["test.py"].after is None
    assert [f.line for f in found(results["options.py"], "AMP854")] == [6]


DECLARED = {
    "a field of settings": (
        "from dataclasses import dataclass, field\n\n\n@dataclass\nclass Settings:\n    lr: float = 0.1\n"
        '    fp16: bool = field(default=False, metadata={"help": "16 bits (through NVIDIA apex)"})\n\n\nargs = Settings()\n',
        "args.fp16",
        "fp16",
    ),
    "absl": (
        'from absl import flags\n\nflags.DEFINE_bool("fp16", False, "Train with apex.")\nFLAGS = flags.FLAGS\n',
        "FLAGS.fp16",
        "fp16",
    ),
    "click": (
        'import click\n\n\n@click.option("--use-fp16", is_flag=True, help="Train with apex.")\ndef main(use_fp16):\n'
        "    train(model, optimizer, [], mixed=use_fp16)\n\n",
        "",
        "--use-fp16",
    ),
}


@pytest.mark.parametrize(("declared", "read", "shown"), DECLARED.values(), ids=DECLARED)
@pytest.mark.parametrize("says", [True, False])
def test_helps_are_found_however_an_option_is_declared(declared: str, read: str, shown: str, says: bool) -> None:
    head = "import torch\nfrom loop import train\n\nmodel = torch.nn.Linear(4, 2).cuda()\n"
    head += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    text = head + (declared if says else declared.replace("apex", "autocast"))
    text += f"train(model, optimizer, [], mixed={read})\n" if read else 'if __name__ == "__main__":\n    main()\n'
    results = rewrite_files({"loop.py": LOOP, "main.py": text})
    assert results["loop.py"].after is not None
    told = [f.message for r in results.values() for f in found(r, "AMP854")]
    line = next(n for n, at in enumerate(text.splitlines(), 1) if "apex" in at) if says else 0
    assert told == [f"the help of {shown} still says Apex (line {line}): change the text"] * says


OPTIONS = """
import argparse


def read():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true", help="16 bits (through NVIDIA APEX)")
    return parser.parse_args()
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("from job.options import read", True),
        ("from options import read", True),
        ("from job.options import parse as read", False),
        ("from job.choices import read", False),
    ],
)
def test_the_file_of_options_is_found_where_its_folder_is_called_otherwise_here(line: str, told: bool) -> None:
    start = (
        STARTS.partition("parser = ")[0]
        + f"""{line}

def main():
    args = read()
    model = torch.nn.Linear(4, 2).cuda()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), [], mixed=args.fp16)


if __name__ == "__main__":
    main()
"""
    )
    files = {"here/start.py": start, "here/loop.py": LOOP, "here/options.py": OPTIONS}
    assert bool(found(rewrite_files(files)["here/options.py"], "AMP854")) is told
