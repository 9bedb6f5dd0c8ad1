"""A name that is a class first and a model later: which it is where it is called is asked of the statements before."""

from __future__ import annotations

import textwrap

import pytest

from tests.audit.helpers import doubts, doubts_of

NETS = """
import torch

class Net(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.body = torch.nn.Linear(n, n)

    def forward(self, x):
        return self.body(x)

class Crf(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.body = torch.nn.Linear(n, n)

    def forward(self, x):
        return self.body(x)
"""
PROGRAM = """
import torch
import torch.nn.functional as F

def main(args):
    model = Net(4)
    MAKE
    optimizer = torch.optim.Adam([*model.parameters(), *crf.parameters()])
    SETUP
    for x, y in loader:
        STEP
        optimizer.zero_grad()
    with torch.no_grad():
        print(torch.softmax(crf(x), 1).cpu().numpy())

main(parse())
"""
STEP = """
        loss = F.cross_entropy(crf(model(x)), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
AFTER_STEP = """
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(crf(model(x)), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
WAYS = {
    "made": "crf = Crf(4)",
    "named, then made": "crf = Crf\n    crf = crf(4)",
    "out of a table, then made": "crf = {'crf': Crf}[args.crf]\n    crf = crf(4)",
    "out of a table with a name": "table = {'crf': Crf}\n    crf = table[args.crf]\n    crf = crf(4)",
    "in either branch": "crf = Crf\n    if args.wide:\n        crf = crf(8)\n    else:\n        crf = Crf(4)",
    "moved": "crf = Crf\n    crf = crf(4)\n    crf = crf.cuda()",
}


def said(make: str, level: str, files: bool = False) -> list[tuple[str, str, str]]:
    def written(imports: str, setup: str, step: str) -> str:
        text = PROGRAM.replace("import torch\n", f"import torch\n{imports}\n", 1)
        text = text.replace("MAKE", make).replace("SETUP", setup).replace("        STEP\n", step)
        return text if files else text.replace("def main", NETS + "\ndef main")

    called = "from nets import Net, Crf\nfrom nets import Crf as crf" if files and "global" in make else ""
    called = called or ("from nets import Net, Crf" if files else "")
    initialize = f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")'
    before = written(f"from apex import amp\n{called}", initialize, STEP)
    after = written(called, 'scaler = torch.amp.GradScaler("cuda")', AFTER_STEP)
    found = doubts_of({"train.py": before, "nets.py": NETS}, {"train.py": after}) if files else doubts(before, after)
    return [(d.code, d.verdict, d.message.split(";")[0].split(" (")[0]) for d in found]


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_said_of_it_is_what_is_said_of_one_that_is_made_at_once(way: str, level: str) -> None:
    plain = said(WAYS["made"], level)
    assert any(code == "AMP531" and message.startswith("crf") for code, _, message in plain)
    assert said(WAYS[way], level) == plain


def test_an_import_by_the_name_of_the_model_later_is_followed_too() -> None:
    own = said("crf = Crf(4)", "O1", files=True)
    again = said("global crf\n    crf = crf(4)", "O1", files=True)
    assert again == own


def test_the_call_that_makes_it_is_still_one_of_the_class() -> None:
    from amp_migrate.audit.program.program import Program

    text = textwrap.dedent("class Crf:\n    pass\n\ncrf = Crf\nfirst = crf\ncrf = crf(4)\nsecond = crf\n")
    program = Program({"a.py": text})
    module = program.modules["a.py"]
    found = [program.definitions(module.top, s.value) for s in module.tree.body[2:]]  # type: ignore[attr-defined]
    assert [len(f) for f in found] == [1, 0, 0]
    made = module.calls()[0]
    assert len(program.definitions(module.top, made.func)) == 1


@pytest.mark.parametrize("made", ["{'a': Net, 'b': Crf}[key](4)", "table[key](4)"])
def test_a_table_that_is_written_in_a_function_gives_what_it_holds(made: str) -> None:
    from amp_migrate.audit.program.program import Program

    text = NETS + f"\ndef main(key):\n    table = {{'a': Net, 'b': Crf}}\n    return {made}\n"
    program = Program({"a.py": text})
    call = program.modules["a.py"].calls()[-1]
    found = program.definitions(program.modules["a.py"].scope_of(call), call.func)
    assert [d.name for d in found] == ["Net", "Crf"]
