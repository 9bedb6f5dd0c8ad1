"""`amp.master_params` beside a plain clip of `model.parameters()`: the two are the same where the optimizer has all of the model."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import rewrite, rewrite_files

PROGRAM = """
import argparse
import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
args = parser.parse_args()


def make(model):
{made}
    return torch.optim.AdamW(groups, lr=1e-3)


def train(model, optimizer, criterion, loader):
    for x, y in loader:
        loss = criterion(model(x), y)
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_({clipped}.parameters(), 1.0)
        optimizer.step()


def main(criterion, loader):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    other = torch.nn.Linear(2, 2)
    optimizer = make({model})
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    train(model, optimizer, criterion, loader)


main(torch.nn.MSELoss(), [])
"""
LOOP = """
plain = []
decayed = []
for name, parameter in model.named_parameters():
    if not parameter.requires_grad:
        continue
    if name.endswith(".bias"):
        plain.append(parameter)
    {otherwise}
        decayed.append(parameter)
groups = [{{"params": decayed}}, {{"params": plain, "weight_decay": 0.0}}]
"""
HALVES = """
groups = [
    {{"params": [p for n, p in model.named_parameters() if p.requires_grad and {one}]}},
    {{"params": [p for n, p in model.named_parameters() if p.requires_grad and {two}]}},
]
"""
ALL = HALVES.format(one='not n.endswith(".bias")', two='n.endswith(".bias")')


def looked_at(made: str, model: str = "model", clipped: str = "model", more: str = "") -> bool:
    """Whether a reader has to see that the optimizer has just these parameters."""
    source = PROGRAM.format(made=textwrap.indent(made.strip("\n"), "    "), model=model, clipped=clipped) + more
    (finding,) = [f for f in rewrite(source).findings if f.code == "AMP304"]
    assert finding.status == "done"
    assert (finding.review == "look") == finding.message.endswith("see that the optimizer has just these")
    return finding.review == "look"


@pytest.mark.parametrize(
    "made",
    [
        "groups = model.parameters()",
        "groups = [p for p in model.parameters() if p.requires_grad]",
        "groups = filter(lambda p: p.requires_grad, model.parameters())",
        'groups = [{"params": model.parameters()}]',
        ALL,
        LOOP.format(otherwise="else:"),
        LOOP.format(otherwise='elif ".norm" in name:\n        plain.append(parameter)\n    else:'),
    ],
)
def test_all_that_can_get_a_gradient_is_all_that_is_clipped(made: str) -> None:
    assert not looked_at(made)


@pytest.mark.parametrize(
    "made",
    [
        "groups = model[0].parameters()",
        "groups = [p for n, p in model.named_parameters() if 'bias' not in n]",
        'groups = [{"params": model[0].parameters()}, {"params": model[1].parameters()}]',
        HALVES.format(one='not n.endswith(".bias")', two='n.startswith("0")'),
        LOOP.format(otherwise='elif ".norm" in name:'),
        LOOP.format(otherwise="else:") + "plain.append(scale)",
        LOOP.format(otherwise="else:").replace("decayed}", "[]}"),
        f"model = model[0]\n{ALL}",
        f"model = torch.nn.Sequential(model, extra)\n{ALL}",
        # Filtered by hand before it is divided: the list has two values.
        "named = list(model.named_parameters())\nnamed = [n for n in named if 'pooler' not in n[0]]\n"
        "groups = [{'params': [p for n, p in named if 'bias' in n]}, {'params': [p for n, p in named if 'bias' not in n]}]",
    ],
)
def test_a_part_of_the_model_or_more_than_it_is_to_be_seen(made: str) -> None:
    assert looked_at(made)


def test_another_model_is_to_be_seen() -> None:
    assert looked_at(ALL, clipped="torch.nn.ModuleList([model, extra])")


def test_a_model_that_a_function_may_give_none_of_is_no_other() -> None:
    source = PROGRAM.format(made=textwrap.indent(ALL.strip("\n"), "    "), model="model", clipped="model")
    made = "torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))"
    source = source.replace(f"model = {made}", "model = select(args.fp16)")
    source = source.replace("def main(", f"def select(kind):\n    if kind:\n        return {made}\n\n\ndef main(")
    (finding,) = [f for f in rewrite(source).findings if f.code == "AMP304"]
    assert finding.review == "as-is"


@pytest.mark.parametrize(
    ("later", "wanted"),
    [
        ("model.head = torch.nn.Linear(1, 1)", True),
        ('model.add_module("head", torch.nn.Linear(1, 1))', True),
        ("optimizer.add_param_group({'params': other.parameters()})", True),
        ("model.name = 'net'", False),
        ("other.head = torch.nn.Linear(1, 1)", False),
    ],
)
def test_a_model_that_grows_after_its_optimizer_was_made_is_to_be_seen(later: str, wanted: bool) -> None:
    source = PROGRAM.format(made=textwrap.indent(ALL.strip("\n"), "    "), model="model", clipped="model")
    source = source.replace("    optimizer = make(model)\n", f"    optimizer = make(model)\n    {later}\n")
    (finding,) = [f for f in rewrite(source).findings if f.code == "AMP304"]
    assert (finding.review == "look") is wanted


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ("def thaw(model):\n    for p in model.parameters():\n        p.requires_grad = True\n", True),
        ("def thaw(model):\n    model.requires_grad_()\n", True),
        ("def freeze(model):\n    for p in model.parameters():\n        p.requires_grad = False\n", False),
    ],
)
def test_parameters_that_are_thawed_later_are_clipped_and_never_stepped(more: str, wanted: bool) -> None:
    assert looked_at(ALL, more=more) is wanted
    assert not looked_at("groups = model.parameters()", more=more)


def test_a_helper_of_several_programs_is_read_for_each() -> None:
    source = PROGRAM.format(made=textwrap.indent(ALL.strip("\n"), "    "), model="model", clipped="model")
    start, end = source.index("def make("), source.index("def train(")
    helper = f"import torch\n\n\n{source[start:end]}"
    script = source[:start].replace("import torch\n", "import torch\nfrom helper import make\n") + source[end:]
    script = script.replace("\nmain(torch", "\nif __name__ == '__main__':\n    main(torch")
    files = {"helper.py": helper, "train.py": script, "pretrain.py": script.replace("Linear(2, 1)", "Linear(2, 7)")}
    found = [f for r in rewrite_files(files).values() for f in r.findings if f.code == "AMP304"]
    assert [f.review for f in found] == ["as-is", "as-is"]


def test_a_model_of_another_program_is_no_matter() -> None:
    source = PROGRAM.format(made=textwrap.indent(ALL.strip("\n"), "    "), model="model", clipped="model")
    start, end = source.index("def make("), source.index("def train(")
    script = source[:start].replace("import torch\n", "import torch\nfrom helper import build, make\n") + source[end:]
    script = script.replace("\nmain(torch", "\nif __name__ == '__main__':\n    main(torch")
    made = "model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))"
    helper = f"import torch\n\n\ndef build():\n    {made}\n    return model\n\n\n{source[start:end]}"
    assert made in script
    files = {"helper.py": helper, "train.py": script, "pretrain.py": script.replace(made, "model = build()")}
    found = [f for r in rewrite_files(files).values() for f in r.findings if f.code == "AMP304"]
    assert [f.review for f in found] == ["as-is", "as-is"]
